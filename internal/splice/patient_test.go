// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/splice"
)

// link is a connection of which one end is read by a splice. raw is that end
// below TLS, and dribble, if not nil, lets the far end send in small pieces.
type link struct {
	conn    splice.Conn
	near    net.Conn
	far     peer
	abort   func()
	dribble *dribble
}

// links are the connections that can be read patiently.
func links() map[string]func(t *testing.T) link {
	return map[string]func(t *testing.T) link{
		"tcp": func(t *testing.T) link {
			near, far := pairOn(t, "tcp", "127.0.0.1:0")
			c := far.(*net.TCPConn)
			return link{splice.Net(near), near, c, func() { c.SetLinger(0); c.Close() }, nil}
		},
		"unix": func(t *testing.T) link {
			near, far := pairOn(t, "unix", filepath.Join(t.TempDir(), "s"))
			// Bytes that it has not read make a unix socket say ECONNRESET.
			return link{splice.Net(near), near, far.(*net.UnixConn), func() { near.Write([]byte("unread")); far.Close() }, nil}
		},
		"tls server": func(t *testing.T) link { return tlsLink(t, tls.VersionTLS13, tls.Server, tls.Client) },
		// A client gets session tickets behind the handshake.
		"tls client": func(t *testing.T) link { return tlsLink(t, tls.VersionTLS13, tls.Client, tls.Server) },
		"tls 1.2":    func(t *testing.T) link { return tlsLink(t, tls.VersionTLS12, tls.Server, tls.Client) },
	}
}

func tlsLink(t *testing.T, version uint16, nearRole, farRole func(net.Conn, *tls.Config) *tls.Conn) link {
	t.Helper()
	a, b := pairOn(t, "tcp", "127.0.0.1:0")
	d := &dribble{Conn: b}
	cfg := &tls.Config{MinVersion: version, MaxVersion: version, InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate(t)}}
	near, far := nearRole(splice.Below(carrier.Wrap(a)), cfg), farRole(d, cfg)
	shaken := make(chan error, 1)
	go func() { shaken <- far.Handshake() }()
	if err := errors.Join(near.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return link{splice.Net(near), near, far, func() { b.(*net.TCPConn).SetLinger(0); b.Close() }, d}
}

// dribble writes in pieces, and lets pause have its way between them.
type dribble struct {
	net.Conn
	held  *bytes.Buffer // not nil: takes what would be written
	rng   *rand.Rand    // nil: in one piece
	pause func()
}

func (d *dribble) Write(b []byte) (n int, err error) {
	if d.held != nil {
		return d.held.Write(b)
	}
	for d.rng != nil && len(b)-n > 1 {
		m, err := d.Conn.Write(b[n : n+1+d.rng.IntN(min(len(b)-n-1, 9_000))])
		if n += m; err != nil {
			return n, err
		}
		d.pause()
	}
	m, err := d.Conn.Write(b[n:])
	return n + m, err
}

// tap reads a connection in one of two ways and knows how far it has come.
type tap struct {
	t       *testing.T
	conn    splice.Conn
	patient bool

	mu      sync.Mutex
	changed sync.Cond
	got     []byte
	out     int  // buffers taken and not given back
	silent  bool // it waits without a buffer
	late    bool
}

func newTap(t *testing.T, c splice.Conn, patient bool) *tap {
	p := &tap{t: t, conn: c, patient: patient}
	p.changed.L = &p.mu
	timer := time.AfterFunc(bound, func() { p.update(func() { p.late = true }) })
	t.Cleanup(func() { timer.Stop() })
	return p
}

func (p *tap) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// until waits until so many bytes were read, and the reader waits for more: of
// the oracle only the first can be known.
func (p *tap) until(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (len(p.got) < n || p.patient && !p.silent) && !p.late {
		p.changed.Wait()
	}
	if p.late {
		p.t.Errorf("after %v, %d of %d bytes were read", bound, len(p.got), n)
	}
}

// read reads once, into a buffer of the given size.
func (p *tap) read(size int) (err error) {
	buf := make([]byte, size)
	var n int
	if p.patient {
		n, err = p.conn.(carrier.Patient).ReadWhenReady(
			func() []byte { p.update(func() { p.out++; p.silent = false }); return buf },
			func() { p.update(func() { p.out--; p.silent = true }) },
		)
		if (n > 0) != (p.out == 1) || p.out < 0 || p.out > 1 {
			p.t.Errorf("%d bytes were read, %d buffers are out", n, p.out)
		}
		p.out = 0
	} else {
		n, err = p.conn.Read(buf)
	}
	p.update(func() { p.got = append(p.got, buf[:n]...) })
	return err
}

// all reads until an error, with buffers of many sizes.
func (p *tap) all(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	for {
		if err := p.read(1 + rng.IntN(1<<rng.IntN(17))); err != nil {
			return err
		}
	}
}

