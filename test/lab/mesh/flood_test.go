// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// marker begins everything that is said within the mesh, and must be heard by nobody
// outside of it.
const marker = "clear text of the lab, for nodes alone; "

// inClear begins what is said beside the mesh on purpose, so that a listener who hears
// nothing is known to hear at all.
const inClear = "said in clear beside the mesh; "

// echo is the port at which every node gives back what it gets.
const echo = 7007

// flood begins to send packets from a host to the echo at an address, until the test
// or its step ends.
func (r *rig) flood(h *lab.Host, to netip.Addr) *lab.Flood {
	r.t.Helper()
	f, err := h.Flood(netip.AddrPortFrom(to, echo), marker)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.End)
	return f
}

func (n *node) flood(to netip.Addr) *lab.Flood { return n.rig.flood(n.host, to) }

// awaitAfter waits until a packet that was sent after a moment has come back, and
// returns how long after it that was.
func (r *rig) awaitAfter(f *lab.Flood, moment time.Time) time.Duration {
	r.t.Helper()
	var at time.Time
	r.eventually("packets of "+f.String()+" come back", nil, func() error {
		var there bool
		if at, there = f.FirstAfter(moment); !there {
			return errors.New(f.Lost(moment).String())
		}
		return nil
	})
	return at.Sub(moment)
}

// noneLost waits until all packets have come back that floods sent between two moments. The floods must go on: the end
// of one waits two seconds for what is under way, for which a node may well stand still.
func (r *rig) noneLost(while string, begin, until time.Time, floods ...*lab.Flood) {
	r.t.Helper()
	for _, f := range floods {
		r.awaitAfter(f, until)
		r.eventually("no packets of "+f.String()+" are lost while "+while, nil, func() error {
			if loss := f.Lost(begin); loss.Lost > 0 && loss.First < until.Sub(begin) {
				return errors.New(loss.String())
			}
			return nil
		})
	}
}

// transfer sends so much over TCP from one node to another's address, has it sent
// back, and compares.
func transfer(from, to *node, addr netip.Addr, size int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := from.host.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, echo).String())
	if err != nil {
		return fmt.Errorf("%s to %s: %w", from.name, to.name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	text := slices.Repeat([]byte(marker), size/len(marker)+1)[:size]
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err = errors.Join(err, <-sent); err != nil {
		return fmt.Errorf("%s to %s, after %d of %d bytes: %w", from.name, to.name, len(got), size, err)
	}
	if !bytes.Equal(got, text) {
		return fmt.Errorf("%s to %s: %d bytes came back otherwise", from.name, to.name, len(got))
	}
	return nil
}

// requireNoClearText looks at what a listener heard on the cables: nothing that was
// said within the mesh, and what was said beside it.
func (r *rig) requireNoClearText(nodes ...*node) {
	r.t.Helper()
	for _, n := range nodes {
		r.requireDeaf(n.name, n.wire, n.place)
	}
}

func (r *rig) requireDeaf(name string, wire *lab.Capture, place *lab.Place) {
	r.t.Helper()
	network, to := "udp4", netip.MustParseAddrPort(lab.HubAddr+":9")
	if !place.Kind.IPv4 {
		network, to = "udp6", netip.MustParseAddrPort("["+lab.HubAddr6+"]:9")
	}
	conn, err := place.Host.ListenUDP(network, ":0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.WriteToUDPAddrPort([]byte(inClear), to); err != nil {
		r.t.Fatalf("what may be heard cannot be said at %s: %v", name, err)
	}
	r.eventually("a listener at "+name+" hears what is said in clear", nil, func() error {
		heard, err := wire.With([]byte(inClear))
		if err != nil {
			r.t.Fatal(err)
		}
		if heard == 0 {
			return fmt.Errorf("nothing among %d packets", wire.Packets())
		}
		return nil
	})
	// The kernel gives packets to a listener in their order: what came before is heard.
	if heard, err := wire.With([]byte(marker)); err != nil || heard > 0 {
		r.t.Errorf("%d packets at %s have what was said within the mesh in clear (%v), of %d", heard, name, err, wire.Packets())
	}
}
