// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// stream is what an honest caller does with one dial.
type stream struct {
	up, down int64
	piece    int           // bytes at a time
	pause    time.Duration // after each piece, both ways
	stall    time.Duration // before the caller reads: a slow reader
}

// someStream draws what callers do: short questions and answers, bulk, quiet ones
// that live, and readers that take their time.
func someStream(r *rand.Rand, live time.Duration) stream {
	size := func(low, high int64) int64 { return low + r.Int64N(high-low) }
	switch n := r.IntN(100); {
	case n < 70:
		return stream{up: size(0, 8<<10), down: size(0, 64<<10), piece: 4 << 10}
	case n < 80:
		return stream{up: size(1<<20, 4<<20), down: size(1<<20, 8<<20), piece: 64 << 10}
	case n < 95:
		pieces := int64(live / (100 * time.Millisecond))
		return stream{up: 50 * pieces, down: 50 * pieces, piece: 50, pause: 100 * time.Millisecond}
	default:
		return stream{up: size(0, 1<<10), down: size(2<<20, 4<<20), piece: 64 << 10, stall: live}
	}
}

// head is what a caller says first: who it is and what follows.
type head struct {
	ID       uint64
	Up, Down int64
	Piece    int64
	Pause    int64
}

// patience bounds a stream that should go on: longer than anything takes.
const patience = 3 * time.Minute

// target is where the streams of a cluster come out.
type target struct {
	cluster int
	port    int
	ln      net.Listener
	wg      sync.WaitGroup
}

func startTarget(h *history, cluster int) (*target, error) {
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	t := &target{cluster: cluster, port: ln.Addr().(*net.TCPAddr).Port, ln: ln}
	t.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				t.wg.Go(func() { t.serve(h, conn) })
			}
		}
	})
	return t, nil
}

func (t *target) close() {
	t.ln.Close()
	t.wg.Wait()
}

// serve takes the bytes of a stream and sends its own, at the same time.
func (t *target) serve(h *history, conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReaderSize(conn, 64<<10)
	var first head
	if binary.Read(in, binary.BigEndian, &first) != nil {
		return // a dial that was given up
	}
	a := h.arrived(first.ID, t.cluster)
	// Its own end comes when all is taken and noted: a caller that has it may ask.
	sent := make(chan error, 1)
	t.wg.Go(func() {
		sent <- send(conn, newPattern(first.ID, 2), first.Down, stream{piece: int(first.Piece), pause: time.Duration(first.Pause)})
	})
	defer func() {
		if <-sent == nil {
			conn.(*net.TCPConn).CloseWrite()
		}
	}()
	got, changed, err := receive(in, newPattern(first.ID, 1), first.Up)
	if changed {
		h.wrong("stream %d: the target got other bytes after %d", first.ID, got)
	}
	if err == nil {
		// The caller ends its side, and there is nothing behind it.
		if n, _ := in.Read(make([]byte, 1)); n > 0 {
			h.wrong("stream %d: the target got more than was sent", first.ID)
		}
	}
	h.mu.Lock()
	if a.got, a.whole = got, err == nil; err != nil {
		a.why = err.Error()
	}
	h.mu.Unlock()
	if err != nil {
		conn.Close() // so that the sender ends, too
	}
}

// send writes so many bytes of a pattern.
func send(w io.Writer, p *pattern, n int64, s stream) error {
	b := make([]byte, max(1, min(s.piece, 64<<10)))
	for n > 0 {
		piece := b[:min(int64(len(b)), n)]
		p.fill(piece)
		if _, err := w.Write(piece); err != nil {
			return err
		}
		n -= int64(len(piece))
		time.Sleep(s.pause)
	}
	return nil
}

// receive reads so many bytes and compares each.
func receive(r io.Reader, p *pattern, n int64) (got int64, changed bool, err error) {
	b, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for got < n {
		k, err := r.Read(b[:min(int64(len(b)), n-got)])
		p.fill(want[:k])
		if string(b[:k]) != string(want[:k]) {
			return got, true, errors.New("other bytes")
		}
		got += int64(k)
		if err != nil && got < n {
			return got, false, err
		}
	}
	return got, false, nil
}

// address of a dial: one that no other dial has, so that its record can be found.
// The kernel takes all of 127.0.0.0/8 for this machine.
func address(id uint64, port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 128+id>>16&127, id>>8&255, id&255, port)
}

// call is one dial of an honest caller, from its begin to its end.
func (w *world) call(ctx context.Context, c *cluster, s stream) event {
	id := w.history.begin(c.number)
	e := event{id: id, cluster: c.number, asked: address(id, c.target.port), begin: time.Now()}
	var got int64
	e.how, got, e.why = w.exchange(ctx, c, s, e)
	e.end = time.Now()
	w.history.end(e, s.up, got)
	return e
}

func (w *world) exchange(ctx context.Context, c *cluster, s stream, e event) (how ending, got int64, why string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return notAsked, 0, err.Error()
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", e.asked, e.asked)
	in := bufio.NewReaderSize(conn, 64<<10)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return unheard, 0, err.Error()
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return refused, 0, res.Status
	}
	failed := make(chan error, 1)
	go func() {
		err := binary.Write(conn, binary.BigEndian, head{e.id, s.up, s.down, int64(s.piece), int64(s.pause)})
		if err == nil {
			err = send(conn, newPattern(e.id, 1), s.up, s)
		}
		if err == nil {
			err = conn.(*net.UnixConn).CloseWrite()
		}
		failed <- err
	}()
	if s.stall > 0 {
		run.Wait(ctx, s.stall)
	}
	got, changed, err := receive(in, newPattern(e.id, 2), s.down)
	if changed {
		w.history.wrong("stream %d of cluster %d: the caller got other bytes after %d", e.id, c.number, got)
	}
	if err == nil {
		var n int
		if n, err = in.Read(make([]byte, 1)); n > 0 {
			w.history.wrong("stream %d: the caller got more than was sent", e.id)
		} else if err == io.EOF {
			err = nil
		}
	}
	if err != nil {
		conn.Close() // so that the sender ends, too
	}
	sent := <-failed
	if err == nil {
		err = sent
	}
	if err != nil {
		return cutOff, got, fmt.Sprintf("%v after %d of %d bytes; up %d: %v", err, got, s.down, s.up, sent)
	}
	return whole, got, ""
}

// load dials all the time until ctx ends; what was begun is finished.
func (w *world) load(ctx context.Context, c *cluster, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(c.number)))
	for ctx.Err() == nil {
		e := w.call(context.WithoutCancel(ctx), c, someStream(r, w.pace.fault))
		wait := time.Duration(20+r.IntN(100)) * time.Millisecond
		if e.how == notAsked || e.how == refused {
			wait = 200 * time.Millisecond
		}
		run.Wait(ctx, wait)
	}
}