// describe is an error as far as a program can tell it from another one.
func describe(err error, c net.Conn) string {
	text := err.Error()
	for name, a := range map[string]net.Addr{"near": c.LocalAddr(), "far": c.RemoteAddr()} {
		if a != nil && len(a.String()) > 1 {
			text = strings.ReplaceAll(text, a.String(), name)
		}
	}
	var timeout net.Error
	var op *net.OpError
	errors.As(err, &op)
	out := fmt.Sprintf("%T %s (EOF %v, timeout %v)", err, text, err == io.EOF, errors.As(err, &timeout) && timeout.Timeout())
	if op != nil {
		out += fmt.Sprintf(" %s %s %T: %+v", op.Op, op.Net, op.Err, reflect.TypeOf(errors.Unwrap(op.Err)))
	}
	return out
}

// act is one thing that happens to a link while it is read. It returns what was
// sent, and leaves the end of reading to the last step.
type act struct {
	name string
	do   func(t *testing.T, l link, p *tap, rng *rand.Rand) (sent []byte)
}

func acts() []act {
	say := func(t *testing.T, l link, p *tap, rng *rand.Rand, sent []byte) []byte {
		for range 30 {
			chunk := data(rng.Uint64(), 8*(1+rng.IntN(1<<rng.IntN(13))))
			if _, err := l.far.Write(chunk); err != nil {
				t.Fatal(err)
			}
			if sent = append(sent, chunk...); rng.IntN(2) == 0 {
				p.until(len(sent))
			}
		}
		return sent
	}
	then := func(last func(l link)) func(*testing.T, link, *tap, *rand.Rand) []byte {
		return func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			sent := say(t, l, p, rng, nil)
			p.until(len(sent))
			last(l)
			return sent
		}
	}
	return []act{
		{"the peer ends", func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			sent := say(t, l, p, rng, nil)
			l.far.CloseWrite()
			return sent
		}},
		{"the peer ends a silent link", then(func(l link) { l.far.CloseWrite() })},
		{"the peer closes", then(func(l link) { l.far.Close() })},
		{"the peer breaks off", then(func(l link) { l.abort() })},
		{"closed while waiting", then(func(l link) { l.near.Close() })},
		{"reset while waiting", then(func(l link) { l.conn.Reset(1) })},
		{"a deadline while waiting", then(func(l link) { l.near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) })},
		{"a deadline in the past", then(func(l link) { l.near.SetReadDeadline(time.Unix(1, 0)) })},
		{"the deadline is put off", func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			l.near.SetReadDeadline(time.Now().Add(bound))
			sent := say(t, l, p, rng, nil)
			l.near.SetReadDeadline(time.Time{})
			sent = say(t, l, p, rng, sent)
			l.far.CloseWrite()
			return sent
		}},
	}
}

// TestReadWhenReady: it gives the bytes and the errors of Read, whatever happens
// and whenever; while nothing comes no buffer is out.
func TestReadWhenReady(t *testing.T) {
	for name, connect := range links() {
		for i, a := range acts() {
			t.Run(name+"/"+a.name, func(t *testing.T) {
				oracle := perform(t, connect(t), a, false, uint64(i))
				if got := perform(t, connect(t), a, true, uint64(i)); got != oracle {
					t.Errorf("ended with\n%s\nwhere Read ends with\n%s", got, oracle)
				}
			})
		}
	}
}

func perform(t *testing.T, l link, a act, patient bool, seed uint64) string {
	t.Helper()
	p := newTap(t, l.conn, patient)
	if l.dribble != nil {
		l.dribble.rng = rand.New(rand.NewPCG(seed, 1))
		n := 0
		l.dribble.pause = func() { // half a record lies there
			if n++; n%4 == 0 && patient {
				p.until(0)
			}
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- p.all(seed) }()
	sent := a.do(t, l, p, rand.New(rand.NewPCG(seed, 2)))
	err := <-ended
	if !bytes.Equal(p.got, sent) {
		t.Errorf("%d bytes were read, %d sent", len(p.got), len(sent))
	}
	return describe(err, l.near)
}

// TestReadWhenReadyGoesOn: after a deadline, also one within a TLS record, reading
// goes on where it was.
func TestReadWhenReadyGoesOn(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			p := newTap(t, l.conn, true)
			msg := data(5, 4_000)
			step := func() {
				l.near.SetReadDeadline(time.Unix(1, 0))
				for {
					err := p.read(1_000)
					if err == nil {
						continue
					}
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Fatal(err)
					}
					break
				}
				l.near.SetReadDeadline(time.Time{})
			}
			step()
			if l.dribble != nil {
				l.dribble.rng, l.dribble.pause = rand.New(rand.NewPCG(1, 1)), step
			}
			for range 3 {
				if _, err := l.far.Write(msg); err != nil {
					t.Fatal(err)
				}
				step()
			}
			l.far.CloseWrite()
			if err := p.all(1); err != io.EOF || !bytes.Equal(p.got, bytes.Repeat(msg, 3)) {
				t.Errorf("%d bytes of %d were read, then %v", len(p.got), 3*len(msg), err)
			}
		})
	}
}

