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
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
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
	cfg := &tls.Config{MinVersion: version, MaxVersion: version, InsecureSkipVerify: true, Certificates: []tls.Certificate{runtest.Certificate(t)}}
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
