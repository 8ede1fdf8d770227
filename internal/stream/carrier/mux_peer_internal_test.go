// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// peer is the other end of one connection, written by hand: it knows the bytes
// of docs/reference/mux.md and nothing of the code that is tested.
type peer struct {
	t     testing.TB
	conn  net.Conn
	in    *bufio.Reader
	pings int
	heard []string // kept by settleAll
}

// Frames that many tests begin with. The peer is a client unless said otherwise.
const (
	open1 = "02 000008 00000001 00040000 00040000"
	open3 = "02 000008 00000003 00040000 00040000"
	open2 = "02 000008 00000002 00040000 00040000"
)

// scripted is a session, server or client, whose peer is a test.
func scripted(t testing.TB, client bool, o Options) (*muxSession, *peer) {
	t.Helper()
	noLeak(t)
	near, far := pair(t, false)
	if o.Incoming == 0 {
		o.Incoming = 100
	}
	s := session(t, Wrap(near), client, o)
	still(s)
	return s, newPeer(t, far)
}

// still lets nothing happen by itself, however slow the machine is.
func still(s *muxSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick = time.NewTimer(time.Hour)
	s.owned.Add(1)
}

// tickNow runs what the timer of the session would run.
func tickNow(s *muxSession) {
	s.mu.Lock()
	stopped := s.tick != nil && s.tick.Stop()
	s.mu.Unlock()
	if stopped {
		s.onTick()
	}
}

// connected is scripted with several connections, each with a letter.
func connected(t testing.TB, client bool, letters string) (*muxSession, map[byte]*peer) {
	t.Helper()
	s, first := scripted(t, client, Options{Connections: len(letters)})
	peers := map[byte]*peer{letters[0]: first}
	for i := 1; i < len(letters); i++ {
		peers[letters[i]] = first.attach(s)
	}
	return s, peers
}

func newPeer(t testing.TB, conn net.Conn) *peer {
	t.Helper()
	conn.SetDeadline(time.Now().Add(patience))
	return &peer{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// attach gives the session one more connection.
func (p *peer) attach(s *muxSession) *peer {
	p.t.Helper()
	near, far := pair(p.t, false)
	if err := s.Attach(Wrap(near)); err != nil {
		p.t.Fatal(err)
	}
	return newPeer(p.t, far)
}

// unhex gives the bytes of hexadecimal digits with spaces.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
	if err != nil {
		t.Fatalf("%q: %v", digits, err)
	}
	return b
}

// data is a DATA frame with n bytes.
func data(id uint32, n int) string {
	return fmt.Sprintf("01 %06x %08x %s", n, id, strings.Repeat("78", n))
}

// opens is an OPEN whose sender assumes so much credit and grants a first window.
func opens(id, assumed int) string {
	return fmt.Sprintf("02 000008 %08x %08x %08x", id, firstWindow, assumed)
}

// numbered is a frame whose payload is one number of 64 bits.
func numbered(kind byte, id uint32, n uint64) string {
	return fmt.Sprintf("%02x 000008 %08x %016x", kind, id, n)
}

// send writes frames in one write.
func (p *peer) send(frames ...string) {
	p.t.Helper()
	if _, err := p.conn.Write(unhex(p.t, strings.Join(frames, ""))); err != nil {
		p.t.Fatal(err)
	}
}

// frame reads the next frame as the digits of type, length, id and payload.
func (p *peer) frame() (string, error) {
	var head [8]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return "", err
	}
	n := int(head[1])<<16 | int(head[2])<<8 | int(head[3])
	payload := make([]byte, n)
	if _, err := io.ReadFull(p.in, payload); err != nil {
		return "", fmt.Errorf("a frame ends early: %w", err)
	}
	return strings.TrimSpace(fmt.Sprintf("%02x %06x %08x %x", head[0], n, head[4:], payload)), nil
}

// next is the next frame that is not a PING, which sessions send as they like.
func (p *peer) next() string {
	p.t.Helper()
	for {
		f, err := p.frame()
		if err != nil {
			p.t.Fatalf("no frame: %v", err)
		}
		if !strings.HasPrefix(f, "06") {
			return f
		}
	}
}