// TestReadWhenReadyClosed: a connection that is closed already asks for no buffer.
func TestReadWhenReadyClosed(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.conn.Close()
			want := describe(newTap(t, l.conn, false).read(10), l.near)
			p := newTap(t, l.conn, true)
			if got := describe(p.read(10), l.near); got != want || p.silent {
				t.Errorf("%s where Read says %s; a buffer was taken: %v", got, want, p.silent)
			}
		})
	}
}

// TestReadWhenReadyNoRoom: like Read, it gives nothing into a buffer without room.
func TestReadWhenReadyNoRoom(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.far.Write([]byte("x"))
			p := newTap(t, l.conn, true)
			if err := p.read(0); err != nil || len(p.got) != 0 {
				t.Errorf("%q, %v", p.got, err)
			}
			if err := p.read(9); err != nil || string(p.got) != "x" {
				t.Errorf("%q, %v", p.got, err)
			}
		})
	}
}

// wrapper is what a server does that has read ahead: its Read gives other bytes
// than the connection's below.
type wrapper struct {
	*net.TCPConn
	ahead io.Reader
}

func (w wrapper) Read(b []byte) (int, error) { return io.MultiReader(w.ahead, w.TCPConn).Read(b) }

// TestReadAfterReadWhenReady: Read waits as ever.
func TestReadAfterReadWhenReady(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.far.Write([]byte("x"))
			if err := newTap(t, l.conn, true).read(9); err != nil {
				t.Fatal(err)
			}
			l.near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := l.conn.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read of a silent connection gives %v", err)
			}
		})
	}
}

// TestBytesBeforeHalfAnAlert: up to TLS 1.2 crypto/tls looks for an alert behind
// the bytes that it has. If only half of one has come, the bytes do not wait for it.
func TestBytesBeforeHalfAnAlert(t *testing.T) {
	for name, connect := range links() {
		if !strings.HasPrefix(name, "tls") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			p := newTap(t, l.conn, true)
			d := l.dribble
			d.held = new(bytes.Buffer)
			l.far.Write([]byte("bytes"))
			l.far.CloseWrite()
			d.Conn.SetWriteDeadline(time.Now().Add(bound)) // TLS has ended it
			wire := d.held.Bytes()
			half := len(wire) - 10
			d.Conn.Write(wire[:half])
			if err := p.read(100); err != nil || string(p.got) != "bytes" {
				t.Errorf("%q, %v", p.got, err)
			}
			d.Conn.Write(wire[half:])
			if err := p.read(100); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

// TestWrappersAreNotReadPast: only a connection whose bytes are those of the
// socket is read below its Read, and only a socket itself written below its Write.
func TestWrappersAreNotReadPast(t *testing.T) {
	near, _ := pairOn(t, "tcp", "127.0.0.1:0")
	tcp := near.(*net.TCPConn)
	inner := tls.Client(splice.Below(tcp), &tls.Config{})
	pipe, _ := net.Pipe()
	packets, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for _, c := range []struct {
		name string
		conn net.Conn
		want bool
		now  bool // it is written without waiting
	}{
		{"tcp", tcp, true, true},
		{"wrap over tcp", carrier.Wrap(tcp), true, false},
		{"tls over below over tcp", inner, true, false},
		{"tls over below over wrap over tcp", tls.Client(splice.Below(carrier.Wrap(tcp)), &tls.Config{}), true, false},
		{"read ahead", wrapper{tcp, strings.NewReader("x")}, false, false},
		{"tls over tcp", tls.Client(tcp, &tls.Config{}), false, false},
		{"tls over read ahead", tls.Client(splice.Below(wrapper{tcp, nil}), &tls.Config{}), false, false},
		{"tls in tls", tls.Client(splice.Below(inner), &tls.Config{}), false, false},
		{"a pipe", pipe, false, false},
		{"packets", packets, false, false},
	} {
		if _, now := splice.Net(c.conn).(carrier.PromptWriter); now != c.now {
			t.Errorf("%s: prompt %v, want %v", c.name, now, c.now)
		}
		if _, got := splice.Net(c.conn).(carrier.Patient); got != c.want {
			t.Errorf("%s: patient %v, want %v", c.name, got, c.want)
		}
	}
}

// TestNoAllocationPerWait: reading and waiting allocate nothing.
func TestNoAllocationPerWait(t *testing.T) {
	near, far := pairOn(t, "tcp", "127.0.0.1:0")
	p := splice.Net(near).(carrier.Patient)
	buf, one := make([]byte, 100), []byte("x")
	waits := make(chan struct{}, 1)
	take, give := func() []byte { return buf }, func() { waits <- struct{}{} }
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range ready {
			<-waits
			far.Write(one)
		}
	}()
	allocs := testing.AllocsPerRun(200, func() {
		ready <- struct{}{}
		if n, err := p.ReadWhenReady(take, give); n != 1 || err != nil {
			panic(fmt.Sprint(n, err))
		}
	})
	close(ready)
	<-done
	if allocs != 0 {
		t.Errorf("%v allocations for each byte that is waited for", allocs)
	}
}
