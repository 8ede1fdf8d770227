// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// place says where the two ends of a transport stand.
type place struct {
	loadHost, serveHost *lab.Host
	loadIP, serveIP     string
	path                *pathSpec // between them; nil: none
}

func (b *bench) loopback() place {
	here := b.lab.Here()
	return place{loadHost: here, serveHost: here, loadIP: "127.0.0.1", serveIP: "127.0.0.1"}
}

// pair is the crew of a transport on loopback: a load and a far end.
func pair(ctx context.Context, b *bench, name string) (*crew, error) {
	t, err := parseTransport(name)
	if err != nil {
		return nil, err
	}
	return b.pairAt(ctx, name, t, b.loopback())
}

// pairAt starts a load and a far end, joined by t. The one that listens starts first.
func (b *bench) pairAt(ctx context.Context, name string, t transport, at place) (c *crew, err error) {
	t.Creds = b.creds
	c = &crew{name: name}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.load, err = c.spawn(at.loadHost, roleLoad, "hub"); err != nil {
		return c, err
	}
	if c.serve, err = c.spawn(at.serveHost, roleServe, "agent"); err != nil {
		return c, err
	}
	first, second, ip := c.serve, c.load, at.serveIP
	if t.tunnel() {
		c.counts = c.load
		first, second, ip = c.load, c.serve, at.loadIP
	}
	var where started
	t.ListenAt = ip
	if err = first.Call(ctx, opStart, 0, t, &where); err != nil {
		return c, err
	}
	if t.Address = where.Address; at.path != nil {
		if t.Address, err = b.startPath(ctx, c, *at.path, where.Address); err != nil {
			return c, err
		}
	}
	if err = second.Call(ctx, opStart, 0, t, nil); err != nil {
		return c, err
	}
	if err = c.load.Call(ctx, opAwait, 0, nil, nil); err != nil {
		return c, err
	}
	return c, b.warm(ctx, c, t)
}

// pathIP is where paths listen: one address, so that nobody dials its neighbours.
const pathIP = "127.0.1.1"

// startPath puts a path before an address of loopback. Its process is not
// counted: what it does stands for a network.
func (b *bench) startPath(ctx context.Context, c *crew, spec pathSpec, target string) (string, error) {
	p, err := roles.Spawn(b.lab.Here(), rolePath, "path")
	if err != nil {
		return "", err
	}
	c.all = append(c.all, p)
	var where started
	err = p.Call(ctx, opStart, 0, pathArgs{Spec: spec, ListenAt: pathIP, Target: target}, &where)
	return where.Address, err
}

// spawn starts a counted process of the crew.
func (c *crew) spawn(host *lab.Host, role, name string) (*roles.Process, error) {
	p, err := roles.Spawn(host, role, name)
	if err != nil {
		return nil, err
	}
	c.all = append(c.all, p)
	c.counted = append(c.counted, p)
	return p, nil
}

// Warming up a session of several connections.
const (
	warmFor   = 3 * time.Second // at most
	warmSteps = 100 * time.Millisecond
)

// warm loads a session until it has all of its connections: it opens them under
// load only.
func (b *bench) warm(ctx context.Context, c *crew, t transport) error {
	if t.Connections <= 1 {
		return nil
	}
	if err := c.load.Call(ctx, opBulk, 0, bulkArgs{Down: 8, Up: 8}, nil); err != nil {
		return err
	}
	have := 0
	for end := time.Now().Add(warmFor); have < t.Connections && time.Now().Before(end); {
		if err := pause(ctx, warmSteps); err != nil {
			return err
		}
		if err := c.load.Call(ctx, opConnections, 0, nil, &have); err != nil {
			return err
		}
	}
	if have < t.Connections {
		b.say("%s has %d of %d connections after %v of load", c.name, have, t.Connections, warmFor)
	}
	return c.halt(ctx)
}

// halt ends the streams of both ends.
func (c *crew) halt(ctx context.Context) error {
	for _, p := range []*roles.Process{c.load, c.serve} {
		if err := p.Call(ctx, opHalt, 0, nil, nil); err != nil {
			return fmt.Errorf("ending the streams: %w", err)
		}
	}
	return nil
}
