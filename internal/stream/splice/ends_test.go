// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

const bound = runtest.Patience

// peer is the far end of one side of a splice: what the other party holds.
type peer interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetDeadline(time.Time) error
}

// end is one kind of connection: near is given to the splice, far is the party's.
type end struct {
	name  string
	make  func(t testing.TB) (near splice.Conn, far peer, abort func())
	mute  bool // the kind cannot express a reset, its peer sees a plain end
	coded bool // a reset has a code
}

func ends() []end {
	return []end{
		{name: "tcp", make: tcpEnd},
		{name: "unix", make: unixEnd, mute: true},
		{name: "tls", make: tlsEnd},
		{name: "mux", make: carrierEnd, coded: true},
	}
}

func pairOn(t testing.TB, network, address string) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err = net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	far.SetDeadline(time.Now().Add(bound))
	return near, far
}

func tcpEnd(t testing.TB) (splice.Conn, peer, func()) {
	near, far := pairOn(t, "tcp", "127.0.0.1:0")
	c := far.(*net.TCPConn)
	return splice.Net(near), c, func() { c.SetLinger(0); c.Close() }
}

func unixEnd(t testing.TB) (splice.Conn, peer, func()) {
	near, far := pairOn(t, "unix", filepath.Join(t.TempDir(), "s"))
	return splice.Net(near), far.(*net.UnixConn), nil
}

func tlsEnd(t testing.TB) (splice.Conn, peer, func()) {
	near, far := pairOn(t, "tcp", "127.0.0.1:0")
	server := tls.Server(splice.Below(carrier.Wrap(near)), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{runtest.Certificate(t)}})
	client := tls.Client(far, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	// The party vanishes without close_notify.
	return splice.Net(server), client, func() { far.Close() }
}

func carrierEnd(t testing.TB) (splice.Conn, peer, func()) {
	agent, hub := sessions(t)
	return streamOf(t, agent, hub)
}

func streamOf(t testing.TB, agent, hub carrier.Session) (splice.Conn, peer, func()) {
	t.Helper()
	far, err := hub.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	near, err := agent.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	far.SetDeadline(time.Now().Add(bound))
	return near, far, func() { far.Reset(3) }
}

// sessions are the two ends of a link over TCP.
func sessions(t testing.TB) (agent, hub carrier.Session) {
	t.Helper()
	a, b := pairOn(t, "tcp", "127.0.0.1:0")
	b.SetDeadline(time.Time{})
	return sessionsOver(t, a, b)
}

func sessionsOver(t testing.TB, a, b net.Conn) (agent, hub carrier.Session) {
	t.Helper()
	agent, err := carrier.Client(a, carrier.Options{Incoming: 1_000})
	if err != nil {
		t.Fatal(err)
	}
	hub, err = carrier.Server(b, carrier.Options{Incoming: 1_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close(); hub.Close() })
	return agent, hub
}

// setup is one running splice between two parties.
type setup struct {
	a, b           peer
	abortA, abortB func()
	result         <-chan splice.Result
}

func start(t testing.TB, a, b end, o splice.Options) setup {
	t.Helper()
	nearA, farA, abortA := a.make(t)
	nearB, farB, abortB := b.make(t)
	result := make(chan splice.Result, 1)
	ctx := t.Context()
	go func() { result <- splice.New().Both(ctx, nearA, nearB, o) }()
	t.Cleanup(func() { farA.Close(); farB.Close() })
	return setup{a: farA, b: farB, abortA: abortA, abortB: abortB, result: result}
}

// done waits for the splice's end.
func (s setup) done(t testing.TB) splice.Result {
	t.Helper()
	select {
	case r := <-s.result:
		return r
	case <-time.After(bound):
		t.Fatal("the splice does not end")
		return splice.Result{}
	}
}

// matrix runs body for every pair of kinds.
func matrix(t *testing.T, body func(t *testing.T, a, b end)) {
	t.Helper()
	matrixOf(t, func(a, b end) bool { return true }, body)
}

// aCanBreak and bCanBreak want an end that can break off; a unix socket cannot.
func aCanBreak(a, _ end) bool { return !a.mute }
func bCanBreak(_, b end) bool { return !b.mute }

func matrixOf(t *testing.T, wanted func(a, b end) bool, body func(t *testing.T, a, b end)) {
	t.Helper()
	for _, a := range ends() {
		for _, b := range ends() {
			if !wanted(a, b) {
				continue
			}
			t.Run(a.name+"-"+b.name, func(t *testing.T) { body(t, a, b) })
		}
	}
}
