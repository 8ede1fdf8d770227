// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
)

// end is what a session is made of.
type end struct {
	conn    net.Conn
	options carrier.Options
}

// sessions puts a session on both ends of a connection.
func sessions(t *testing.T, a, b end) carriertest.Pair {
	t.Helper()
	agent, err := carrier.Client(a.conn, a.options)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := carrier.Server(b.conn, b.options)
	if err != nil {
		agent.Close()
		t.Fatal(err)
	}
	return carriertest.Pair{A: agent, B: hub}
}

// pipes makes a pair over net.Pipe: no buffer below, no system call.
func pipes(t *testing.T, o carrier.Options) carriertest.Pair {
	a, b := net.Pipe()
	p := sessions(t, end{a, o}, end{b, o})
	p.Cut = func() { a.Close() }
	return p
}

// wires makes a pair over what a test can halt and cut.
func wires(t *testing.T, a, b net.Conn) carriertest.Pair {
	o := carrier.Options{Incoming: 1_000}
	return sessions(t, end{a, o}, end{b, o})
}

// plant is a hub that accepts TLS connections on loopback, and an agent that
// dials them. It hands each connection to whoever waits for the next one.
type plant struct {
	t        *testing.T
	ln       net.Listener
	client   *tls.Config
	server   *tls.Config
	accepted chan *tls.Conn

	mu     sync.Mutex
	closed bool
	raw    []net.Conn // of the agent, below TLS, in the order of dialling
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	ln, err := listener.Listen(t.Context(), "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &plant{
		t: t, ln: ln, accepted: make(chan *tls.Conn),
		client: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, DynamicRecordSizingDisabled: true},
		server: &tls.Config{MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
			Certificates: []tls.Certificate{runtest.Certificate(t)}},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.accept()
	}()
	t.Cleanup(func() {
		ln.Close()
		p.cut()
		<-ended
	})
	return p
}

// accept ends with the listener.
func (p *plant) accept() {
	defer close(p.accepted)
	for {
		raw, err := p.ln.Accept()
		if err != nil {
			return
		}
		carrier.MarkSession(raw)
		conn := tls.Server(carrier.Wrap(raw), p.server)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if err := conn.Handshake(); err != nil {
			raw.Close() // the dial fails too, and says why
			continue
		}
		conn.SetDeadline(time.Time{})
		p.accepted <- conn
	}
}

// dial makes one connection; the hub's end of it comes out of accepted.
func (p *plant) dial(ctx context.Context) (net.Conn, error) {
	raw, err := carrier.Dialer().DialContext(ctx, "tcp", p.ln.Addr().String())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.raw = append(p.raw, raw)
	}
	p.mu.Unlock()
	if closed {
		raw.Close()
		return nil, errors.New("the plant has closed")
	}
	conn := tls.Client(carrier.Wrap(raw), p.client)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// pair dials and waits for the other end.
func (p *plant) pair() (agent, hub net.Conn) {
	p.t.Helper()
	agent, err := p.dial(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	hub, ok := <-p.accepted
	if !ok {
		p.t.Fatal("the listener has ended")
	}
	return agent, hub
}

// cut ends all connections below TLS and lets no new one come.
func (p *plant) cut() {
	p.refuse()
	for i := range p.dialled() {
		p.lose(i)
	}
}

// refuse lets no new connection come.
func (p *plant) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

func (p *plant) dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.raw)
}

// lose ends one connection below TLS.
func (p *plant) lose(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw[i].Close()
}

// carried asks the kernel for what a connection has carried, both ways.
func (p *plant) carried(i int) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i >= len(p.raw) {
		return 0
	}
	raw, err := p.raw[i].(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Bytes_acked + info.Bytes_received)
		}
	})
	return n
}

// overTLS makes pairs over TLS 1.3 on loopback, with so many connections at most.
func overTLS(connections int) carriertest.MakePair {
	return func(t *testing.T, o carrier.Options) carriertest.Pair {
		p, _ := grown(t, connections, o)
		return p
	}
}

// grown makes a pair whose session may dial further connections.
func grown(t *testing.T, connections int, o carrier.Options) (carriertest.Pair, *plant) {
	t.Helper()
	f := newPlant(t)
	agent, hub := f.pair()
	o.Connections, o.Beside = connections, connections
	client := o
	if connections > 1 {
		client.Dial = f.dial
	}
	p := sessions(t, end{agent, client}, end{hub, o})
	p.Cut = f.cut
	attached := make(chan struct{})
	go func() {
		defer close(attached)
		for conn := range f.accepted {
			if err := p.B.Attach(conn); err != nil {
				conn.NetConn().Close()
			}
		}
	}()
	t.Cleanup(func() { // before that of the plant
		p.A.Close()
		p.B.Close()
		f.ln.Close()
		<-attached
	})
	return p, f
}

// TestAcceptByCall: streams are given to who asked for that, in their order, and
// may be reset at once; AcceptStream gives none.
func TestAcceptByCall(t *testing.T) {
	near, far := net.Pipe()
	came := make(chan carrier.Stream, 100)
	var n int
	hub, err := carrier.Server(near, carrier.Options{Incoming: 1000, Accept: func(s carrier.Stream) {
		if n++; n%2 == 0 {
			s.Reset(7)
		}
		came <- s
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	agent, err := carrier.Client(far, carrier.Options{Incoming: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for i := range byte(10) {
		s, err := agent.OpenStream(t.Context(), []byte{i})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	for i := range byte(10) {
		s, b := <-came, []byte{255}
		if _, err := s.Read(b); i%2 == 0 && (err != nil || b[0] != i) || i%2 == 1 && !errors.Is(err, net.ErrClosed) {
			t.Errorf("stream %d: %d, %v", i, b[0], err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := hub.AcceptStream(ctx); err == nil {
		t.Errorf("AcceptStream gave %v", s)
	}
}
