// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"sync/atomic"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestTally: what a stream has unread counts for whoever tallies it, from what had
// come before to the end, however it is read or given up; other streams do not.
func TestTally(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, st *muxStream, p *peer){
		"read": func(t *testing.T, st *muxStream, _ *peer) {
			if _, err := io.ReadFull(st, make([]byte, 700)); err != nil {
				t.Fatal(err)
			}
		},
		"copied": func(t *testing.T, st *muxStream, p *peer) {
			p.send("04 000000 00000001") // FIN
			p.settle()                   // what was written has come
			if _, err := io.Copy(io.Discard, st); err != nil {
				t.Fatal(err)
			}
		},
		"closed": func(_ *testing.T, st *muxStream, _ *peer) { st.Close() },
		"reset":  func(_ *testing.T, st *muxStream, _ *peer) { st.Reset(1) },
		"lost, then closed": func(t *testing.T, st *muxStream, p *peer) {
			p.conn.Close()
			done(t, "the session has ended", st.s.Done())
			st.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ofSession, ofStream atomic.Int64
			s, p := scripted(t, false, Options{Tally: &ofSession})
			p.send(open1, open3, data(1, 300), data(3, 50))
			p.quiet()
			st, other := accept(t, s), accept(t, s)
			st.Tally(&ofStream)
			want := func(stream, session int64) {
				t.Helper()
				if a, b, c := ofStream.Load(), st.Unread(), ofSession.Load(); a != stream || b != stream || c != session || other.Unread() != 50 {
					t.Fatalf("%d and %d of the stream, %d of the session are counted, want %d and %d", a, b, c, stream, session)
				}
			}
			want(300, 350)
			if _, err := io.ReadFull(st, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			want(200, 250)
			p.send(data(1, 500))
			p.quiet()
			want(700, 750)
			if _, err := st.Write(make([]byte, 4000)); err != nil { // what waits to be sent is not unread
				t.Fatal(err)
			}
			want(700, 750)
			end(t, st, p)
			want(0, 50)
			other.Close()
			if n := ofSession.Load(); n != 0 {
				t.Errorf("%d bytes stay unread for ever", n)
			}
		})
	}
}

// TestTallyOfWhatIsEarly: bytes behind a MOVE count before it is their turn, and after
// the loss of the connection on which what was before them comes.
func TestTallyOfWhatIsEarly(t *testing.T) {
	var n atomic.Int64
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	p.send(open1, text("ab"))
	p.settle()
	st := accept(t, s)
	st.Tally(&n)
	q.send(move(5), text("fgh"))
	q.quiet()
	if n.Load() != 5 || st.Unread() != 5 {
		t.Errorf("%d bytes are counted", n.Load())
	}
	p.conn.Close()
	runtest.Eventually(t, "what is never in order is given up", func() bool { return n.Load() == 2 })
	st.Reset(1)
	if n.Load() != 0 || s.budget.Unread() != 0 {
		t.Errorf("%d bytes stay counted, %d unread", n.Load(), s.budget.Unread())
	}
}
