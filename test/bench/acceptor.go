// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"

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
	// A port that is free on the first address may be taken on another one, by whoever shares this machine.
	var listeners []net.Listener
	for range 20 {
		var err error
		if listeners, err = listenSpread(net.JoinHostPort(t.ListenAt, "0")); err == nil {
			break
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	if listeners == nil {
		return nil, fmt.Errorf("no port is free on all of %q in 20 tries: free some, then run this again",
			spread(net.JoinHostPort(t.ListenAt, "0")))
	}
	a.address = listeners[0].Addr().String()
	for _, ln := range listeners {
		go a.acceptDirect(ln, t.Kind, conf)
	}
	return a, nil
}

// listenSpread listens on one port of all addresses that spread gives, or on none.
func listenSpread(address string) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, ln := range listeners {
				ln.Close()
			}
			listeners = nil
		}
	}()
	first, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	listeners = append(listeners, first)
	for _, address := range spread(first.Addr().String())[1:] {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, ln)
	}
	return listeners, nil
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
