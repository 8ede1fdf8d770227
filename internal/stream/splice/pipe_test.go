// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// openPipes counts the ends of pipes that this process has open.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// tunnel copies until the test ends, and leaves no descriptor behind that is closed while the next one counts.
func tunnel(t *testing.T, s *splice.Splicer, a, b net.Conn) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); s.Both(t.Context(), splice.Net(a), splice.Net(b), splice.Options{}) }()
	t.Cleanup(func() { <-done })
}

// bulk is what no buffer holds at once.
func bulk() []byte {
	b := make([]byte, 8<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

// Tunnels that have carried bulk and lie idle hold no pipe: those of one at a time are enough for all.
func TestAnIdleTunnelHoldsNoPipe(t *testing.T) {
	before, s, sent := openPipes(t), splice.New(), bulk()
	for range 20 {
		nearA, farA := pairOn(t, "tcp", "127.0.0.1:0")
		nearB, farB := pairOn(t, "tcp", "127.0.0.1:0")
		tunnel(t, s, nearA, nearB)
		for _, way := range [][2]net.Conn{{farA, farB}, {farB, farA}} {
			go way[0].Write(sent)
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("other bytes arrived, or %v", err)
			}
		}
	}
	if n := openPipes(t) - before; n < 2 || n > 4 {
		t.Errorf("%d ends of pipes are open for 20 idle tunnels; two ways at a time have 4", n)
	}
}

// A pipe with bytes in it is never used again.
func TestAPipeOfABrokenTunnelIsClosed(t *testing.T) {
	before, s, sent := openPipes(t), splice.New(), bulk()
	for range 20 {
		nearA, farA := pairOn(t, "tcp", "127.0.0.1:0")
		nearB, farB := pairOn(t, "tcp", "127.0.0.1:0")
		done := make(chan splice.Result, 1)
		go func() { done <- s.Both(t.Context(), splice.Net(nearA), splice.Net(nearB), splice.Options{}) }()
		go farA.Write(sent)
		if _, err := io.ReadFull(farB, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		farB.(*net.TCPConn).SetLinger(0) // it has more to read: the sender is in the middle
		farB.Close()
		farA.Close()
		if r := <-done; r.Code != fault.CodeStreamReset {
			t.Fatalf("%+v", r)
		}
	}
	if n := openPipes(t) - before; n > 2 {
		t.Errorf("%d ends of pipes are open", n)
	}
	nearA, farA := pairOn(t, "tcp", "127.0.0.1:0")
	nearB, farB := pairOn(t, "tcp", "127.0.0.1:0")
	tunnel(t, s, nearA, nearB)
	go farA.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(farB, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("other bytes arrived, or %v", err)
	}
}

// Where a process has no descriptors left but those of its reserve, bulk takes buffers, and no
// pipe: a peer that does not read would keep what the admin port needs.
func TestNoPipeFromTheReserve(t *testing.T) {
	var bound syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &bound); err != nil {
		t.Fatal(err)
	}
	few := bound
	few.Cur = 100 // a quarter is the reserve
	before, sent := openPipes(t), bulk()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &bound) })
	s := splice.New()
	nearA, farA := pairOn(t, "tcp", "127.0.0.1:0")
	nearB, farB := pairOn(t, "tcp", "127.0.0.1:0")
	for taken := uintptr(0); taken < 75; {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		taken = f.Fd()
	}
	tunnel(t, s, nearA, nearB)
	go farA.Write(sent)
	if _, err := io.ReadFull(farB, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	// Whether a pipe is of the reserve shows when it is open: for a moment there may be one.
	runtest.Eventually(t, "no pipe is open", func() bool { return openPipes(t) == before })
	got := make([]byte, len(sent)-1<<20)
	if _, err := io.ReadFull(farB, got); err != nil || !bytes.Equal(got, sent[1<<20:]) {
		t.Fatalf("other bytes arrived, or %v", err)
	}
}
