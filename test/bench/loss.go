// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// lossOneIn is 1 % of the packets, in each direction.
const lossOneIn = 100

// lossyStreams is the number of streams and, for plain connections, of connections.
const lossyStreams = 4

// lossy measures a cable that loses packets, between two hosts of the lab. Plain
// TLS has a connection for each stream, so a mux of as many connections is what
// it is held against.
func lossy() measurement {
	return measurement{
		name: "loss", about: fmt.Sprintf("%d streams over a veth link that loses 1 %% of its packets each way (nftables)", lossyStreams),
		transports: everywhere(), variants: []string{down, up}, main: rate, against: kindTLS, busy: true,
		unless: func(*bench) error { return lab.Check() },
		crew: func(ctx context.Context, b *bench, name string) (*crew, error) {
			t, err := parseTransport(name)
			if err != nil {
				return nil, err
			}
			at, err := b.lossyCable()
			if err != nil {
				return nil, err
			}
			return b.pairAt(ctx, name, t, at)
		},
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			r, err := b.flow(ctx, c, streams(s.variant, lossyStreams), s.profile, func() error { return pause(ctx, b.onLoss()) })
			if err != nil {
				return nil, err
			}
			v := values{rate: r.rate(), cost: r.cost()}
			return v, c.countConnections(ctx, v)
		},
	}
}

// onLoss is the window: what a loss costs differs much from one to the next.
func (b *bench) onLoss() time.Duration { return max(b.window, 2*time.Second) }

// lossyCable makes two hosts of their own for each transport: a connection's
// congestion control remembers its peer's address (tcp_metrics).
func (b *bench) lossyCable() (place, error) {
	at := place{loadIP: "10.98.0.1", serveIP: "10.98.0.2"}
	b.cables++
	var err error
	if at.loadHost, err = b.lab.Host(fmt.Sprintf("near%d", b.cables)); err != nil {
		return at, err
	}
	if at.serveHost, err = b.lab.Host(fmt.Sprintf("far%d", b.cables)); err != nil {
		return at, err
	}
	if err := b.lab.Link(lab.End{Host: at.loadHost, Name: "eth0", Addr: at.loadIP}, lab.End{Host: at.serveHost, Name: "eth0", Addr: at.serveIP}); err != nil {
		return at, err
	}
	for _, h := range []*lab.Host{at.loadHost, at.serveHost} {
		if err := lab.SinglePackets(h, "eth0"); err != nil {
			return at, err
		}
		loss := lab.Lose(h, "eth0", lossOneIn)
		if err := loss.On(); err != nil {
			return at, err
		}
		b.losses = append(b.losses, loss)
	}
	return at, nil
}
