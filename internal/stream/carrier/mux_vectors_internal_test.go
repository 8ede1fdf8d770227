// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// specification is the page that the tests of this package hold the code to.
const specification = "../../../docs/reference/mux.md"

// vectorRows gives the rows of the page's table of vectors: a name and bytes.
func vectorRows(t testing.TB) (names []string, rows map[string][]byte) {
	t.Helper()
	page := must[[]byte](t)(os.ReadFile(specification))
	_, table, found := bytes.Cut(page, []byte("\n## Vectors\n"))
	if !found {
		t.Fatalf("%s has no section called Vectors", specification)
	}
	table, _, _ = bytes.Cut(table, []byte(lossSection))
	rows = map[string][]byte{}
	for _, m := range regexp.MustCompile("(?m)^\\| (.+) \\| `([0-9a-f ]+)` \\|$").FindAllSubmatch(table, -1) {
		name := strings.ReplaceAll(string(m[1]), "`", "")
		names = append(names, name)
		rows[name] = unhex(t, string(m[2]))
	}
	if lines := bytes.Count(table, []byte("\n| ")) - 2; lines != len(rows) {
		t.Fatalf("%d of %d rows of the table can be read", len(rows), lines)
	}
	return names, rows
}

// written is a session whose every single write the test sees: its socket keeps
// the bounds of writes.
type written struct {
	t    testing.TB
	s    *muxSession
	a, b net.Conn // the far ends
}

func writing(t testing.TB, client bool, incoming int) *written {
	t.Helper()
	noLeak(t)
	w := &written{t: t}
	near, far := packets(t)
	w.s = session(t, Wrap(near), client, Options{Incoming: incoming, Connections: 2})
	w.s.pinged.Store(int64(time.Hour)) // no PING but the first
	w.a = far
	if first := w.wrote(w.a); len(first) != 16 || first[0] != framePing {
		t.Fatalf("a session begins with %x", first)
	}
	return w
}

func packets(t testing.TB) (near, far net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "packets")
		conns[i] = must[net.Conn](t)(net.FileConn(f))
		f.Close()
		conns[i].SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

