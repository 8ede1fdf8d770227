// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// silent is a connection on which nothing comes, or something that was not read yet.
type silent struct {
	net.Conn
	unread int
	stuck  chan struct{} // a write to it waits for this
	closed chan struct{}
}

func newSilent(unread int) *silent {
	return &silent{unread: unread, stuck: make(chan struct{}), closed: make(chan struct{})}
}

func (s *silent) Read([]byte) (int, error) {
	<-s.closed
	return 0, net.ErrClosed
}

func (s *silent) Write(b []byte) (int, error) {
	select {
	case <-s.stuck:
		return len(b), nil
	case <-s.closed:
		return 0, net.ErrClosed
	}
}

func (s *silent) Close() error {
	if !s.isClosed() {
		close(s.closed)
	}
	return nil
}

func (s *silent) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// fewOf makes a listener of so many places, each taken, and read from.
func fewOf(t *testing.T, held ...*silent) (l *few, shed *int) {
	shed = new(int)
	l = Few(nil, len(held), func() { *shed++ }).(*few)
	l.unread = func(c net.Conn) int { return c.(*silent).unread }
	for _, s := range held {
		c := l.enter(s, time.Now())
		if c == nil {
			t.Fatal("there is no place")
		}
		go c.Read(make([]byte, 1))
		synctest.Wait()
		time.Sleep(time.Millisecond) // an order
	}
	return l, shed
}

func TestOneOfFewMore(t *testing.T) {
	t.Run("costs the one its place that is silent for longest, after its grace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSilent(0), newSilent(0)
			l, shed := fewOf(t, a, b)
			begun := time.Now()
			if l.enter(newSilent(0), time.Now()) == nil || *shed != 1 || !a.isClosed() || b.isClosed() {
				t.Errorf("%d shed; a %v, b %v", *shed, a.isClosed(), b.isClosed())
			}
			if waited := time.Since(begun); waited < limit.SilentLeast-10*time.Millisecond || waited > limit.SilentLeast {
				t.Errorf("it waited for %v", waited)
			}
			b.Close()
		})
	})
	t.Run("is itself shed if it was silent for long already", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, late := newSilent(0), newSilent(0)
			l, shed := fewOf(t, a)
			begun := time.Now()
			if l.enter(late, begun.Add(-limit.SilentLeast)) != nil || *shed != 1 || a.isClosed() || !late.isClosed() || time.Since(begun) != 0 {
				t.Errorf("%d shed after %v", *shed, time.Since(begun))
			}
			a.Close()
		})
	})
	t.Run("waits for who waits for us, until a place is free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, late := newSilent(1), newSilent(1)
			l, shed := fewOf(t, a)
			var first *oneOfFew
			for first = range l.open {
			}
			in := make(chan net.Conn)
			go func() { in <- l.enter(late, time.Now().Add(-time.Hour)) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case <-in:
				t.Fatal("it is in")
			default:
			}
			first.Close()
			if c := <-in; c == nil || *shed != 0 {
				t.Errorf("it has lost its place, %d shed", *shed)
			}
		})
	})
	t.Run("waits for who is answered, and costs who does not read the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newSilent(0)
			l, shed := fewOf(t, a)
			var c *oneOfFew
			for c = range l.open {
			}
			r := httptest.NewRequestWithContext(WithFew(t.Context(), c), "GET", "/", nil)
			write := make(chan struct{})
			go Served(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				<-write
				c.Write([]byte("answer"))
			})).ServeHTTP(httptest.NewRecorder(), r)
			in := make(chan net.Conn)
			go func() { in <- l.enter(newSilent(1), time.Now()) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if a.isClosed() {
				t.Fatal("it is shed while it is answered")
			}
			begun := time.Now()
			close(write)
			if <-in == nil || *shed != 1 || !a.isClosed() || time.Since(begun) < limit.SilentGrace {
				t.Errorf("%d shed after %v", *shed, time.Since(begun))
			}
		})
	})
	t.Run("does not wait beyond the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, late := newSilent(1), newSilent(1)
			l, _ := fewOf(t, a)
			l.Listener = &net.TCPListener{}
			in := make(chan net.Conn)
			go func() { in <- l.enter(late, time.Now()) }()
			synctest.Wait()
			l.Close()
			if <-in != nil || !late.isClosed() {
				t.Error("it is in")
			}
			a.Close()
		})
	})
	t.Run("finds the place of who has gone, and none is given back twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSilent(0), newSilent(0)
			l, shed := fewOf(t, a, b)
			for c := range l.open {
				c.Close()
				c.Close()
			}
			for range 2 {
				if c := l.enter(newSilent(0), time.Now()); c == nil || *shed != 0 {
					t.Errorf("%d shed", *shed)
				}
			}
			if len(l.open) != 2 {
				t.Errorf("%d places are taken", len(l.open))
			}
		})
	})
}

// The kernel says since when a peer is silent, in the queue as well.
func TestQuietSinceItIsConnected(t *testing.T) {
	ln, err := Listen(t.Context(), "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	begun := time.Now()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	connected := time.Now()
	for time.Since(connected) < 50*time.Millisecond { // it waits in the queue
		far.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		far.Read(make([]byte, 1))
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if q := quiet(near); q < 20*time.Millisecond || q > time.Since(begun)+20*time.Millisecond {
		t.Errorf("it is quiet for %v after %v", q, time.Since(begun))
	}
	if q := quiet(newSilent(0)); q != 0 {
		t.Errorf("no connection of the kernel's is quiet for %v", q)
	}
}
