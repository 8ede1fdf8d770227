// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/test/roles"
)

// acceptor takes streams at the far end and gives each to serve, in a goroutine.
type acceptor struct {
	serve   func(stream)
	address string // where it listens, if it does
	pool    buffers
}

// startAcceptor listens for direct streams, or dials the sessions.
func startAcceptor(ctx context.Context, t transport, serve func(stream)) (*acceptor, error) {
	a := &acceptor{serve: serve}
	if t.tunnel() {
		return a, a.dialSessions(ctx, t)
	}
	var conf *tls.Config
	if t.Kind == kindTLS {
		var err error
		if conf, err = t.Creds.tls(); err != nil {
			return nil, err
		}
	}
	first, err := net.Listen("tcp", net.JoinHostPort(t.ListenAt, "0"))
	if err != nil {
		return nil, err
	}
	a.address = first.Addr().String()
	listeners := []net.Listener{first}
	for _, address := range spread(a.address)[1:] {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(err, first.Close())
		}
		listeners = append(listeners, ln)
	}
	for _, ln := range listeners {
		go a.acceptDirect(ln, t.Kind, conf)
	}
	return a, nil
}

func (a *acceptor) acceptDirect(ln net.Listener, kind string, conf *tls.Config) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			switch {
			case conf != nil:
				conn = tls.Server(conn, conf)
			case kind == kindHello:
				var err error
				if conn, err = readHello(conn); err != nil {
					conn.Close()
					return
				}
			}
			a.serve(plain{conn, &a.pool})
		}()
	}
}

// dialSessions dials all sessions, a few at a time, as agents do.
func (a *acceptor) dialSessions(ctx context.Context, t transport) error {
	conf, err := t.Creds.tls()
	if err != nil {
		return err
	}
	made := make([]carrier.Session, t.Sessions)
	err = roles.InParallel(t.Sessions, 16, func(i int) error {
		dial := func(ctx context.Context, first bool) (net.Conn, error) {
			conn, err := dialTLS(ctx, t.Address, conf, true)
			if err != nil {
				return nil, err
			}
			if _, err := conn.Write(greeting{uint32(i), first}.bytes()); err != nil {
				conn.Close()
				return nil, err
			}
			return conn, nil
		}
		conn, err := dial(ctx, true)
		if err != nil {
			return err
		}
		o := t.options()
		o.Dial = func(ctx context.Context) (net.Conn, error) { return dial(ctx, false) }
		made[i], err = t.client(conn, o)
		return err
	})
	for _, s := range made {
		if s != nil {
			go a.acceptStreams(s)
		}
	}
	return err
}

func (a *acceptor) acceptStreams(s carrier.Session) {
	for {
		st, err := s.AcceptStream(context.Background())
		if err != nil {
			return // the session has ended
		}
		go a.serve(muxed{st})
	}
}
