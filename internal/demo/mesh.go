// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// marker begins what nodes say to each other, and nobody on the way may read.
const marker = "clear text, for the nodes of the mesh alone; "

// inClear is said beside the mesh, so that a listener is known to hear.
const inClear = "said in clear, beside the mesh"

// meshPlay is the mesh told as a story: nodes behind three kinds of NAT.
type meshPlay struct {
	*play
	homes     *network.Homes
	discovery *node
	pin       string // of the discovery service's CA
	secret    string // file of the cluster's
	members   []*member
	flows     []*flow
}

// flow is packets from one member to another and back.
type flow struct {
	*network.Flood
	from, to *member
	direct   bool // theory says that they find a direct way
}

// nats are what is in front of the members.
func nats() []network.Translation {
	return []network.Translation{
		{Mapping: network.Independent, Filtering: network.AddressPortDependent},
		{Mapping: network.AddressPortDependent, Filtering: network.AddressPortDependent},
		{Mapping: network.Independent, Filtering: network.AddressDependent},
	}
}

func (m *meshPlay) all(ctx context.Context, o Options) error {
	m.screen.title("tombolo demo --mesh: three nodes behind three kinds of NAT become one network",
		"internet: hub with its relay at "+network.HubAddr+", discovery service at "+network.OtherAddr,
		"  ├─ home router (usual) ─────────────────────────────── a",
		"  ├─ NAT of a cloud (another port for each destination) ─ b",
		"  └─ home router (lets in whom its node has written to) ─ c",
		"",
		"All three have the address 192.168.1.10 on their LAN. Nobody can dial in from outside.")
	return m.perform(ctx, []scene{
		{"network", func(ctx context.Context) (string, error) { return m.build(ctx, o) }},
		{"hub and discovery", m.startServices},
		{"nodes", m.startMembers},
		{"first packets", m.firstPackets},
		{"direct paths", m.directPaths},
		{"", m.showMesh},
		{"path cut", m.cutPath},
		{"listening on the wires", m.listen},
		{"clean up", m.tidy},
	})
}

func (m *meshPlay) build(ctx context.Context, o Options) (string, error) {
	var err error
	m.stage, err = newStage(ctx, o.Program, func(s *stage) error {
		var err error
		m.homes, err = s.network.NewHomes(nats()...)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d network namespaces: 3 nodes, their 3 routers, the internet with 2 servers",
		m.stage.network.Hosts()), nil
}

// firstPackets sends from each node to each other one, from now to the end.
func (m *meshPlay) firstPackets(ctx context.Context) (string, error) {
	begin := time.Now()
	for i, one := range m.members {
		for k, other := range m.members {
			if i == k {
				continue
			}
			// In one direction by IPv4, in the other by IPv6, over networks that have none.
			to := other.overlay4
			if i > k {
				to = other.overlay6
			}
			flood, err := one.host.Flood(netip.AddrPortFrom(to, echoPort), marker)
			if err != nil {
				return "", err
			}
			m.flows = append(m.flows, &flow{Flood: flood, from: one, to: other,
				direct: one.home.DirectWith(other.home)})
		}
	}
	var slowest time.Duration
	var last *flow
	for _, f := range m.flows {
		took, err := f.awaitAfter(ctx, begin)
		if err != nil {
			return "", err
		}
		if took >= slowest {
			slowest, last = took, f
		}
	}
	return fmt.Sprintf("each node reaches the others over IPv4 and IPv6, the last pair (%s, %s) after %.2f s",
		last.from.name, last.to.name, slowest.Seconds()), nil
}

// awaitAfter waits until a packet that was sent after a moment has come back.
func (f *flow) awaitAfter(ctx context.Context, moment time.Time) (time.Duration, error) {
	var at time.Time
	err := until(ctx, f.from.node, meshWithin, func(context.Context) error {
		var there bool
		if at, there = f.FirstAfter(moment); !there {
			return errors.New("no packet came back")
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f, err)
	}
	return at.Sub(moment), nil
}

// directPaths waits for a direct way between those that theory gives one, and tells why
// the others have none.
func (m *meshPlay) directPaths(ctx context.Context) (string, error) {
	begin := time.Now()
	var said []string
	for _, f := range m.flows {
		if f.from.name > f.to.name {
			continue
		}
		if !f.direct {
			p, err := m.peerOf(ctx, f.from, f.to)
			if err != nil {
				return "", err
			}
			if p.State != relayed {
				return "", fmt.Errorf("%s has %s %s, which these NATs do not let happen", f.from.name, f.to.name, p.State)
			}
			said = append(said, fmt.Sprintf("%s ── hub ── %s, through the relay: no direct path exists between these two NATs",
				f.from.name, f.to.name))
			continue
		}
		for _, of := range [][2]*member{{f.from, f.to}, {f.to, f.from}} {
			if _, err := m.verb(ctx, of[0], "ping", of[1].name, "--until-direct", "--timeout", meshWithin.String()); err != nil {
				return "", err
			}
		}
		p, err := m.peerOf(ctx, f.from, f.to)
		if err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s ───────── %s, direct: it is at %s (after %.2f s)", f.from.name, f.to.name, p.Path,
			time.Since(begin).Seconds()))
	}
	return strings.Join(said, "\n"), nil
}

