// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
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
				if said := p.settle(); !slices.EqualFunc(said, step.want, func(a, b string) bool { return digits(a) == digits(b) }) {
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

// TestCreditGrows only by a WINDOW above the newest limit.
func TestCreditGrows(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 000008 00000001 00000002 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write([]byte("abcdef"))
		wrote <- err
	}()
	p.want("01 000002 00000001 6162")
	for _, old := range []uint64{0, 1, 2} {
		p.send(numbered(3, 1, old))
		p.quiet()
	}
	p.send(numbered(3, 1, 3), numbered(3, 1, 2))
	p.want("01 000001 00000001 63")
	p.send(numbered(3, 1, 1<<40))
	p.want("01 000003 00000001 646566")
	if err := done(t, "the write", wrote); err != nil {
		t.Error(err)
	}
	st.Reset(1)
}

// TestCreditFollowsReading: nothing before a quarter of the window has been read, or
// an eighth when something is sent anyway, then all of it; nothing once the peer has
// finished.
func TestCreditFollowsReading(t *testing.T) {
	s, p := scripted(t, false, Options{})
	s.growth.Store(mostGrowth) // the window stays as it is
	p.send("02 000008 00000001 00000000 00000064", data(1, 100))
	p.quiet()
	st := accept(t, s)
	read := func(n int) {
		t.Helper()
		if _, err := io.ReadFull(st, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	read(11)
	p.quiet()
	read(14)
	p.want(numbered(3, 1, 125))
	read(12)
	p.send(numbered(6, 0, 7))
	p.want(numbered(7, 0, 7), numbered(3, 1, 137))
	read(63)
	p.want(numbered(3, 1, 200))
	p.send(data(1, 100), "04 000000 00000001")
	p.quiet()
	s.growth.Store(0)
	read(100)
	p.quiet()
	reads(t, st, "", io.EOF)
	st.Close()
	p.want("04 000000 00000001")
}

// TestRefusals: above the bound of streams new ones get RST 7, below it smaller
// windows are announced in steps, and taken back as streams end.
func TestRefusals(t *testing.T) {
	s, p := scripted(t, false, Options{Incoming: 8})
	openID := func(id int) string { return fmt.Sprintf("02 000008 %08x 00040000 00004000", id) }
	resetID := func(id int) string { return fmt.Sprintf("05 000004 %08x 00000001", id) }
	for i, want := range [][]string{
		5: {numbered(3, 0, 65536)}, // five live ones are more than half
		7: {numbered(3, 0, 16384)}, // seven more than three quarters
		8: {"05 000004 00000011 00000007"},
		9: {"05 000004 00000013 00000007"},
	} {
		p.send(openID(2*i + 1))
		if said := p.settle(); !slices.EqualFunc(said, want, func(a, b string) bool { return digits(a) == digits(b) }) {
			t.Errorf("stream %d: the session says %q, want %q", i, said, want)
		}
	}
	for range 8 {
		accept(t, s)
	}
	if n := s.Info().Streams; n != 8 {
		t.Fatalf("%d streams", n)
	}
	var said []string
	for i := range 8 {
		p.send(resetID(2*i + 1))
		said = append(said, p.settle()...)
	}
	if want := []string{numbered(3, 0, 65536), numbered(3, 0, 262144)}; !slices.EqualFunc(said, want, func(a, b string) bool { return digits(a) == digits(b) }) {
		t.Errorf("while streams end the session says %q, want %q", said, want)
	}
	p.send(openID(101), data(101, 1))
	p.quiet()
	reads1(t, accept(t, s))
}

func reads1(t testing.TB, st *muxStream) {
	t.Helper()
	if n, err := st.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
}

// TestBudgetPressure: the same by unread bytes, which sessions share.
func TestBudgetPressure(t *testing.T) {
	budget := NewBudget(400)
	s, p := scripted(t, false, Options{Budget: budget})
	other, q := scripted(t, false, Options{Budget: budget})
	q.send(open1)
	hog := accept(t, other)
	for i, c := range []struct {
		bytes int
		want  []string
	}{
		{200, nil},
		{1, []string{numbered(3, 0, 65536)}},
		{100, []string{numbered(3, 0, 16384)}},
		{98, nil},
		{1, []string{"05 000004 00000009 00000007"}},
	} {
		q.send(data(1, c.bytes))
		q.quiet()
		p.send(fmt.Sprintf("02 000008 %08x 00040000 00004000", 2*i+1))
		if said := p.settle(); !slices.EqualFunc(said, c.want, func(a, b string) bool { return digits(a) == digits(b) }) {
			t.Errorf("with %d unread the session says %q, want %q", budget.Unread(), said, c.want)
		}
	}
	own := open(t, s, "") // ours are never refused, and promise little
	p.want("02 000008 00000002 00004000 00040000")
	if n := hog.s.unread.Load(); n != budget.Unread() || n != 400 {
		t.Fatalf("%d bytes unread of %d", n, budget.Unread())
	}
	hog.Close()
	if n := budget.Unread(); n != 0 {
		t.Fatalf("%d bytes unread", n)
	}
	q.settle()
	p.send("02 000008 000000f1 00040000 00004000")
	p.settle() // this one and the announcement
	p.send("02 000008 000000f3 00040000 00040000", data(0xf3, 65536))
	p.quiet()
	own.Close()
}

// TestRefusalFlood: a peer that opens and never reads the refusals ends its
// session, and costs little memory until then.
func TestRefusalFlood(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	s := session(t, Wrap(near), false, Options{Incoming: 1})
	p := newPeer(t, far)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	block := make([]string, 0, 1000)
	sent := 0
	for ; ; sent += len(block) {
		block = block[:0]
		for i := range 1000 {
			block = append(block, fmt.Sprintf("02 000008 %08x 00040000 00040000", 2*(sent+i)+1))
		}
		if _, err := p.conn.Write(unhex(t, strings.Join(block, ""))); err != nil {
			break
		}
		if sent > 100_000 {
			t.Fatal("the session takes any number of OPENs whose refusals nobody reads")
		}
	}
	done(t, "the session has ended", s.Done())
	if !fault.Has(s.why, fault.CodeFrameInvalid) {
		t.Errorf("the session ended with %v", s.why)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d OPENs took %d bytes", sent, grown)
	}
}

// TestPingFlood: a peer that asks and never reads costs nothing, and gets the
// answer to its newest PING when it reads.
func TestPingFlood(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	s := session(t, Wrap(near), false, Options{Incoming: 1})
	p := newPeer(t, far)
	const rounds, each = 50, 1000
	for r := range rounds {
		block := make([]string, each)
		for i := range block {
			block[i] = numbered(6, 0, uint64(1+r*each+i))
		}
		p.send(block...)
	}
	pongs, queued := 0, 0
	for newest := digits(numbered(7, 0, rounds*each)); ; pongs++ {
		if digits(p.next()) == newest {
			break
		}
		s.lanes[0].mu.Lock()
		queued = max(queued, len(s.lanes[0].raw))
		s.lanes[0].mu.Unlock()
	}
	if pongs > rounds*each/2 || queued > 1000 {
		t.Errorf("%d answers for %d PINGs nobody read for, %d bytes queued", pongs, rounds*each, queued)
	}
}

// TestRapidReset: streams that are reset before anybody accepts them count as
// long as they wait to be accepted.
func TestRapidReset(t *testing.T) {
	s, p := scripted(t, false, Options{Incoming: 10})
	for i := range 1000 {
		p.send(fmt.Sprintf("02 000008 %08x 00040000 00004000 05 000004 %08[1]x 00000000", 2*i+1))
	}
	refusals := 0
	for _, f := range p.settle() {
		if strings.HasPrefix(f, "05") {
			refusals++
		}
	}
	s.mu.Lock()
	waiting := len(s.accepted)
	s.mu.Unlock()
	if waiting != 10 || refusals != 990 {
		t.Errorf("%d streams wait to be accepted, %d were refused", waiting, refusals)
	}
	for range 10 {
		reads(t, accept(t, s), "", &ResetError{0})
	}
	p.send("02 000008 0000ffff 00040000 00004000")
	p.settle()
	accept(t, s).Close()
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
	reads1(t, accept(t, s))
	reads1(t, st)
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
			p.want(fmt.Sprintf("02 000008 %08x 00040000 00040000", id))
		}
	}
}

// TestUnacceptedBytes: streams that nobody accepted give their bytes back when
// the session ends.
func TestUnacceptedBytes(t *testing.T) {
	budget := NewBudget(1 << 20)
	s, p := scripted(t, false, Options{Budget: budget})
	p.send(open1, data(1, 5000), open3, data(3, 50))
	p.quiet()
	if n := s.Info().Unread; n != 5050 || budget.Unread() != 5050 {
		t.Fatalf("%d and %d bytes unread", n, budget.Unread())
	}
	read := accept(t, s)
	p.conn.Close()
	done(t, "the session has ended", s.Done())
	eventually(t, "only what the application holds is unread", func() bool { return budget.Unread() == 5000 })
	got, err := io.ReadAll(read)
	if len(got) != 5000 || !fault.Has(err, fault.CodeSessionLost) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := budget.Unread(); n != 0 {
		t.Errorf("%d bytes are unread for ever", n)
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
