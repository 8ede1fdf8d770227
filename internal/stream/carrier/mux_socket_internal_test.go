// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// wrapped is a socket whose kernel holds little, and its far end.
func wrapped(t testing.TB) (*socket, net.Conn) {
	t.Helper()
	noLeak(t)
	near, far := pair(t, true)
	far.SetDeadline(time.Now().Add(patience))
	return Wrap(near).(*socket), far
}

// pattern is n bytes that show where a piece is missing or twice.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

// TestSocketPasses everything through before a session begins.
func TestSocketPasses(t *testing.T) {
	s, far := wrapped(t)
	if n, err := s.Write([]byte("hello")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if s.pending() {
		t.Error("something is collected")
	}
	far.Close()
	if _, err := s.Write(pattern(100)); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to nobody: %v", err)
	}
}

// TestSocketCollects: nothing leaves before a flush, then all of it in order, in
// as many pieces as the kernel takes; what is written meanwhile comes behind.
func TestSocketCollects(t *testing.T) {
	s, far := wrapped(t)
	s.collect()
	want := pattern(300_000)
	for _, piece := range [][]byte{want[:1], want[1:1000], want[1000:200_000]} {
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	far.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Fatal("something left before the flush")
	}
	far.SetReadDeadline(time.Now().Add(patience))
	finished, err := s.tryFlush()
	if finished || err != nil {
		t.Fatalf("tryFlush of more than the kernel takes: %v, %v", finished, err)
	}
	s.Write(want[200_000:250_000])
	if finished, err = s.tryFlush(); finished || err != nil {
		t.Fatalf("tryFlush of a full socket: %v, %v", finished, err)
	}
	s.Write(want[250_000:])
	got := make(chan []byte)
	go func() {
		all := make([]byte, len(want))
		io.ReadFull(far, all)
		got <- all
	}()
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(done(t, "the far end has read all", got), want) {
		t.Error("the bytes are not what was written")
	}
	if finished, err := s.tryFlush(); !finished || err != nil {
		t.Errorf("tryFlush of nothing: %v, %v", finished, err)
	}
}

