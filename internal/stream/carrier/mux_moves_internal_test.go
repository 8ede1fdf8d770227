// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// text is a DATA frame of stream 1 with letters.
func text(letters string) string { return fmt.Sprintf("01 %06x 00000001 %x", len(letters), letters) }

func move(at int) string { return numbered(9, 1, uint64(at)) }

// TestMoves: the peer moves its direction; the reader gets every byte in order,
// and MOVED comes when the last byte before MOVE has come, no sooner.
func TestMoves(t *testing.T) {
	const (
		fin  = "04 000000 00000001"
		rst5 = "05 000004 00000001 00000005"
	)
	type step struct {
		line
		moved int // -1: the session says nothing, else how many MOVEs are done
	}
	quiet := func(l line) step { return step{l, -1} }
	c := func(frames ...string) line { return line{'C', strings.Join(frames, " ")} }
	for name, script := range map[string]struct {
		steps []step
		text  string
		err   error
	}{
		"at once":                  {[]step{quiet(a(text("ab"))), {b(move(2), text("cd"), fin), 1}}, "abcd", io.EOF},
		"before the first byte":    {[]step{{b(move(0), text("ab"), fin), 1}}, "ab", io.EOF},
		"bytes are under way":      {[]step{quiet(b(move(4), text("ef"))), quiet(a(text("abc"))), {a(text("d")), 1}, quiet(b(text("gh"), fin))}, "abcdefgh", io.EOF},
		"nothing came before":      {[]step{quiet(b(move(3), text("d"))), {a(text("abc")), 1}, quiet(b(fin))}, "abcd", io.EOF},
		"an early FIN":             {[]step{quiet(b(move(2), text("c"), fin)), {a(text("ab")), 1}}, "abc", io.EOF},
		"an early FIN and RST":     {[]step{quiet(b(move(2), text("c"), fin, rst5)), quiet(a(text("ab")))}, "abc", io.EOF},
		"an early RST":             {[]step{quiet(b(move(2), text("c"), rst5)), quiet(a(text("ab")))}, "abc", &ResetError{5}},
		"RST on a foreign one":     {[]step{quiet(a(text("ab"))), quiet(b(rst5))}, "ab", &ResetError{5}},
		"RST 8 on a foreign one":   {[]step{quiet(a(text("ab"))), quiet(b("05 000004 00000001 00000008"))}, "ab", lostConnection()},
		"RST on a third one":       {[]step{quiet(b(move(9), text("c"))), quiet(a(text("ab"))), quiet(c(rst5))}, "ab", &ResetError{5}},
		"FIN overtaken by its own": {[]step{quiet(a(text("ab"))), {b(move(2), fin), 1}, quiet(a(fin))}, "ab", io.EOF},
		"FIN overtakes its own":    {[]step{quiet(a(text("ab"), fin)), {b(move(2), fin), 1}}, "ab", io.EOF},
		"FIN between MOVE and FIN": {[]step{quiet(a(text("ab"))), {b(move(2)), 1}, quiet(a(fin)), quiet(b(fin))}, "ab", io.EOF},
		"a chain": {[]step{
			quiet(a(text("a"))), {b(move(1), text("b")), 1}, {c(move(2), text("c")), 2}, {a(move(3), text("d")), 3}, quiet(a(fin)),
		}, "abcd", io.EOF},
		"a chain of early ones": {[]step{
			quiet(b(move(2), text("cd"))), {a(text("ab")), 1}, quiet(c(move(6), text("gh"), fin)), {b(text("ef")), 2},
		}, "abcdefgh", io.EOF},
		"twice without a byte": {[]step{{b(move(0)), 1}, {c(move(0)), 2}, {a(move(0), text("a"), fin), 3}}, "a", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			s, peers := connected(t, false, "ABC")
			first := peers['A']
			first.send(open1)
			first.settle()
			for i, step := range script.steps {
				peers[step.on].send(step.frames)
				peers[step.on].settleAll(peers)
				var want []string
				if step.moved >= 0 {
					want = []string{digits(numbered(10, 1, uint64(step.moved)))}
				}
				if said := drained(peers); !slices.Equal(said, want) {
					t.Fatalf("step %d: the session says %q, want %q", i, said, want)
				}
			}
			st := accept(t, s)
			reads(t, st, script.text, script.err)
			st.Close()
			if n := s.budget.Unread(); n != 0 {
				t.Errorf("%d bytes are unread", n)
			}
			runtest.Eventually(t, "the stream is gone", func() bool { return s.Info().Streams == 0 })
		})
	}
}

// TestMoveOfClosed: a direction that nobody reads any more can move all the same.
func TestMoveOfClosed(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	p.send(open1, text("ab"))
	p.settle()
	st := accept(t, s)
	p.settle()
	release := halt(s.lanes[0])
	st.Close()
	q.send(move(5), text("fg"))
	q.quiet()
	p.send(text("cde"), "63 000000 00000000")
	runtest.Eventually(t, "the stream is read on B", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.receiver.lane == s.lanes[1] && st.offset == 7
	})
	q.send(text("hi"))
	q.quiet()
	release()
	p.want(numbered(10, 1, 1), "04 000000 00000001", "05 000004 00000001 00000000")
	p.quiet()
	q.quiet()
	if n := s.budget.Unread(); n != 0 {
		t.Errorf("%d bytes are unread for ever", n)
	}
}

// TestOurMove: our direction moves when it may, once at a time.
func TestOurMove(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 3})
	q, r := p.attach(s), p.attach(s)
	s.mu.Lock()
	lanes := slices.Clone(s.lanes)
	s.mu.Unlock()
	st := open(t, s, "a")
	p.want(open2, "01 000001 00000002 61")
	to := func(i int) {
		travel(st, lanes[i])
		st.send()
	}
	write := func(text string) {
		t.Helper()
		if _, err := st.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	to(1)
	p.quiet() // MOVE could overtake OPEN
	q.quiet()
	write("b")
	p.want("01 000001 00000002 62")
	p.send(numbered(3, 2, 1<<20))
	q.want(numbered(9, 2, 2))
	write("c")
	q.want("01 000001 00000002 63")
	to(2)
	write("d")
	q.want("01 000001 00000002 64")
	for _, other := range []uint64{0, 2, 1 << 63} { // not this move
		p.send(numbered(10, 2, other))
		p.settle()
	}
	r.quiet()
	p.send(numbered(10, 2, 1))
	r.want(numbered(9, 2, 4))
	write("e")
	r.want("01 000001 00000002 65")
	st.CloseWrite()
	r.want("04 000000 00000002")
	to(0) // the connection is left: FIN comes again
	r.quiet()
	q.send(numbered(10, 2, 2))
	p.want(numbered(9, 2, 5), "04 000000 00000002")
	p.send("04 000000 00000002")
	p.quiet()
	if n := s.Info().Streams; n != 0 {
		t.Errorf("%d streams", n)
	}
}
