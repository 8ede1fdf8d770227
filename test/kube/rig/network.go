// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Addresses. Everything behind a NAT router is the same in every cluster.
const (
	HubAddress     = "203.0.113.10"
	HubPort        = "8443"
	NodeAddress    = "10.0.0.10"
	NodeRange      = "10.0.0.0/24"
	PodRange       = "10.244.0.0/16"
	podSubnet      = "10.244.0.0/24"
	ServiceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // of the service "kubernetes"
	gateway        = "10.0.0.1"
	wanBits        = "/24"
)

// controlAddress and routerAddress are what the n-th cluster (from 0) has on the wan.
func controlAddress(n int) string { return "203.0.113." + strconv.Itoa(20+n) }
func routerAddress(n int) string  { return "203.0.113." + strconv.Itoa(120+n) }

// batch runs `ip -batch` inside a namespace.
func (r *Rig) batch(ctx context.Context, netns string, lines ...string) error {
	_, err := r.outputOf(ctx, netns, strings.NewReader(strings.Join(lines, "\n")+"\n"), "ip", "-batch", "-")
	return err
}

// nft loads a ruleset inside a namespace.
func (r *Rig) nft(ctx context.Context, netns, rules string) error {
	_, err := r.outputOf(ctx, netns, strings.NewReader(rules), "nft", "-f", "-")
	return err
}

// addNetns makes an empty network namespace with loopback up.
func (r *Rig) addNetns(ctx context.Context, name string) error {
	if _, err := r.output(ctx, "", "ip", "netns", "add", name); err != nil {
		return err
	}
	return r.batch(ctx, name, "link set lo up")
}

// layWan makes the public network: a bridge, and the hub on it.
func (r *Rig) layWan(ctx context.Context) error {
	for _, ns := range []string{r.wan, r.hubns} {
		if err := r.addNetns(ctx, ns); err != nil {
			return err
		}
	}
	if err := r.batch(ctx, r.wan, "link add br0 type bridge", "link set br0 up"); err != nil {
		return err
	}
	return r.plug(ctx, "hub", r.hubns, HubAddress)
}

// plug connects a namespace to the wan.
func (r *Rig) plug(ctx context.Context, port, netns, address string) error {
	if err := r.batch(ctx, r.wan,
		"link add "+port+" type veth peer name wan0 netns "+netns,
		"link set "+port+" master br0 up"); err != nil {
		return err
	}
	return r.batch(ctx, netns, "addr add "+address+wanBits+" dev wan0", "link set wan0 up")
}

// lay makes the cluster's namespaces: its control plane, its NAT router and its node.
func (c *Cluster) lay(ctx context.Context) error {
	for _, ns := range []string{c.cpns, c.natns, c.nodens} {
		if err := c.rig.addNetns(ctx, ns); err != nil {
			return err
		}
	}
	if err := c.rig.plug(ctx, c.Name+"cp", c.cpns, c.control); err != nil {
		return err
	}
	if err := c.rig.plug(ctx, c.Name+"nat", c.natns, c.router); err != nil {
		return err
	}
	if err := c.rig.batch(ctx, c.natns,
		"link add lan0 type veth peer name eth0 netns "+c.nodens,
		"addr add "+gateway+"/24 dev lan0", "link set lan0 up",
		// Were the firewall and the router's filter not there, the control plane could reach the pods: the
		// partition is theirs alone, not a missing route's.
		"route add "+PodRange+" via "+NodeAddress, "route add "+ServiceRange+" via "+NodeAddress); err != nil {
		return err
	}
	if err := c.rig.batch(ctx, c.nodens, "addr add "+NodeAddress+"/24 dev eth0", "link set eth0 up",
		"route add default via "+gateway); err != nil {
		return err
	}
	if err := c.rig.batch(ctx, c.cpns, "route add default via "+c.router); err != nil {
		return err
	}
	for _, ns := range []string{c.natns, c.nodens} {
		if _, err := c.rig.output(ctx, ns, "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
			return err
		}
	}
	return c.layRules(ctx)
}

func (c *Cluster) layRules(ctx context.Context) error {
	if err := c.rig.nft(ctx, c.natns, `table ip rig {
	chain post { type nat hook postrouting priority srcnat; oifname "wan0" ct state new masquerade; }
	chain inbound { type filter hook forward priority filter; }
}`); err != nil {
		return err
	}
	// The node hides its pods from the router, as CNI plugins do.
	if err := c.rig.nft(ctx, c.nodens, `table ip rig {
	chain post { type nat hook postrouting priority srcnat; oifname "eth0" ip saddr `+PodRange+` masquerade; }
}`); err != nil {
		return err
	}
	if err := c.rig.nft(ctx, c.cpns, `table ip rig {
	counter towards_node { }
	chain out { type filter hook output priority filter; }
}`); err != nil {
		return err
	}
	return c.Partition(ctx, true)
}

// Partition closes or opens the way from the control plane to the node. A cluster begins partitioned: the
// control plane's firewall and the router drop every new connection towards the node.
func (c *Cluster) Partition(ctx context.Context, closed bool) error {
	out, inbound := "flush chain ip rig out\n", "flush chain ip rig inbound\n"
	if closed {
		out += "add rule ip rig out ip daddr { " + strings.Join([]string{NodeRange, PodRange, ServiceRange, c.router}, ", ") +
			" } ct state new counter name towards_node drop\n"
		inbound += `add rule ip rig inbound iifname "wan0" ct state new counter drop` + "\n"
	}
	if err := c.rig.nft(ctx, c.natns, inbound); err != nil {
		return err
	}
	return c.rig.nft(ctx, c.cpns, out)
}

// FirewallDrops is how many packets of new connections from the control plane towards the node, its pods and
// services the firewall has dropped.
func (c *Cluster) FirewallDrops(ctx context.Context) (uint64, error) {
	text, err := c.rig.output(ctx, c.cpns, "nft", "list", "counter", "ip", "rig", "towards_node")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(text)
	for i, f := range fields {
		if f == "packets" && i+1 < len(fields) {
			return strconv.ParseUint(fields[i+1], 10, 64)
		}
	}
	return 0, fmt.Errorf("nft printed no counter: %q", text)
}

// literal fails for addresses that a dial inside a namespace cannot take.
func literal(address string) error {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return fmt.Errorf("dial %s: only literal addresses are dialled inside a namespace: %w", address, err)
	}
	return nil
}
