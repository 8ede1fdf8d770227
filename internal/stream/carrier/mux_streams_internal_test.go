// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestOpen: OPEN and the first bytes leave in one write, in order, and carry the
// credit that the peer announced last.
func TestOpen(t *testing.T) {
	s, p := scripted(t, false, Options{})
	open(t, s, "a")
	p.want(open2, "01 000001 00000002 61")
	p.send(numbered(3, 0, 65536))
	p.settle()
	open(t, s, "")
	p.want("02 000008 00000004 00040000 00010000")
	p.send(numbered(3, 0, 3))
	p.settle()
	var st Stream
	opened := make(chan error, 1)
	go func() {
		var err error
		st, err = s.OpenStream(t.Context(), []byte("abcd"))
		opened <- err
	}()
	p.want("02 000008 00000006 00040000 00000003", "01 000003 00000006 616263")
	p.quiet()
	p.send(numbered(3, 6, 4))
	p.want("01 000001 00000006 64")
	if err := done(t, "the open", opened); err != nil {
		t.Fatal(err)
	}
	st.Close()
	p.want("04 000000 00000006", "05 000004 00000006 00000000")
}

// TestEnds: what an application does to a stream as frames.
func TestEnds(t *testing.T) {
	const (
		fin   = "04 000000 00000002"
		rst0  = "05 000004 00000002 00000000"
		rst5  = "05 000004 00000002 00000005"
		hi    = "01 000002 00000002 6869"
		heFin = "04 000000 00000002"
		heRst = "05 000004 00000002 00000009"
	)
	write := func(st *muxStream) { st.Write([]byte("hi")) }
	closeWrite := func(st *muxStream) { st.CloseWrite() }
	closeBoth := func(st *muxStream) { st.Close() }
	reset := func(st *muxStream) { st.Reset(5) }
	type step struct {
		do   func(*muxStream)
		sent []string // by the peer
		want []string
	}
	us := func(do func(*muxStream), want ...string) step { return step{do: do, want: want} }
	he := func(sent ...string) step { return step{sent: sent} }
	for name, steps := range map[string][]step{
		"both finish, we first":              {us(write, hi), us(closeWrite, fin), he(heFin), us(closeBoth)},
		"both finish, he first":              {he(heFin), us(write, hi), us(closeWrite, fin), us(closeBoth)},
		"close, he has finished":             {he(heFin), us(write, hi), us(closeBoth, fin)},
		"close, he has not":                  {us(write, hi), us(closeBoth, fin, rst0), he(heFin)},
		"close behind CloseWrite":            {us(closeWrite, fin), us(closeBoth, rst0)},
		"reset":                              {us(write, hi), us(reset, rst5)},
		"reset behind CloseWrite":            {us(closeWrite, fin), us(reset, rst5)},
		"reset, he has finished":             {he(heFin), us(reset, rst5)},
		"reset twice":                        {us(reset, rst5), us(reset), us(closeBoth)},
		"nothing after both have ended":      {he(heFin), us(closeWrite, fin), us(reset), us(closeBoth)},
		"no answer to a reset":               {he(heRst), us(write), us(closeWrite), us(closeBoth), us(reset)},
		"no answer to a reset behind an end": {he(heFin, heRst), us(write), us(closeBoth)},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := scripted(t, false, Options{})
			st := open(t, s, "")
			p.want(open2)
			for i, step := range steps {
				if len(step.sent) > 0 {
					p.send(step.sent...)
				} else {
					step.do(st)
				}
				if said := p.settle(); !same(said, step.want) {
					t.Fatalf("step %d: the session says %q, want %q", i, said, step.want)
				}
			}
			if n := s.Info().Streams; n != 0 {
				t.Errorf("%d streams are left", n)
			}
		})
	}
}

// TestResetKeepsItsPlace: the reader gets what came before RST, and a FIN before
// RST is the end; the writer fails at once.
func TestResetKeepsItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		frames string
		text   string
		read   error
		write  error
	}{
		"behind bytes":         {data(1, 3) + "05 000004 00000001 00000004", "xxx", &ResetError{4}, &ResetError{4}},
		"behind bytes and FIN": {data(1, 3) + "04 000000 00000001 05 000004 00000001 00000000", "xxx", io.EOF, &ResetError{0}},
		"alone":                {"05 000004 00000001 00000007", "", &ResetError{7}, &ResetError{7}},
		"lost":                 {data(1, 1) + "05 000004 00000001 00000008", "x", fault.New(fault.CodeSessionLost, ""), fault.New(fault.CodeSessionLost, "")},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := scripted(t, false, Options{})
			p.send(open1, c.frames)
			p.quiet()
			st := accept(t, s)
			_, err := st.Write([]byte("a"))
			isError(t, err, c.write)
			isError(t, st.CloseWrite(), c.write)
			reads(t, st, c.text, c.read)
			st.Close()
			p.quiet()
		})
	}
}

// TestResetDropsWhatHasNoCredit and wakes the writer; what has credit goes first.
func TestResetDropsWhatHasNoCredit(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 000008 00000001 00000003 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		n, err := st.Write([]byte("abcdef"))
		if n != 3 {
			err = fmt.Errorf("%d bytes were accepted: %w", n, err)
		}
		wrote <- err
	}()
	p.want("01 000003 00000001 616263")
	st.Reset(6)
	p.want("05 000004 00000001 00000006")
	isError(t, done(t, "the write", wrote), net.ErrClosed)
	p.send(numbered(3, 1, 100)) // too late
	p.quiet()
}