// showMesh prints what tombolo mesh status prints.
func (m *meshPlay) showMesh(ctx context.Context) (string, error) {
	table, err := m.verb(ctx, m.members[0], "status")
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	m.screen.block(append([]string{m.screen.paint(dim, "a$ tombolo mesh status")}, lines...)...)
	return "", nil
}

// cutPath cuts the direct path between a and c while packets flow, and restores it.
func (m *meshPlay) cutPath(ctx context.Context) (string, error) {
	a, c := m.members[0], m.members[2]
	cut := m.homes.Internet.BlockBoth(a.name, c.name)
	if err := cut.On(); err != nil {
		return "", err
	}
	moment := time.Now()
	var said []string
	for _, f := range m.between(a, c) {
		took, err := f.awaitAfter(ctx, moment)
		if err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s: packets flow again %.2f s after the cut, through the relay", f, took.Seconds()))
	}
	if err := m.awaitState(ctx, a, c, relayed); err != nil {
		return "", err
	}
	if n, err := cut.Packets(); err != nil {
		return "", err
	} else if n == 0 {
		return "", errors.New("the cut met no packet: it cuts nothing")
	}
	for _, f := range m.between(a, c) {
		if _, err := f.awaitAfter(ctx, time.Now()); err != nil {
			return "", err
		}
		loss := f.Lost(moment)
		said = append(said, fmt.Sprintf("%s: %d of %d packets were lost", f, loss.Lost, loss.Sent))
	}
	if err := cut.Off(); err != nil {
		return "", err
	}
	restored := time.Now()
	if err := m.awaitState(ctx, a, c, direct); err != nil {
		return "", err
	}
	said = append(said, fmt.Sprintf("direct again %.2f s after the cut ended", time.Since(restored).Seconds()))
	return strings.Join(said, "\n"), nil
}

// between are the flows of two members, in both directions.
func (m *meshPlay) between(one, other *member) []*flow {
	var found []*flow
	for _, f := range m.flows {
		if f.from == one && f.to == other || f.from == other && f.to == one {
			found = append(found, f)
		}
	}
	return found
}

// listen looks at everything that went over the wires of the nodes.
func (m *meshPlay) listen(ctx context.Context) (string, error) {
	all := 0
	for _, x := range m.members {
		if err := m.sayInClear(x); err != nil {
			return "", err
		}
		err := until(ctx, x.node, meshWithin, func(context.Context) error {
			heard, err := x.wire.With([]byte(inClear))
			if err == nil && heard == 0 {
				err = fmt.Errorf("a listener at %s does not hear what is said in clear", x.name)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		heard, err := x.wire.With([]byte(marker))
		if err != nil {
			return "", err
		}
		if heard > 0 {
			return "", fmt.Errorf("%d packets at %s have the nodes' words in clear", heard, x.name)
		}
		all += x.wire.Packets()
	}
	sent := 0
	for _, f := range m.flows {
		sent += f.Lost(time.Time{}).Sent
	}
	return fmt.Sprintf("%d packets on the wires, none with any of the %d texts that the nodes sent each other\n"+
		"(a text sent to the hub in clear was seen)", all, sent), nil
}

// sayInClear sends a packet that is not for the mesh.
func (m *meshPlay) sayInClear(x *member) error {
	conn, err := x.host.ListenUDP("udp4", ":0")
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.WriteToUDPAddrPort([]byte(inClear), netip.MustParseAddrPort(network.HubAddr+":9"))
	return err
}

func (m *meshPlay) tidy(context.Context) (string, error) {
	for _, f := range m.flows {
		f.End()
	}
	hosts, err := m.stage.strike()
	return fmt.Sprintf("nodes, discovery and hub ended by themselves; %d namespaces and the directory are gone", hosts),
		err
}
