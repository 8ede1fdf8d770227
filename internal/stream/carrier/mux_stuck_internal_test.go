// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestCloseOfStuckLink: a link that does not move keeps nobody: neither the
// writers, nor who closes, nor a goroutine.
func TestCloseOfStuckLink(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	s := session(t, Wrap(near), false, Options{Incoming: 10})
	p := newPeer(t, far)
	p.send("02 000008 00000001 00040000 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(st, &pieces{1 << 20})
		wrote <- err
	}()
	runtest.Eventually(t, "the link is full", func() bool {
		s.lanes[0].mu.Lock()
		defer s.lanes[0].mu.Unlock()
		return s.lanes[0].waits
	})
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("close took %v", took)
	}
	if err := done(t, "the writer ends", wrote); err == nil {
		t.Error("the writer has no error")
	}
	if n := s.queued.Load(); n != 0 {
		t.Errorf("%d bytes are queued for ever", n)
	}
}

// TestCloseOfFullLink: the same when nobody waits for it yet.
func TestCloseOfFullLink(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	wrapped := Wrap(near)
	s := session(t, wrapped, false, Options{Incoming: 10})
	newPeer(t, far).settle()
	release := halt(s.lanes[0])
	near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	for _, err := near.Write(make([]byte, 1<<20)); err == nil; _, err = near.Write(make([]byte, 1<<20)) {
	}
	near.SetWriteDeadline(time.Time{})
	release()
	s.Close()
	runtest.Eventually(t, "the connection is closed", func() bool { return s.Info().Connections == 0 })
}

// TestFarewellBehindATurn: who has the turn says the last word and closes.
func TestFarewellBehindATurn(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.settle()
	release := halt(s.lanes[0])
	s.Close()
	p.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := p.frame(); err == nil {
		t.Error("the session speaks although the turn is taken")
	}
	p.conn.SetReadDeadline(time.Now().Add(patience))
	release()
	if frames := p.rest(); len(frames) != 1 || frames[0] != "08 000004 00000000 00000002" {
		t.Errorf("the last words are %q", frames)
	}
}
