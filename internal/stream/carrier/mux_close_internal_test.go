// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseWaits: of what a session has started, a dial and a send that the link does
// not take, nothing is left when Close returns. All other tests look for the same.
func TestCloseWaits(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	dialled := make(chan struct{})
	s := session(t, Wrap(near), true, Options{Connections: 2, Dial: func(ctx context.Context) (net.Conn, error) {
		close(dialled)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	st := must[Stream](t)(s.OpenStream(t.Context(), nil))
	go st.CopyFrom(&pieces{1 << 16}, nil) // nobody reads it
	s.asked(2)
	done(t, "a dial", dialled)
	s.Close()
	if n := s.owned.Load(); n != 0 {
		t.Errorf("Close has left %d goroutines", n)
	}
	far.Close()
}

// TestCloseIsBounded: it does not wait for ever for a Dial that ignores its context, nor
// for itself when Lost calls it.
func TestCloseIsBounded(t *testing.T) {
	t.Run("dial", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			near, _ := net.Pipe()
			hang := make(chan struct{})
			s := must[Session](t)(newMux(near, Options{Connections: 2, Dial: func(context.Context) (net.Conn, error) {
				<-hang
				return nil, errors.New("too late")
			}}, true)).(*muxSession)
			s.asked(2)
			begin := time.Now()
			s.Close()
			if took := time.Since(begin); took != closeWithin {
				t.Errorf("it waited %v for a dial, want %v", took, closeWithin)
			}
			close(hang)
			<-s.quiet
		})
	})
	t.Run("lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			var s Session
			begun := make(chan struct{})
			s = must[Session](t)(newMux(near, Options{Lost: func(Loss) {
				<-begun
				s.Close()
			}}, false))
			close(begun)
			begin := time.Now()
			far.Close()
			<-s.(*muxSession).quiet
			if took := time.Since(begin); took != closeWithin {
				t.Errorf("it waited %v for itself, want %v", took, closeWithin)
			}
		})
	})
}

// TestAViolationWhileAnotherSends: the reader of a connection stays until whoever is
// sending on it has seen the end, who may start a goroutine for the rest.
func TestAViolationWhileAnotherSends(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	far.SetDeadline(deadlineNow())
	s := session(t, Wrap(near), true, Options{})
	l := s.primaryLocked()
	release := halt(l)
	if _, err := far.Write([]byte{frameData, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	done(t, "the end of the session", s.done)
	if _, err := far.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("nobody reads while somebody sends: %v", err)
	}
	if !l.own() {
		t.Error("the connection is lost, though somebody sends on it")
	}
	l.s.release()
	select {
	case <-s.quiet:
		t.Error("the session is quiet before the sender is done")
	default:
	}
	release()
	done(t, "the goroutines", s.quiet)
}
