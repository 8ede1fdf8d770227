// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// departed is a target that has answered and closed its socket: what it said
// can be read to its end, what is written to it fails. The answer arrives only
// after a write has failed, which is the order that used to lose it.
type departed struct {
	answer io.Reader
	once   sync.Once
	failed chan struct{}
}

func newDeparted(answer []byte) *departed {
	return &departed{answer: bytes.NewReader(answer), failed: make(chan struct{})}
}

func (d *departed) Read(b []byte) (int, error) { <-d.failed; return d.answer.Read(b) }

func (d *departed) Write([]byte) (int, error) {
	d.once.Do(func() { close(d.failed) })
	return 0, syscall.EPIPE
}

func (d *departed) CloseWrite() error  { return nil }
func (d *departed) Close() error       { return nil }
func (d *departed) Reset(uint32) error { return nil }

// TestAnswerOfDeparted: a client that writes to a server that has answered and
// closed still reads the whole answer, as it would without a tunnel. kubelet's
// exec ends like that while kube-apiserver still acknowledges what it read.
func TestAnswerOfDeparted(t *testing.T) {
	for _, a := range ends() {
		t.Run(a.name, func(t *testing.T) {
			answer := make([]byte, 128<<10)
			rand.Read(answer)
			near, far, _ := a.make(t)
			result := make(chan splice.Result, 1)
			go func() { result <- splice.New().Both(t.Context(), near, newDeparted(answer), splice.Options{}) }()
			for range 3 { // one would do
				if _, err := far.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			got, err := io.ReadAll(far)
			if err != nil || !bytes.Equal(got, answer) {
				t.Errorf("%d of %d bytes of the answer arrived: %v", len(got), len(answer), err)
			}
			far.Close()
			if r := <-result; r.Code != fault.CodeStreamReset || !errors.Is(r.Err, syscall.EPIPE) || r.Down != int64(len(answer)) {
				t.Errorf("ended with %q, %v, %d down", r.Code, r.Err, r.Down)
			}
		})
	}
}

// TestUploadToDeparted: who goes on sending to a side that takes nothing is
// told, after a bounded amount.
func TestUploadToDeparted(t *testing.T) {
	for _, a := range ends() {
		t.Run(a.name, func(t *testing.T) {
			near, far, _ := a.make(t)
			result := make(chan splice.Result, 1)
			go func() { result <- splice.New().Both(t.Context(), near, newDeparted(nil), splice.Options{}) }()
			if err := <-send(far, make([]byte, 64*limit.Discard)); err == nil {
				t.Error("an upload without end was taken")
			}
			if r := <-result; r.Code != fault.CodeStreamReset || !errors.Is(r.Err, syscall.EPIPE) {
				t.Errorf("ended with %q, %v", r.Code, r.Err)
			}
		})
	}
}
