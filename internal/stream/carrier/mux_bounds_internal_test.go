// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestRefusals: above the bound of streams new ones get RST 7, below it smaller
// windows are announced in steps, and taken back as streams end.
func TestRefusals(t *testing.T) {
	s, p := scripted(t, false, Options{Incoming: 8})
	for i, want := range [][]string{
		5: {numbered(3, 0, 65536)}, // five live ones are more than half
		7: {numbered(3, 0, 16384)}, // seven more than three quarters
		8: {"05 000004 00000011 00000007"},
		9: {"05 000004 00000013 00000007"},
	} {
		p.send(opens(2*i+1, 0x4000))
		if said := p.settle(); !same(said, want) {
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
		p.send(fmt.Sprintf("05 000004 %08x 00000001", 2*i+1))
		said = append(said, p.settle()...)
	}
	if want := []string{numbered(3, 0, 65536), numbered(3, 0, 262144)}; !same(said, want) {
		t.Errorf("while streams end the session says %q, want %q", said, want)
	}
	p.send(opens(101, 0x4000), data(101, 1))
	p.quiet()
	readsByte(t, accept(t, s))
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
		p.send(opens(2*i+1, 0x4000))
		if said := p.settle(); !same(said, c.want) {
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
	runtest.Eventually(t, "only what the application holds is unread", func() bool { return budget.Unread() == 5000 })
	got, err := io.ReadAll(read)
	if len(got) != 5000 || !fault.Has(err, fault.CodeSessionLost) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := budget.Unread(); n != 0 {
		t.Errorf("%d bytes are unread for ever", n)
	}
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
			block = append(block, opens(2*(sent+i)+1, firstWindow))
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
		p.send(opens(2*i+1, 0x4000), fmt.Sprintf("05 000004 %08x 00000000", 2*i+1))
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

// TestStarvedOnce: a peer that wakes a writer again and again for which there is no
// room does not make the list of those that wait grow.
func TestStarvedOnce(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send(open1)
	st := accept(t, s)
	s.queued.Add(mostQueued)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write([]byte("x"))
		wrote <- err
	}()
	runtest.Eventually(t, "it waits", func() bool { return s.starved.n.Load() > 0 })
	for i := range 100 {
		p.send(numbered(3, 1, uint64(300000+i)))
		p.settle()
	}
	if n := s.starved.n.Load(); n != 1 {
		t.Errorf("%d wait", n)
	}
	s.queued.Add(-mostQueued)
	s.feed()
	if err := done(t, "write", wrote); err != nil {
		t.Error(err)
	}
}