// TestSocketBuffers: a buffer that was lent comes back after the flush, and what
// TLS wrote before it was lent is not lost.
func TestSocketBuffers(t *testing.T) {
	s, far := wrapped(t)
	s.collect()
	s.Write([]byte("early"))
	mine := make([]byte, 0, 100)
	s.lend(mine)
	s.Write([]byte(" late"))
	if finished, err := s.tryFlush(); !finished || err != nil {
		t.Fatal(finished, err)
	}
	if b := s.back(); cap(b) != 100 || &b[:1][0] != &mine[:1][0] {
		t.Error("another buffer came back")
	}
	if s.back() != nil {
		t.Error("it came back twice")
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "early late" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSocketBounds what is written of TLS's own accord.
func TestSocketBounds(t *testing.T) {
	s, _ := wrapped(t)
	s.collect()
	if _, err := s.Write(make([]byte, mostCollected)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Write([]byte{1}); n != 0 || !errors.Is(err, errTooMuch) {
		t.Errorf("one more: %d, %v", n, err)
	}
}

// TestSocketErrors of the kernel come out of both flushes.
func TestSocketErrors(t *testing.T) {
	s, far := wrapped(t)
	s.collect()
	far.Close()
	s.Write(pattern(10))
	if _, err := s.tryFlush(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("tryFlush: %v", err)
	}
	s.Write(pattern(10))
	if err := s.flush(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("flush: %v", err)
	}
	s.Close()
	s.Write(pattern(10))
	if _, err := s.tryFlush(); err == nil {
		t.Error("tryFlush of a closed socket has no error")
	}
}

type layer struct{ net.Conn }

func (l layer) NetConn() net.Conn { return l.Conn }

// TestSocketOf finds it below TLS and others, and nothing where none is.
func TestSocketOf(t *testing.T) {
	s, _ := wrapped(t)
	if socketOf(tls.Client(layer{s}, &tls.Config{})) != s || socketOf(layer{layer{s}}) != s || socketOf(s) != s {
		t.Error("it is not found")
	}
	if socketOf(tls.Client(s.Conn, &tls.Config{})) != nil || socketOf(nil) != nil {
		t.Error("something is found where nothing is")
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Wrap(a).(*socket).raw != nil {
		t.Error("a pipe has a descriptor")
	}
}

// TestTinyBuffers: streams both ways over TLS whose every write is partial.
func TestTinyBuffers(t *testing.T) {
	noLeak(t)
	rig := newRig(t)
	rig.sockets = func(context.Context) (near, far net.Conn, err error) {
		near, far = pair(t, true)
		return near, far, nil
	}
	agent, hub := rig.sessions(2)
	exchange(t, agent, hub, 8, 200_000)
}

// TestTogether is the same with ordinary sockets, one and several connections.
func TestTogether(t *testing.T) {
	for _, connections := range []int{1, 2, 4} {
		noLeak(t)
		agent, hub := newRig(t).sessions(connections)
		exchange(t, agent, hub, 6, 1<<20)
	}
}

// exchange sends bytes both ways on streams that both ends open, and compares them.
func exchange(t *testing.T, agent, hub *muxSession, streams, size int) {
	t.Helper()
	want := pattern(size)
	var all sync.WaitGroup
	for _, ends := range [][2]*muxSession{{agent, hub}, {hub, agent}} {
		for i := range streams {
			all.Go(func() {
				mine := want[:1+size*i/streams]
				st := open(t, ends[0], string(mine[:min(len(mine), 50)]))
				defer st.Close()
				all.Go(func() {
					if _, err := st.Write(mine[min(len(mine), 50):]); err != nil {
						t.Errorf("stream %d: write: %v", st.id, err)
					}
					st.CloseWrite()
				})
				if got, err := io.ReadAll(st); err != nil || !bytes.Equal(got, mine) {
					t.Errorf("stream %d: %d bytes of %d came back, %v", st.id, len(got), len(mine), err)
				}
			})
			all.Go(func() {
				st := accept(t, ends[1])
				defer st.Close()
				if _, err := io.Copy(st, st); err != nil {
					t.Errorf("stream %d: echo: %v", st.id, err)
				}
			})
		}
	}
	all.Wait()
	for _, s := range []*muxSession{agent, hub} {
		runtest.Eventually(t, "the streams are gone", func() bool { return s.Info().Streams == 0 })
		if n := s.budget.Unread(); n != 0 {
			t.Errorf("%d bytes are unread", n)
		}
		if n := s.queued.Load(); n != 0 {
			t.Errorf("%d bytes are queued", n)
		}
		if n := s.growth.Load(); n != 0 {
			t.Errorf("windows hold %d bytes of growth", n)
		}
	}
}

// recordMaker is the client's end of TLS 1.3 by hand, after a handshake that
// crypto/tls made: it can ask for key updates, which crypto/tls does not offer.
type recordMaker struct {
	t      testing.TB
	conn   net.Conn
	secret []byte
	seal   cipher.AEAD
	iv     []byte
	count  uint64
	out    []byte
}

const (
	recordHandshake = 22
	recordData      = 23
)

func (r *recordMaker) rekey(secret []byte) {
	r.t.Helper()
	key := r.expand(secret, "key", 16)
	block := must[cipher.Block](r.t)(aes.NewCipher(key))
	r.seal = must[cipher.AEAD](r.t)(cipher.NewGCM(block))
	r.secret, r.iv, r.count = secret, r.expand(secret, "iv", 12), 0
}

// expand is HKDF-Expand-Label of RFC 8446, section 7.1.
func (r *recordMaker) expand(secret []byte, label string, n int) []byte {
	r.t.Helper()
	info := append([]byte{0, byte(n), byte(len("tls13 " + label))}, "tls13 "+label+"\x00"...)
	return must[[]byte](r.t)(hkdf.Expand(sha256.New, secret, string(info), n))
}

func (r *recordMaker) record(kind byte, payload []byte) {
	inner := append(bytes.Clone(payload), kind)
	head := []byte{recordData, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(inner)+r.seal.Overhead()))
	nonce := bytes.Clone(r.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(r.count >> (56 - 8*i))
	}
	r.count++
	r.out = append(append(r.out, head...), r.seal.Seal(nil, nonce, inner, head)...)
}

// update asks the peer to update its keys too.
func (r *recordMaker) update() {
	r.t.Helper()
	r.record(recordHandshake, []byte{24, 0, 0, 1, 1})
	r.rekey(r.expand(r.secret, "traffic upd", 32))
}

func (r *recordMaker) send() {
	r.t.Helper()
	if _, err := r.conn.Write(r.out); err != nil {
		r.t.Fatal(err)
	}
	r.out = r.out[:0]
}

// byHand is a server session over TLS whose client is a recordMaker. The client's
// own TLS reads what the session says.
func byHand(t *testing.T) (*muxSession, *recordMaker, *tls.Conn) {
	t.Helper()
	noLeak(t)
	near, far := pair(t, true)
	far.SetDeadline(time.Now().Add(patience))
	var log strings.Builder
	rig := newRig(t)
	server := tls.Server(Wrap(near), &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{rig.cert}, SessionTicketsDisabled: true,
	})
	client := tls.Client(far, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, KeyLogWriter: &log})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	if suite := client.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("the machine prefers %s", tls.CipherSuiteName(suite))
	}
	r := &recordMaker{t: t, conn: far}
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			r.rekey(must[[]byte](t)(hex.DecodeString(f[2])))
		}
	}
	return session(t, server, false, Options{Incoming: 10}), r, client
}

// TestKeyUpdates: TLS answers each, and the answers leave by themselves, in order
// with the session's own records.
func TestKeyUpdates(t *testing.T) {
	_, r, client := byHand(t)
	in := newPeer(t, client)
	for i := range 20 {
		r.update()
		r.record(recordData, unhex(t, numbered(6, 0, uint64(i+1))))
		r.send()
		in.want(numbered(7, 0, uint64(i+1)))
	}
}

// TestKeyUpdateFlood: a peer that asks for updates and reads no answer holds
// little memory.
func TestKeyUpdateFlood(t *testing.T) {
	s, r, _ := byHand(t)
	l := s.lanes[0]
	held := func() (n int, stuck bool) {
		l.mu.Lock()
		stuck = l.waits
		l.mu.Unlock()
		l.sock.mu.Lock()
		defer l.sock.mu.Unlock()
		return cap(l.sock.out), stuck
	}
	filled := false
	for range 20 {
		for range 500 {
			r.update()
			r.record(recordData, unhex(t, "63 000000 00000000"))
		}
		if _, err := r.conn.Write(r.out); err != nil {
			break // the session has ended, which is fine too
		}
		r.out = r.out[:0]
		n, stuck := held()
		if n > 2*mostCollected {
			t.Fatalf("%d bytes of answers wait, of %d", n, mostCollected)
		}
		if stuck && !filled { // answers of 30,000 more
			l.sock.Write(make([]byte, mostCollected-100_000))
			filled = true
		}
	}
	if !filled {
		t.Error("the link never got stuck")
	}
	if _, err := l.sock.Write(make([]byte, 100)); !errors.Is(err, errTooMuch) {
		t.Errorf("there is room for more: %v", err)
	}
}
