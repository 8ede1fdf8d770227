// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/test/yamux"
)

// Kinds of transports between the load and the far end.
const (
	kindTCP   = "tcp"   // a connection for each stream
	kindTLS   = "tls"   // a TLS connection for each stream
	kindMux   = "mux"   // our own mux, one session of several connections
	kindYamux = "yamux" // yamux, several sessions of one connection
	kindHello = "hello" // a connection for each stream, which begins with a ClientHello
	// The load's ends of an end-to-end chain.
	kindUnix    = "unix"    // a unix socket
	kindConnect = "connect" // a unix socket and an HTTP CONNECT
	kindGRPC    = "grpc"    // a unix socket and the konnectivity client
)

// transport says how streams come from the load to the far end.
type transport struct {
	Kind        string       `json:"kind"`
	Connections int          `json:"connections,omitempty"` // of a mux session
	Sessions    int          `json:"sessions,omitempty"`    // streams take turns on them
	Creds       *credentials `json:"creds,omitempty"`
	Address     string       `json:"address"`          // to dial; where empty, to listen on ListenAt
	ListenAt    string       `json:"listenAt"`         // an IP address
	Target      string       `json:"target,omitempty"` // of a CONNECT
}

// tunnel says whether the load accepts the sessions, as a hub does.
func (t transport) tunnel() bool { return t.Kind == kindMux || t.Kind == kindYamux }

// parseTransport reads names like tcp, tls, mux4 or yamux2.
func parseTransport(name string) (transport, error) {
	kind := strings.TrimRight(name, "0123456789")
	n := 1
	if digits := name[len(kind):]; digits != "" {
		var err error
		if n, err = strconv.Atoi(digits); err != nil || n < 1 || n > 64 {
			return transport{}, fmt.Errorf("transport %q: want 1 to 64 connections", name)
		}
	}
	switch kind {
	case kindMux:
		return transport{Kind: kind, Connections: n, Sessions: 1}, nil
	case kindYamux: // the library has one connection for each session
		return transport{Kind: kind, Connections: 1, Sessions: n}, nil
	case kindTCP, kindTLS:
		if kind == name {
			return transport{Kind: kind}, nil
		}
	}
	return transport{}, fmt.Errorf("transport %q: want tcp, tls, mux, yamux, or the last two with a number of connections", name)
}

// client makes the dialling end of a session of the tunnel.
func (t transport) client(conn net.Conn, o carrier.Options) (carrier.Session, error) {
	if t.Kind == kindYamux {
		return yamux.Client(conn, o)
	}
	return carrier.Client(conn, o)
}

// server makes the accepting end.
func (t transport) server(conn net.Conn, o carrier.Options) (carrier.Session, error) {
	if t.Kind == kindYamux {
		return yamux.Server(conn, o)
	}
	return carrier.Server(conn, o)
}

// muxWorks says why our own mux cannot be measured, or nil.
func muxWorks() error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s, err := carrier.Client(a, carrier.Options{Incoming: 1})
	if err != nil {
		return err
	}
	return s.Close()
}

// dialTLS dials and shakes hands. wrapped puts the carrier's own layer below TLS.
func dialTLS(ctx context.Context, address string, conf *tls.Config, wrapped bool) (net.Conn, error) {
	d := &net.Dialer{}
	if wrapped {
		d = carrier.Dialer()
	}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if wrapped {
		raw = carrier.Wrap(raw)
	}
	conn := tls.Client(raw, conf)
	if err = conn.HandshakeContext(ctx); err == nil {
		err = checkCipher(conn)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// opener opens streams at the load.
type opener interface {
	open(ctx context.Context, first []byte) (stream, error)
}

// direct opens a connection for each stream.
type direct struct {
	dial func(ctx context.Context, address string) (net.Conn, error)
	// addresses take turns, so that many short connections find free ports.
	addresses []string
	turn      atomic.Uint64
	pool      buffers
}

func (d *direct) open(ctx context.Context, first []byte) (stream, error) {
	conn, err := d.next(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(first); err != nil {
		conn.Close()
		return nil, err
	}
	return plain{conn, &d.pool}, nil
}

// next dials the address whose turn it is.
func (d *direct) next(ctx context.Context) (net.Conn, error) {
	return d.dial(ctx, d.addresses[d.turn.Add(1)%uint64(len(d.addresses))])
}

// spread gives the addresses that a far end on loopback listens on: the ports of
// one would run out with many short connections.
func spread(address string) []string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "127.0.0.1" {
		return []string{address}
	}
	var out []string
	for i := range 8 {
		out = append(out, net.JoinHostPort("127.0.0."+strconv.Itoa(1+i), port))
	}
	return out
}

func dialTCP(ctx context.Context, address string) (c net.Conn, err error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func dialPlainTLS(conf *tls.Config) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return dialTLS(ctx, address, conf, false) }
}