// wrote is the session's next write on a connection.
func (w *written) wrote(conn net.Conn) []byte {
	w.t.Helper()
	b := make([]byte, 1<<18)
	n, err := conn.Read(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return b[:n]
}

// gets gives the session one frame, in the pieces in which it reads.
func (w *written) gets(conn net.Conn, frame string) {
	w.t.Helper()
	b := unhex(w.t, frame)
	pieces := [][]byte{b[:headerSize]}
	if len(b) > headerSize {
		pieces = append(pieces, slices.Collect(slices.Chunk(b[headerSize:], 1<<mostChunk))...)
	}
	for _, piece := range pieces {
		if _, err := conn.Write(piece); err != nil {
			w.t.Fatal(err)
		}
	}
}

// second adds connection B.
func (w *written) second() *lane {
	w.t.Helper()
	near, far := packets(w.t)
	if err := w.s.Attach(Wrap(near)); err != nil {
		w.t.Fatal(err)
	}
	w.b = far
	w.wrote(w.b) // PING
	return w.s.lanes[1]
}

func (w *written) write(st *muxStream, text string) {
	w.t.Helper()
	if _, err := st.Write([]byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

// frameSeen is a frame as the page names it.
type frameSeen struct {
	kind    byte
	id      uint32
	payload string
}

func pack(numbers ...any) string {
	var b []byte
	for _, n := range numbers {
		b, _ = binary.Append(b, binary.BigEndian, n)
	}
	return string(b)
}

type vector struct {
	frames []frameSeen
	emit   func(t testing.TB) []byte // what a session writes
}

func vectors() map[string]vector {
	const first = uint32(262144)
	opened := frameSeen{frameOpen, 2, pack(first, first)}
	one := func(kind byte, id uint32, payload string) []frameSeen { return []frameSeen{{kind, id, payload}} }
	return map[string]vector{
		"OPEN 2, grant 262144, assumed 262144": {[]frameSeen{opened}, func(t testing.TB) []byte { return emitOpen(t, "") }},
		"the same, with the first DATA hi":     {[]frameSeen{opened, {frameData, 2, "hi"}}, func(t testing.TB) []byte { return emitOpen(t, "hi") }},
		"DATA 1 hello":                         {one(frameData, 1, "hello"), emitData},
		"WINDOW 2 up to 393216":                {one(frameWindow, 2, pack(uint64(393216))), emitWindow},
		"WINDOW, new streams begin with 65536": {one(frameWindow, 0, pack(uint64(65536))), emitAnnouncement},
		"FIN 2":                                {one(frameFin, 2, ""), emitFin},
		"RST 4, refused":                       {one(frameRst, 4, pack(uint32(7))), emitRefusal},
		"PING":                                 {one(framePing, 0, "\x01\x02\x03\x04\x05\x06\x07\x08"), emitPing},
		"PONG":                                 {one(framePong, 0, "\x01\x02\x03\x04\x05\x06\x07\x08"), emitPong},
		"GOAWAY, no new streams":               {one(frameGoAway, 0, pack(uint32(0))), emitGoAway},
		"close of stream 2 whose peer has not finished": {[]frameSeen{{frameFin, 2, ""}, {frameRst, 2, pack(uint32(0))}}, emitClose},
		"on B: MOVE 2 from 65520, DATA x":               {[]frameSeen{{frameMove, 2, pack(uint64(65520))}, {frameData, 2, "x"}}, emitMove},
		"on B: MOVE 2 from 5, and again the FIN that was sent on A": {
			[]frameSeen{{frameMove, 2, pack(uint64(5))}, {frameFin, 2, ""}}, emitFinAgain},
		"MOVED 2, the first": {one(frameMoved, 2, pack(uint64(1))), emitMoved},
		"LEAVE":              {one(frameLeave, 0, ""), emitLeave},
		"CONNECTIONS 2":      {one(frameConnections, 0, pack(uint32(2))), emitConnections},
	}
}

// TestVectors holds the code to the page: the parser reads each row as the page
// names it, and a session that does what the row names writes these very bytes
// in one write.
func TestVectors(t *testing.T) {
	names, rows := vectorRows(t)
	known := vectors()
	for name := range known {
		if !slices.Contains(names, name) {
			t.Errorf("the page has no row %q", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			v, ok := known[name]
			if !ok {
				t.Fatal("nothing tests this row of the page")
			}
			if got := parsed(t, rows[name]); !slices.Equal(got, v.frames) {
				t.Errorf("parsed %+v, want %+v", got, v.frames)
			}
			if got := v.emit(t); !bytes.Equal(got, rows[name]) {
				t.Errorf("the session writes\n%x, the page says\n%x", got, rows[name])
			}
		})
	}
}

// parsed reads frames with the code's own parser.
func parsed(t testing.TB, b []byte) (frames []frameSeen) {
	t.Helper()
	for r := bytes.NewReader(b); r.Len() > 0; {
		var head [headerSize]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatal(err)
		}
		h, isKnown, err := parseHeader(&head)
		if err != nil || !isKnown {
			t.Fatalf("%x: known %v, %v", head, isKnown, err)
		}
		payload := make([]byte, h.length)
		if _, err := io.ReadFull(r, payload); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frameSeen{h.kind, h.id, string(payload)})
	}
	return frames
}

func emitOpen(t testing.TB, first string) []byte {
	w := writing(t, false, 10)
	open(t, w.s, first)
	return w.wrote(w.a)
}

func emitData(t testing.TB) []byte {
	w := writing(t, true, 10)
	st := open(t, w.s, "")
	w.wrote(w.a)
	w.write(st, "hello")
	return w.wrote(w.a)
}

func emitWindow(t testing.TB) []byte {
	w := writing(t, true, 10)
	w.gets(w.a, open2)
	w.gets(w.a, data(2, 65536))
	w.gets(w.a, data(2, 65536))
	w.gets(w.a, numbered(6, 0, 1))
	w.wrote(w.a) // everything has come, so one Read gives it
	if n, err := accept(t, w.s).Read(make([]byte, 131072)); n != 131072 {
		t.Fatal(n, err)
	}
	return w.wrote(w.a)
}

func emitAnnouncement(t testing.TB) []byte {
	w := writing(t, false, 4)
	for id := 1; id <= 7; id += 2 {
		w.gets(w.a, opens(id, firstWindow))
	}
	for range 4 {
		accept(t, w.s)
	}
	w.s.lanes[0].kick() // it would leave with the next write
	return w.wrote(w.a)
}

func emitFin(t testing.TB) []byte {
	w := writing(t, false, 10)
	st := open(t, w.s, "")
	w.wrote(w.a)
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return w.wrote(w.a)
}

func emitRefusal(t testing.TB) []byte {
	w := writing(t, true, 10)
	w.s.GoAway()
	w.wrote(w.a)
	w.gets(w.a, "02 000008 00000004 00040000 00040000")
	return w.wrote(w.a)
}

// emitPing puts the page's eight bytes in place of the sender's own.
func emitPing(t testing.TB) []byte {
	w := writing(t, false, 10)
	w.s.lanes[0].ping()
	got := w.wrote(w.a)
	if len(got) == headerSize+8 {
		copy(got[headerSize:], "\x01\x02\x03\x04\x05\x06\x07\x08")
	}
	return got
}

func emitPong(t testing.TB) []byte {
	w := writing(t, false, 10)
	w.gets(w.a, "06 000008 00000000 0102030405060708")
	return w.wrote(w.a)
}

func emitGoAway(t testing.TB) []byte {
	w := writing(t, false, 10)
	w.s.GoAway()
	return w.wrote(w.a)
}

func emitClose(t testing.TB) []byte {
	w := writing(t, false, 10)
	st := open(t, w.s, "")
	w.wrote(w.a)
	st.Close()
	return w.wrote(w.a)
}

func emitMove(t testing.TB) []byte {
	w := writing(t, false, 10)
	b := w.second()
	st := open(t, w.s, strings.Repeat("a", 32760))
	w.gets(w.a, numbered(3, 2, 262144)) // the peer knows the stream
	w.write(st, strings.Repeat("b", 32760))
	for n := 0; n < 65520; {
		for _, f := range parsed(t, w.wrote(w.a)) {
			if f.kind == frameData {
				n += len(f.payload)
			}
		}
	}
	w.gets(w.a, numbered(6, 0, 1))
	w.wrote(w.a) // it has read the WINDOW
	travel(st, b)
	w.write(st, "x")
	return w.wrote(w.b)
}

// emitFinAgain: MOVE may have overtaken the FIN on A.
func emitFinAgain(t testing.TB) []byte {
	w := writing(t, false, 10)
	b := w.second()
	st := open(t, w.s, "hello")
	w.wrote(w.a)
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := parsed(t, w.wrote(w.a)); len(got) != 1 || got[0].kind != frameFin {
		t.Fatalf("on A the session writes %+v", got)
	}
	w.gets(w.a, numbered(3, 2, 262144)) // the peer knows the stream
	w.gets(w.a, numbered(6, 0, 1))
	w.wrote(w.a) // it has read the WINDOW
	travel(st, b)
	st.send()
	return w.wrote(w.b)
}

func emitMoved(t testing.TB) []byte {
	w := writing(t, true, 10)
	w.second()
	w.gets(w.a, open2)
	w.gets(w.a, data(2, 65520))
	accept(t, w.s)
	w.gets(w.b, numbered(9, 2, 65520))
	return w.wrote(w.a)
}

func emitLeave(t testing.TB) []byte {
	w := writing(t, true, 10)
	leave(w.s, w.second())
	w.s.retire(w.s.now())
	return w.wrote(w.b)
}

func emitConnections(t testing.TB) []byte {
	w := writing(t, false, 10)
	st := open(t, w.s, "")
	w.wrote(w.a)
	w.s.place(st, true, w.s.now())
	return w.wrote(w.a)
}
