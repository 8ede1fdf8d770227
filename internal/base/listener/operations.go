// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Operations is what a program serves beside its work: a health port, and an admin socket if it has one.
type Operations struct {
	Health Health
	API    http.Handler // of the admin socket

	health, admin net.Listener
}

// Listen opens both; the admin socket is also the lock of the run directory. Without a path there is no such socket.
func (o *Operations) Listen(ctx context.Context, health, socket string) (err error) {
	if socket != "" {
		if o.admin, err = ListenUnix("runDir", socket); err != nil {
			o.admin = nil // not a nil in an interface
			return err
		}
	}
	if o.health, err = Listen(ctx, "healthListen", health); err != nil {
		return errors.Join(err, Close(o.admin))
	}
	return nil
}

// HealthAt is the address of the health port.
func (o *Operations) HealthAt() string { return o.health.Addr().String() }

// Close closes what was opened and not served.
func (o *Operations) Close() error { return errors.Join(Close(o.health), Close(o.admin)) }

// Until serves in g until ctx ends or something of g has failed; then it calls drain, which ends g, and waits for g.
func (o *Operations) Until(ctx context.Context, g *run.Group, drain func()) error {
	g.Go("health", func(ctx context.Context) error { return o.Health.Serve(ctx, o.health) })
	if o.admin != nil {
		g.Go("admin socket", func(ctx context.Context) error {
			log := o.Health.Log
			shed := func() { log.Debug("a silent connection of the admin socket was closed for a newer one") }
			srv := HTTP{Handler: o.API, Header: limit.RequestHeader, Log: log, Conn: WithFew}
			return srv.Serve(ctx, Few(o.admin, socketConnections, shed))
		})
	}
	select {
	case <-ctx.Done():
	case <-g.Context().Done():
	}
	drain()
	return g.Wait()
}

// Close closes a listener that may be closed already, or nil.
func Close(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
