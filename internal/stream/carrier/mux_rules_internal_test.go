// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// script is what a peer sends, connection by connection: each line is sent and
// read by the session before the next.
type script []line

type line struct {
	on     byte // 'A', 'B' or 'C'
	frames string
}

func a(frames ...string) line { return line{'A', strings.Join(frames, " ")} }
func b(frames ...string) line { return line{'B', strings.Join(frames, " ")} }

// play gives the session all lines but the last, and then the last.
func (sc script) play(t testing.TB, peers map[byte]*peer) {
	t.Helper()
	for i, l := range sc {
		peers[l.on].send(l.frames)
		if i < len(sc)-1 {
			peers[l.on].settle()
		}
	}
}

// violations are all ways to break the page's rules, as what a client sends.
func violations() map[string]script {
	out := map[string]script{
		"DATA longer than 65536":           {a("01 010001 00000001")},
		"an unknown type longer than that": {a("63 010001 00000000")},
		"OPEN longer than that":            {a("02 ffffff 00000001")},
		"DATA without a byte":              {a(open1), a("01 000000 00000001")},

		"OPEN of the wrong parity": {a(open2)},
		"OPEN that is open":        {a(open1), a(open1)},
		"OPEN that is open, on B":  {a(open1), b(open1)},
		"OPEN with a large grant":  {a("02 000008 00000001 00040001 00040000")},
		"OPEN that assumes much":   {a("02 000008 00000001 00040000 00040001")},

		"DATA beyond the credit":                  {a("02 000008 00000001 00040000 00000010", data(1, 16)), a(data(1, 1))},
		"DATA beyond the credit, in one frame":    {a("02 000008 00000001 00040000 00000010"), a(data(1, 17))},
		"DATA beyond the credit, in large frames": {a(open1, data(1, 65536), data(1, 65536), data(1, 65536)), a(data(1, 65536)), a(data(1, 1))},
		"DATA without any credit":                 {a("02 000008 00000001 00040000 00000000"), a(data(1, 1))},
		"early DATA beyond the credit": {a("02 000008 00000001 00040000 00000010"),
			b(numbered(9, 1, 8), data(1, 8)), b(data(1, 9))},
		"DATA behind FIN": {a(open1, "04 000000 00000001"), a(data(1, 1))},

		"DATA on a connection that is not its own":      {a(open1), b(data(1, 1))},
		"DATA where the stream was":                     {a(open1), b(numbered(9, 1, 0)), a(data(1, 1))},
		"DATA behind MOVE on the old connection":        {a(open1, data(1, 4)), b(numbered(9, 1, 8)), a(data(1, 5))},
		"DATA behind an early FIN":                      {a(open1), b(numbered(9, 1, 8), "04 000000 00000001"), b(data(1, 1))},
		"MOVE on the connection where the stream is":    {a(open1), a(numbered(9, 1, 0))},
		"MOVE below what has come":                      {a(open1, data(1, 4)), b(numbered(9, 1, 3))},
		"MOVE while it moves":                           {a(open1), b(numbered(9, 1, 8)), b(numbered(9, 1, 8))},
		"MOVE to a third connection while it moves":     {a(open1), b(numbered(9, 1, 8)), {'C', numbered(9, 1, 9)}},
		"MOVE back before what was to come has come":    {a(open1), b(numbered(9, 1, 8)), a(numbered(9, 1, 8))},
		"MOVE from an offset that no stream reaches":    {a(open1), b(numbered(9, 1, 1<<63))},
		"MOVE back to before what came on B":            {a(open1, data(1, 2)), b(numbered(9, 1, 2), data(1, 2)), a(numbered(9, 1, 3))},
		"a violation behind frames that are to be read": {a(open1, data(1, 100), "04 000000 00000001", "01 000000 00000001")},
	}
	for kind, least := range map[byte]int{2: 8, 3: 8, 5: 4, 9: 8, 10: 8} {
		out[fmt.Sprintf("type %d with too little payload", kind)] = script{a(open1), a(fmt.Sprintf("%02x %06x 00000001", kind, least-1))}
	}
	for kind, least := range map[byte]int{3: 8, 6: 8, 7: 8, 8: 4, 12: 4} {
		out[fmt.Sprintf("type %d of the session with too little payload", kind)] = script{a(fmt.Sprintf("%02x %06x 00000000", kind, least-1))}
	}
	for kind, least := range map[byte]int{1: 1, 2: 8, 4: 0, 5: 4, 9: 8, 10: 8} {
		out[fmt.Sprintf("type %d without a stream", kind)] = script{a(fmt.Sprintf("%02x %06x 00000000", kind, least))}
	}
	for kind, least := range map[byte]int{6: 8, 7: 8, 8: 4, 11: 0, 12: 4} {
		out[fmt.Sprintf("type %d with a stream", kind)] = script{a(open1), a(fmt.Sprintf("%02x %06x 00000001", kind, least))}
	}
	return out
}

// TestViolations: each ends the session with frame_invalid, all streams with it,
// and says GOAWAY 1 on every connection.
func TestViolations(t *testing.T) {
	for name, sc := range violations() {
		t.Run(name, func(t *testing.T) {
			s, peers := connected(t, false, "ABC")
			first := peers['A']
			mine := open(t, s, "")
			first.want(open2)
			sc.play(t, peers)
			refused(t, s, peers['A'], peers['B'], peers['C'])
			_, err := mine.Read(make([]byte, 1))
			if !fault.Has(err, fault.CodeSessionLost) {
				t.Errorf("a stream of the session: %v", err)
			}
			if _, err := s.AcceptStream(t.Context()); !fault.Has(err, fault.CodeSessionLost) {
				t.Errorf("accept: %v", err)
			}
			if n := s.budget.Unread(); n != 0 {
				t.Errorf("%d bytes stay unread for ever", n)
			}
		})
	}
}

