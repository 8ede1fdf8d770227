// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// arrival is a packet that left the narrow place.
type arrival struct {
	n   int
	due time.Duration // since the begin
}

// through sends packets of each flow through a narrow place and gives what left
// it, by flow. The clock is the bubble's.
func through(t *testing.T, spec pathSpec, flows ...[]int) [][]arrival {
	out := make([][]arrival, len(flows))
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n := newNarrow(spec)
		var senders sync.WaitGroup
		lines := make([]*line, len(flows))
		for i, sizes := range flows {
			lines[i] = newLine()
			f := n.flow(lines[i])
			senders.Go(func() {
				for _, size := range sizes {
					f.push(chunk{n: size})
				}
			})
			synctest.Wait() // the flows begin in order
		}
		senders.Wait()
		n.close()
		for i := range flows {
			for range flows[i] {
				c := lines[i].pop()
				out[i] = append(out[i], arrival{c.n, c.due.Sub(begin)})
			}
		}
	})
	return out
}

// TestNarrowServesAtItsRate: 1,000 bytes a second and a delay of 2 s.
func TestNarrowServesAtItsRate(t *testing.T) {
	spec := pathSpec{Delay: 2 * time.Second, Rate: 1000, Queue: 500, Fair: true}
	got := through(t, spec, []int{100, 100, 300, 500})[0]
	want := []arrival{{100, 2100 * time.Millisecond}, {100, 2200 * time.Millisecond}, {300, 2500 * time.Millisecond}, {500, 3 * time.Second}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("packet %d arrives as %v, want %v", i, got[i], want[i])
		}
	}
}

// TestNarrowQueues: a small packet does not wait for another
// connection's queue. In one queue it waits for all that came before.
func TestNarrowQueues(t *testing.T) {
	bulk := make([]int, 20)
	for i := range bulk {
		bulk[i] = 100
	}
	fair := through(t, pathSpec{Rate: 1000, Queue: 1000, Fair: true}, bulk, []int{10})[1][0]
	if fair.due > 300*time.Millisecond {
		t.Errorf("a queue for each: the small packet leaves after %v, want after two big ones at most", fair.due)
	}
	fifo := through(t, pathSpec{Rate: 1000, Queue: 1000}, bulk, []int{10})[1][0]
	if fifo.due < time.Second {
		t.Errorf("one queue: the small packet leaves after %v, want after a full queue of 1 s", fifo.due)
	}
	if total := 2*time.Second + 10*time.Millisecond; fifo.due > total {
		t.Errorf("one queue: the small packet leaves after %v, but all took %v", fifo.due, total)
	}
}

// TestNarrowQueueIsBounded: a sender waits for room, so no more than a queue and
// what is being served is ahead of it.
func TestNarrowQueueIsBounded(t *testing.T) {
	for _, fair := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNarrow(pathSpec{Rate: 1000, Queue: 300, Fair: fair})
			l := newLine()
			f := n.flow(l)
			var sent atomic.Int64
			var sender sync.WaitGroup
			sender.Go(func() {
				for range 10 {
					f.push(chunk{n: 100})
					sent.Add(1)
				}
			})
			synctest.Wait()
			if n := sent.Load(); n != 4 { // one in service, three wait
				t.Errorf("fair %v: %d packets were taken at once, want 4", fair, n)
			}
			sender.Wait()
			n.close()
		})
	}
}

// TestPathCarriesBytes: in order, both ways, and the end of each direction.
func TestPathCarriesBytes(t *testing.T) {
	for _, spec := range []pathSpec{
		{Delay: time.Millisecond},
		{Delay: time.Millisecond, Rate: 1e9, Queue: 100_000, Fair: true},
		{Rate: 1e9, Queue: 100_000},
	} {
		data := make([]byte, 1<<20)
		rand.Read(data)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		var far sync.WaitGroup
		far.Go(func() {
			c, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			got, err := io.ReadAll(c) // up to the end of the direction
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%+v: the far end read %d bytes of %d, %v", spec, len(got), len(data), err)
			}
			c.Write(got)
		})
		p := &path{}
		if err := p.start(pathArgs{Spec: spec, ListenAt: "127.0.0.1", Target: ln.Addr().String()}); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", p.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(data); err != nil {
			t.Error(err)
		}
		c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%+v: %d bytes of %d came back, %v", spec, len(got), len(data), err)
		}
		c.Close()
		far.Wait()
		p.ln.Close()
		for _, n := range []*narrow{p.out, p.in} {
			if n != nil {
				n.close()
			}
		}
	}
}

// TestPathPassesABreak: when the far end is gone, the near one learns it.
func TestPathPassesABreak(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &path{}
	if err := p.start(pathArgs{ListenAt: "127.0.0.1", Target: ln.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	defer p.ln.Close()
	c, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far.(*net.TCPConn).SetLinger(0)
	far.Close()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came of a broken connection", n)
	}
	ln.Close()
	refused, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if n, err := refused.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came of a target that nobody serves", n)
	}
}
