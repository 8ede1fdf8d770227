// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The chains of an end-to-end measurement: client, what is between, backend.
const (
	chainDirect  = "direct"       // nothing
	chainRelay   = "relay"        // unix socket, TLS, with a TLS connection for each stream
	chainTombolo = "tombolo"      // unix socket with CONNECT, hub, agent; our own mux between them
	chainGRPC    = "tombolo-grpc" // unix socket with the konnectivity client, hub, agent; our own mux
)

func chains() []string { return []string{chainDirect, chainRelay, chainTombolo, chainGRPC} }

// chain starts the processes of a chain, the backend first.
func chain(ctx context.Context, b *bench, name string) (c *crew, err error) {
	here := b.lab.Here()
	c = &crew{name: name}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.serve, err = c.spawn(here, roleServe, "backend"); err != nil {
		return c, err
	}
	var backend started
	if err = c.serve.Call(ctx, opStart, 0, transport{Kind: kindTCP, ListenAt: "127.0.0.1"}, &backend); err != nil {
		return c, err
	}
	entry := transport{Kind: kindTCP, Address: backend.Address}
	switch name {
	case chainRelay:
		entry, err = b.startRelay(ctx, c, backend.Address)
	case chainTombolo, chainGRPC:
		entry, err = b.startRooms(ctx, c, name, backend.Address)
	}
	if err != nil {
		return c, err
	}
	if c.load, err = c.spawn(here, roleLoad, "client"); err != nil {
		return c, err
	}
	if err = c.load.Call(ctx, opStart, 0, entry, nil); err != nil || name == chainDirect {
		return c, err
	}
	return c, b.warmChain(ctx, c)
}

// chainDir makes a folder whose name leaves room for unix sockets.
func (b *bench) chainDir() (string, error) {
	dir, err := b.lab.Dir()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "c")
}

func (b *bench) startRelay(ctx context.Context, c *crew, backend string) (transport, error) {
	dir, err := b.chainDir()
	if err != nil {
		return transport{}, err
	}
	exit, err := c.spawn(b.lab.Here(), roleRelay, "exit")
	if err != nil {
		return transport{}, err
	}
	var where started
	if err := exit.Call(ctx, opStart, 0, relayArgs{Listen: "127.0.0.1", Target: backend, Creds: b.creds}, &where); err != nil {
		return transport{}, err
	}
	entry, err := c.spawn(b.lab.Here(), roleRelay, "entry")
	if err != nil {
		return transport{}, err
	}
	socket := filepath.Join(dir, "relay.sock")
	err = entry.Call(ctx, opStart, 0, relayArgs{Entry: true, Listen: socket, Target: where.Address, Creds: b.creds}, nil)
	return transport{Kind: kindUnix, Address: socket}, err
}

func (b *bench) startRooms(ctx context.Context, c *crew, name, backend string) (transport, error) {
	dir, err := b.chainDir()
	if err != nil {
		return transport{}, err
	}
	hub, err := c.spawn(b.lab.Here(), roleHub, "hub")
	if err != nil {
		return transport{}, err
	}
	var where started
	if err := hub.Call(ctx, opStart, 0, roomArgs{Dir: dir}, &where); err != nil {
		return transport{}, err
	}
	c.counts = hub
	agent, err := c.spawn(b.lab.Here(), roleAgent, "agent")
	if err != nil {
		return transport{}, err
	}
	if err := agent.Call(ctx, opStart, 0, roomArgs{Dir: dir, Join: where.Join}, nil); err != nil {
		return transport{}, fmt.Errorf("%w (hub's and agent's logs are in %s until the run ends)", err, dir)
	}
	t := transport{Kind: kindConnect, Address: filepath.Join(where.Socket, "connect.sock"), Target: backend}
	if name == chainGRPC {
		t = transport{Kind: kindGRPC, Address: filepath.Join(where.Socket, "konnectivity.sock"), Target: backend}
	}
	return t, nil
}

// warmChain loads a chain before it is measured: sessions open further
// connections under load, pools fill.
func (b *bench) warmChain(ctx context.Context, c *crew) error {
	if err := c.load.Call(ctx, opBulk, 0, bulkArgs{Down: 8, Up: 8}, nil); err != nil {
		return err
	}
	if err := pause(ctx, min(b.window, time.Second)); err != nil {
		return err
	}
	return c.halt(ctx)
}