// TestViolationsAgainstClient: what a server may not do and a client may.
func TestViolationsAgainstClient(t *testing.T) {
	for name, frames := range map[string]string{"OPEN of the wrong parity": open1, "OPEN of id 0": "02 000008 00000000"} {
		t.Run(name, func(t *testing.T) {
			s, p := scripted(t, true, Options{})
			p.send(frames)
			refused(t, s, p)
		})
	}
}

// tolerated is what the page says is read and has no effect.
func tolerated() map[string]script {
	out := map[string]script{
		"the type 0":                         {a("00 000003 00000000 616263")},
		"a type of the future":               {a("0d 000000 ffffffff")},
		"a type of the future with bytes":    {a("ff 010000 00000001" + strings.Repeat("01", 65536))},
		"DATA of an unknown stream":          {a(data(9, 1)), a(data(9, 65536))},
		"DATA of a stream of ours, unknown":  {a(data(8, 1))},
		"WINDOW of an unknown stream":        {a(numbered(3, 9, 1))},
		"FIN of an unknown stream":           {a("04 000000 00000009")},
		"RST of an unknown stream":           {a("05 000004 00000009 00000001")},
		"MOVE of an unknown stream":          {a(numbered(9, 9, 1))},
		"MOVED of an unknown stream":         {a(numbered(10, 9, 1))},
		"MOVED that nobody asked for":        {a(open1), a(numbered(10, 1, 0)), a(numbered(10, 1, 5))},
		"WINDOW below the credit":            {a(open1), a(numbered(3, 1, 1)), a(numbered(3, 1, 0))},
		"WINDOW that no number holds":        {a(open1), a(numbered(3, 1, 1<<64-1)), a(numbered(3, 1, 1<<63)), a(numbered(3, 1, 1<<62))},
		"FIN twice":                          {a(open1), a("04 000000 00000001"), a("04 000000 00000001")},
		"FIN on a foreign connection":        {a(open1), b("04 000000 00000001")},
		"PONG of the future":                 {a(numbered(7, 0, 1<<63)), a(numbered(7, 0, 1<<62)), a(numbered(7, 0, 0))},
		"GOAWAY twice":                       {a("08 000004 00000000 00000000"), a("08 000004 00000000 00000000")},
		"CONNECTIONS without a way to dial":  {a("0c 000004 00000000 ffffffff"), a("0c 000004 00000000 00000000")},
		"announcements of all sizes":         {a(numbered(3, 0, 0)), a(numbered(3, 0, 1<<64-1)), a(numbered(3, 0, 262144))},
		"frames behind RST of their stream":  {a(open1), a("05 000004 00000001 00000003"), a(data(1, 1)), a("04 000000 00000001", numbered(3, 1, 1<<30))},
		"RST twice":                          {a(open1), a("05 000004 00000001 00000003", "05 000004 00000001 00000003")},
		"an id again after its end":          {a(open1), a("05 000004 00000001 00000003"), a(open1)},
		"OPEN, FIN, RST and OPEN in a write": {a(open1, "04 000000 00000001", "05 000004 00000001 00000000", open1)},
	}
	for kind, payload := range map[byte]string{3: "0000000000000000", 4: "", 5: "00000000", 9: "0000000000000000", 10: "0000000000000000"} {
		extra := payload + "6162636465"
		out[fmt.Sprintf("type %d with a longer payload", kind)] = script{a(fmt.Sprintf("%02x %06x 00000009 %s", kind, len(extra)/2, extra))}
	}
	for kind, payload := range map[byte]string{7: "0000000000000000", 8: "00000000", 12: "00000000"} {
		extra := payload + strings.Repeat("61", 5000)
		out[fmt.Sprintf("type %d of the session with a longer payload", kind)] = script{a(fmt.Sprintf("%02x %06x 00000000 %s", kind, len(extra)/2, extra))}
	}
	return out
}

// TestTolerated: the session lives, says nothing about it, and the next stream works.
func TestTolerated(t *testing.T) {
	for name, sc := range tolerated() {
		t.Run(name, func(t *testing.T) {
			s, peers := connected(t, false, "AB")
			sc.play(t, peers)
			for _, p := range peers {
				p.quiet()
			}
			peers['A'].send(opens(0xf1, firstWindow), data(0xf1, 3), "04 000000 000000f1")
			for st := accept(t, s); ; st = accept(t, s) {
				if st.id == 0xf1 {
					reads(t, st, "xxx", io.EOF)
					break
				}
			}
		})
	}
}

// TestLongerFrames: what follows the known part of a payload is ignored, the
// known part is not.
func TestLongerFrames(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 00000b 00000001 00000002 00040000 616263", "01 000002 00000001 6869")
	p.send("06 00000a 00000000 0000000000000099 6162")
	p.want(numbered(7, 0, 0x99))
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write([]byte("abc"))
		wrote <- err
	}()
	p.want("01 000002 00000001 6162")
	p.send("03 000009 00000001 0000000000000003 61")
	p.want("01 000001 00000001 63")
	if err := done(t, "the write", wrote); err != nil {
		t.Error(err)
	}
	p.send("04 000003 00000001 616263")
	reads(t, st, "hi", io.EOF)
	st2 := open(t, s, "")
	p.want(open2)
	p.send("05 000006 00000002 00000005 6162")
	reads(t, st2, "", &ResetError{5})
	p.send("08 000006 00000000 00000000 6162")
	p.quiet()
	if _, err := s.OpenStream(t.Context(), nil); !fault.Has(err, fault.CodeDraining) {
		t.Errorf("open after GOAWAY: %v", err)
	}
}