// want reads exactly these frames.
func (p *peer) want(frames ...string) {
	p.t.Helper()
	for _, want := range frames {
		if got := p.next(); digits(got) != digits(want) {
			p.t.Fatalf("got  %.120s\nwant %.120s", got, want)
		}
	}
}

func digits(frame string) string { return strings.Join(strings.Fields(frame), "") }

// same says that two lists have the same frames.
func same(a, b []string) bool {
	return slices.EqualFunc(a, b, func(a, b string) bool { return digits(a) == digits(b) })
}

// settle waits until the session has read everything that was sent here, and
// gives what it said meanwhile.
func (p *peer) settle() (said []string) {
	p.t.Helper()
	for range 2 { // what was queued when the first PONG left comes before the second
		p.pings++
		p.send(numbered(6, 0, uint64(p.pings)))
		for pong := digits(numbered(7, 0, uint64(p.pings))); ; {
			f := p.next()
			if digits(f) == pong {
				break
			}
			said = append(said, f)
		}
	}
	return said
}

// settleAll waits for what was sent on p first: its answers may come on any.
func (p *peer) settleAll(peers map[byte]*peer) {
	p.t.Helper()
	p.heard = append(p.heard, p.settle()...)
	for _, q := range peers {
		if q != p {
			q.heard = append(q.heard, q.settle()...)
		}
	}
}

// drained is what was heard meanwhile on all connections.
func drained(peers map[byte]*peer) (all []string) {
	for _, p := range peers {
		for _, f := range p.heard {
			all = append(all, digits(f))
		}
		p.heard = nil
	}
	return all
}

// quiet is settle with a session that says nothing.
func (p *peer) quiet() {
	p.t.Helper()
	if said := p.settle(); len(said) > 0 {
		p.t.Fatalf("the session said %.200q", said)
	}
}

// rest reads until the connection ends.
func (p *peer) rest() (frames []string) {
	p.t.Helper()
	for {
		f, err := p.frame()
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			p.t.Fatalf("the connection did not end in order: %v, after %.200q", err, frames)
		}
		frames = append(frames, f)
	}
}

// refused wants the session to have ended because of a violation, and the peer
// to have been told on all connections.
func refused(t testing.TB, s *muxSession, peers ...*peer) {
	t.Helper()
	done(t, "the session has ended", s.Done())
	if !fault.Has(s.why, fault.CodeFrameInvalid) {
		t.Errorf("the session ended with %v", s.why)
	}
	for i, p := range peers {
		frames := p.rest()
		if len(frames) == 0 || digits(frames[len(frames)-1]) != digits("08 000004 00000000 00000001") {
			t.Errorf("connection %d: the last frame is not GOAWAY 1 in %.200q", i, frames)
		}
	}
}

// accept gives the peer's next stream.
func accept(t testing.TB, s *muxSession) *muxStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := s.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st.SetDeadline(time.Now().Add(patience))
	return st.(*muxStream)
}

// open opens a stream and lets first be its first bytes.
func open(t testing.TB, s *muxSession, first string) *muxStream {
	t.Helper()
	st, err := s.OpenStream(t.Context(), []byte(first))
	if err != nil {
		t.Fatal(err)
	}
	st.SetDeadline(time.Now().Add(patience))
	return st.(*muxStream)
}

// reads wants exactly text from the stream, and then the error.
func reads(t testing.TB, st *muxStream, text string, then error) {
	t.Helper()
	got, err := io.ReadAll(st)
	if err == nil {
		err = io.EOF
	}
	if string(got) != text {
		t.Errorf("read %.100q, want %.100q", got, text)
	}
	isError(t, err, then)
}

// readsByte wants one byte, whichever.
func readsByte(t testing.TB, st *muxStream) {
	t.Helper()
	if n, err := st.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
}

// isError compares errors of streams: resets by code, all others by errors.Is.
func isError(t testing.TB, err, want error) {
	t.Helper()
	var got, code *ResetError
	if errors.As(want, &code) {
		if !errors.As(err, &got) || got.Code != code.Code {
			t.Errorf("got %v, want %v", err, want)
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// travel makes our direction of a stream want to move, and stay there.
func travel(st *muxStream, to *lane) {
	st.mu.Lock()
	st.want, st.placed = to, time.Hour
	st.mu.Unlock()
}

// leave makes a session want to leave a connection.
func leave(s *muxSession, l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.leaving = true
	l.shut.Store(true)
}
