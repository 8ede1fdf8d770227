// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestMeshOverlay4Pool: addresses come out of the pool that is configured. Masquerade takes that
// of the node as the source, by which who stands behind it, in no range of the mesh, is
// answered.
func TestMeshOverlay4Pool(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	const pool = "10.64.8.0/22"
	behind := r.podBehind(r.grid.All[0], bridge, 1)
	pooled := settings{mesh: map[string]any{"overlay4": pool}}
	a, b := r.node(r.grid.All[0], pooled), r.node(r.grid.All[1], pooled)
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	for _, n := range []*node{a, b} {
		if !netip.MustParsePrefix(pool).Contains(n.overlay4) || n.addresses()[0] != n.overlay4 {
			t.Errorf("%s has %s and at its link %v, and the pool is %s", n.name, n.overlay4, n.addresses(), pool)
		}
	}
	if a.overlay4 == b.overlay4 {
		t.Errorf("both have %s", a.overlay4)
	}
	sources := b.hears(t)
	from := func(h *lab.Host, within time.Duration) (netip.Addr, error) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		c, err := h.DialContext(ctx, "tcp", netip.AddrPortFrom(b.overlay4, other).String())
		if err != nil {
			return netip.Addr{}, err
		}
		defer c.Close()
		return <-sources, nil
	}
	if got, err := from(a.host, patience); err != nil || got != a.overlay4 {
		t.Errorf("a itself comes as %v (%v), and is %s", got, err, a.overlay4)
	}
	if got, err := from(behind.host, refusedWithin); err == nil {
		t.Errorf("who is in no range of the mesh comes as %v", got)
	}
	masquerade := a.host.Masquerade(link)
	if err := masquerade.On(); err != nil {
		t.Fatal(err)
	}
	if got, err := from(behind.host, patience); err != nil || got != a.overlay4 {
		t.Errorf("by masquerade it comes as %v (%v), and the node is %s", got, err, a.overlay4)
	}
}

// hears listens at a node, and gives who has come.
func (n *node) hears(t *testing.T) <-chan netip.Addr {
	t.Helper()
	ln, err := n.host.Listen("tcp", ":"+strconv.Itoa(other))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	came := make(chan netip.Addr, 16)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			came <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			c.Close()
		}
	}()
	return came
}