// TestPeerResetWakesWriter: one that waits for credit.
func TestPeerResetWakesWriter(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 000008 00000001 00000003 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write(make([]byte, 100))
		wrote <- err
	}()
	p.want("01 000003 00000001 000000")
	p.send("05 000004 00000001 00000009")
	isError(t, done(t, "the write", wrote), &ResetError{9})
	st.Close()
	p.quiet()
}

// TestGivenUp: a write that waits for credit behind other pieces when the stream
// ends has written nothing, not less.
func TestGivenUp(t *testing.T) {
	x, p := stall(t)
	st := open(t, x.s, "")
	st.mu.Lock()
	st.limit, st.pace = 3*sendPayload+10, bulkPace(x.s)
	st.mu.Unlock()
	for range 3 {
		if n, err := st.Write(make([]byte, sendPayload)); n != sendPayload || err != nil {
			t.Fatal(n, err)
		}
	}
	wrote := make(chan int, 1)
	go func() {
		n, _ := st.Write(make([]byte, 100))
		wrote <- n
	}()
	runtest.Eventually(t, "it waits for credit", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.out.n == 3*sendPayload+100
	})
	p.send("05 000004 00000002 00000007")
	if n := done(t, "write", wrote); n != 0 {
		t.Errorf("it wrote %d bytes", n)
	}
}

// TestDeadlines of a stream that waits, and that they wake it.
func TestDeadlines(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 000008 00000001 00000000 00040000")
	st := accept(t, s)
	failed := make(chan error, 2)
	go func() { _, err := st.Read(make([]byte, 1)); failed <- err }()
	go func() { _, err := st.Write(make([]byte, 1)); failed <- err }()
	st.SetDeadline(time.Unix(1, 0))
	for range 2 {
		var timeout net.Error
		if err := done(t, "both wait no more", failed); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error(err)
		}
	}
	p.quiet() // nothing of the write was sent, nor will be
	p.send(numbered(3, 1, 100))
	p.quiet()
	st.SetDeadline(time.Time{})
	if n, err := st.Write([]byte("a")); n != 1 || err != nil {
		t.Error(n, err)
	}
	p.want("01 000001 00000001 61")
}

// TestIDs: they start anew after the last one, leaving out those in use.
func TestIDs(t *testing.T) {
	for _, client := range []bool{true, false} {
		s, p := scripted(t, client, Options{})
		first := open(t, s, "")
		p.next()
		want := []uint32{1<<32 - 3, 1<<32 - 1, 3, 5} // 1 is in use
		if !client {
			want = []uint32{1<<32 - 4, 1<<32 - 2, 4, 6}
		}
		if first.id != want[2]-2 {
			t.Fatalf("client %v: the first stream is %d", client, first.id)
		}
		s.mu.Lock()
		s.newest = want[0] - 2
		s.mu.Unlock()
		for _, id := range want {
			if st := open(t, s, ""); st.id != id {
				t.Errorf("client %v: stream %d, want %d", client, st.id, id)
			}
			p.want(opens(int(id), firstWindow))
		}
	}
}

// TestGoAway: code 0 stops new streams in that direction, others end the session.
func TestGoAway(t *testing.T) {
	s, p := scripted(t, false, Options{})
	st := open(t, s, "")
	p.want(open2)
	p.send("08 000004 00000000 00000000")
	p.quiet()
	if _, err := s.OpenStream(t.Context(), nil); !fault.Has(err, fault.CodeDraining) {
		t.Errorf("open: %v", err)
	}
	p.send(open1, data(1, 1), data(2, 1)) // streams that live go on, and the other direction
	readsByte(t, accept(t, s))
	readsByte(t, st)
	s.GoAway()
	s.GoAway()
	p.want("08 000004 00000000 00000000")
	p.send(open3)
	p.want("05 000004 00000003 00000007")
	p.quiet()

	for _, code := range []int{1, 2, 77} {
		s, p := scripted(t, true, Options{Connections: 2})
		q := p.attach(s)
		st := open(t, s, "")
		q.send(fmt.Sprintf("08 000004 00000000 %08x", code))
		done(t, "the session has ended", s.Done())
		if !fault.Has(s.why, fault.CodeSessionLost) {
			t.Errorf("GOAWAY %d ends the session with %v", code, s.why)
		}
		_, err := st.Read(make([]byte, 1))
		isError(t, err, fault.New(fault.CodeSessionLost, ""))
		p.rest()
	}
}

// TestClose says GOAWAY 2 on every connection.
func TestClose(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	s.Close()
	for _, peer := range []*peer{p, q} {
		frames := peer.rest()
		if last := frames[len(frames)-1]; digits(last) != digits("08 000004 00000000 00000002") {
			t.Errorf("the last frame is %s", last)
		}
	}
	if err := s.Attach(p.conn); !fault.Has(err, fault.CodeSessionLost) {
		t.Errorf("attach after the end: %v", err)
	}
}
