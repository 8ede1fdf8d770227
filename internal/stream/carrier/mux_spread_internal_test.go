// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowLink is a connection that carries perSecond bytes, in simulated time.
type slowLink struct{ net.Conn }

const perSecond = 64 << 20

func (l slowLink) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / perSecond)
	return l.Conn.Write(b)
}

// blocks is what a hub or agent reads from somebody who writes 32,768 bytes at a time:
// most of a block, then its small rest.
type blocks struct {
	end    <-chan struct{}
	odd    bool
	notice func() // of each block
}

func (*blocks) Read([]byte) (int, error) { panic("it is asked when it is ready") }

func (s *blocks) ReadWhenReady(take func() []byte, _ func()) (int, error) {
	select {
	case <-s.end:
		return 0, io.EOF
	default:
	}
	if s.odd = !s.odd; s.odd {
		s.notice()
		return len(take()), nil
	}
	return len(take()[:113]), nil
}

// crowd is two ends in simulated time: the hub opens streams, which the agent serves
// as their first byte asks for.
type crowd struct {
	t          *testing.T
	hub, agent *muxSession
	loads      chan struct{}
	ends       []chan struct{}
	all        sync.WaitGroup
}

const (
	upload   = 'u'
	download = 'd'
	talk     = 't'
)

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, loads: make(chan struct{}, 1000)}
	o := Options{Incoming: 1000, Connections: 4, Beside: 1}
	near, far := net.Pipe()
	c.hub = session(t, slowLink{far}, false, o)
	o.Dial = func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		return slowLink{near}, c.hub.Attach(slowLink{far})
	}
	c.agent = session(t, slowLink{near}, true, o)
	control := must[Stream](t)(c.agent.OpenStream(t.Context(), []byte("Hello")))
	control.(*muxStream).Background()
	go func() {
		for range c.loads {
			control.Write([]byte("Load"))
		}
	}()
	go io.Copy(io.Discard, must[Stream](t)(c.hub.AcceptStream(t.Context())))
	go func() {
		for {
			st, err := c.agent.AcceptStream(context.Background())
			if err != nil {
				return
			}
			c.all.Go(func() { c.serve(st) })
		}
	}()
	return c
}

// open asks for a stream and waits for the answer, as a caller of the hub does.
func (c *crowd) open(what byte) Stream {
	st, err := c.hub.OpenStream(c.t.Context(), []byte{what})
	if err == nil {
		_, err = io.ReadFull(st, make([]byte, 1))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	st.Write([]byte("a greeting")) // and what it is about
	st.Write([]byte("a question"))
	return st
}

// serve tells its load with each stream.
func (c *crowd) serve(st Stream) {
	defer st.Close()
	c.loads <- struct{}{}
	defer func() { c.loads <- struct{}{} }()
	what := make([]byte, 1)
	if _, err := io.ReadFull(st, what); err != nil {
		return
	}
	st.Write([]byte("+"))
	switch what[0] {
	case upload:
		st.CopyTo(io.Discard, nil)
	case download:
		go io.Copy(io.Discard, st)
		st.CopyFrom(&blocks{notice: func() {}}, nil)
	case talk:
		io.Copy(st, st)
	}
}

// transfer runs until end. A download tells its sender now and then that it may go on.
func (c *crowd) transfer(what byte, end <-chan struct{}) {
	st := c.open(what)
	c.all.Go(func() {
		defer st.Close()
		if what == upload {
			st.CopyFrom(&blocks{end: end, notice: func() {}}, nil)
			return
		}
		read, due := 0, make(chan struct{}, 1)
		c.all.Go(func() {
			for range due {
				st.Write([]byte("a window of the caller's own protocol"))
			}
		})
		st.CopyTo(io.Discard, func(n int) {
			if read += n; read > 1<<16 {
				read = 0
				select {
				case due <- struct{}{}:
				default:
				}
			}
			select {
			case <-end:
				st.Reset(resetClosed)
			default:
			}
		})
		close(due)
	})
}

// begin starts one transfer each way.
func (c *crowd) begin() {
	end := make(chan struct{})
	c.ends = append(c.ends, end)
	c.transfer(upload, end)
	c.transfer(download, end)
}

// finish ends the oldest two.
func (c *crowd) finish() {
	close(c.ends[0])
	c.ends = c.ends[1:]
}

// close ends everything, which a bubble wants.
func (c *crowd) close() {
	for len(c.ends) > 0 {
		c.finish()
	}
	time.Sleep(10 * time.Millisecond)
	c.hub.Close()
	c.agent.Close()
	c.all.Wait()
	close(c.loads)
	time.Sleep(time.Second) // a write may be under way
}

// placed is how many bulk directions are on each connection of an end.
func placed(s *muxSession) (on []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		on = append(on, l.bulk)
	}
	return on
}

// watch looks every 10 ms how many bulk directions each end has on its connections.
func (c *crowd) watch(d time.Duration, what string, holds func(on []int) bool) {
	c.t.Helper()
	for range d / (10 * time.Millisecond) {
		time.Sleep(10 * time.Millisecond)
		for end, s := range map[string]*muxSession{"hub": c.hub, "agent": c.agent} {
			if on := placed(s); !holds(on) {
				c.t.Fatalf("after %v the %s has %v bulk directions on its connections, want %s", s.now(), end, on, what)
			}
		}
	}
}

// spread says that there are four connections with about four transfers each.
func spread(on []int) bool { return len(on) == 4 && slices.Min(on) >= 2 && slices.Max(on) <= 5 }

// beside says that only the second connection has any.
func beside(on []int) bool { return len(on) == 4 && on[1] > 0 && on[0]+on[2]+on[3] == 0 }

// TestTransfersAreSpread: 16 uploads and 16 downloads that begin at once use all
// connections, at both ends, and go on to while streams come and go. Neither the rest
// of a block, nor what a caller tells its sender, nor the control stream is talk.
func TestTransfersAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		defer c.close()
		for range 16 {
			c.begin()
		}
		time.Sleep(200 * time.Millisecond)
		c.watch(2*time.Second, "them spread", spread)
		for range 50 {
			c.finish()
			c.begin()
			c.watch(20*time.Millisecond, "them spread while streams come and go", spread)
		}
	})
}

// TestTalkAmongTransfers: while somebody talks, transfers leave it a connection to
// itself, so that no answer waits for them, and come back afterwards.
func TestTalkAmongTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		defer c.close()
		for range 16 {
			c.begin()
		}
		time.Sleep(200 * time.Millisecond)
		c.watch(100*time.Millisecond, "them spread", spread)
		st := c.open(talk)
		io.ReadFull(st, make([]byte, 20)) // the echo of how it began
		word := make([]byte, 100)
		for i := range 100 {
			begin := time.Now()
			st.Write(word)
			if _, err := io.ReadFull(st, word); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); i >= 20 && took > 50*time.Microsecond {
				t.Fatalf("answer %d came after %v", i, took)
			}
			if i >= 20 {
				c.watch(10*time.Millisecond, "them on the second", beside)
			} else {
				time.Sleep(10 * time.Millisecond)
			}
		}
		st.Close()
		time.Sleep(2500 * time.Millisecond) // this second and the one before, and the next time they are placed
		c.watch(time.Second, "them spread again", spread)
	})
}
