// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// TestWithoutSplice: where a sandbox or a kernel refuses splice(2), bulk goes by buffers, whole.
func TestWithoutSplice(t *testing.T) {
	for _, refusal := range []error{syscall.ENOSYS, syscall.EPERM, syscall.EINVAL} {
		t.Run(refusal.Error(), func(t *testing.T) {
			s := New()
			s.pipes.splice = func(int, int, int) (int, error) { return 0, refusal }
			nearA, farA := tcp(t)
			nearB, farB := tcp(t)
			go s.Both(t.Context(), Net(nearA), Net(nearB), Options{})
			sent := make([]byte, 4<<20)
			rand.NewChaCha8([32]byte{1}).Read(sent)
			go farA.Write(sent)
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(farB, got); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("other bytes arrived, or %v", err)
			}
			if s.pipes.get() != nil {
				t.Error("it is tried again for every tunnel")
			}
		})
	}
}

func tcp(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near, far
}
