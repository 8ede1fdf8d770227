// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Addresses. Everything behind a NAT router is the same in every cluster.
const (
	HubAddress     = "203.0.113.10"
	HubPort        = "8443"
	EdgeAddress    = "203.0.113.11"
	EdgePort       = "443"
	OfficeAddress  = "203.0.113.12" // of people with a kubectl
	AllAddress     = "203.0.113.13" // of an edge that watches all namespaces
	OneAddress     = "203.0.113.14" // and of one that watches one
	NodeAddress    = "10.0.0.10"
	NodeRange      = "10.0.0.0/24"
	PodRange       = "10.244.0.0/16"
	podSubnet      = "10.244.0.0/24"
	secondAddress  = "10.0.0.11" // of the second node
	secondPods     = "10.244.1.0/24"
	ServiceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // of the service "kubernetes"
	gateway        = "10.0.0.1"
	wanBits        = "/24"
)

// controlAddress and routerAddress are what the n-th cluster (from 0) has on the wan.
func controlAddress(n int) string { return "203.0.113." + strconv.Itoa(20+n) }
func routerAddress(n int) string  { return "203.0.113." + strconv.Itoa(120+n) }

// secondElastic is the address of a cluster's second node on the wan, from that of its router.
func secondElastic(router string) string {
	a := netip.MustParseAddr(router).As4()
	a[3] += 40
	return netip.AddrFrom4(a).String()
}

// batch runs `ip -batch` on a host.
func batch(ctx context.Context, host *lab.Host, lines ...string) error {
	_, err := outputOf(ctx, host, strings.NewReader(strings.Join(lines, "\n")+"\n"), "ip", "-batch", "-")
	return err
}

// nft loads a ruleset on a host.
func nft(ctx context.Context, host *lab.Host, rules string) error {
	_, err := outputOf(ctx, host, strings.NewReader(rules), "nft", "-f", "-")
	return err
}

// layWan makes the public network: a bridge, and the hub on it.
func (r *Rig) layWan(ctx context.Context) (err error) {
	if r.wan, err = r.lab.Host("wan"); err != nil {
		return err
	}
	if err := batch(ctx, r.wan, "link add br0 type bridge", "link set br0 up"); err != nil {
		return err
	}
	r.hubHost, err = r.plug(ctx, "hub", "hub", HubAddress)
	return err
}

// plug makes a host and connects it to the wan.
func (r *Rig) plug(ctx context.Context, name, port, address string) (*lab.Host, error) {
	h, err := r.lab.Host(name)
	if err != nil {
		return nil, err
	}
	if err := batch(ctx, r.wan,
		"link add "+port+" type veth peer name wan0 netns "+h.Namespace(),
		"link set "+port+" master br0 up"); err != nil {
		return nil, err
	}
	return h, batch(ctx, h, "addr add "+address+wanBits+" dev wan0", "link set wan0 up")
}

// lay makes the cluster's hosts: its control plane, its NAT router and its node.
func (c *Cluster) lay(ctx context.Context) (err error) {
	if c.cp, err = c.rig.plug(ctx, c.Name+"-cp", c.Name+"cp", c.control); err != nil {
		return err
	}
	if c.nat, err = c.rig.plug(ctx, c.Name+"-nat", c.Name+"nat", c.router); err != nil {
		return err
	}
	if err := batch(ctx, c.nat, "link add lan0 type bridge", "addr add "+gateway+"/24 dev lan0", "link set lan0 up",
		// Were the firewall and the router's filter not there, the control plane could reach the pods: the
		// partition is theirs alone, not a missing route's.
		"route add "+PodRange+" via "+NodeAddress, "route add "+ServiceRange+" via "+NodeAddress); err != nil {
		return err
	}
	if err := batch(ctx, c.cp, "route add default via "+c.router); err != nil {
		return err
	}
	if err := c.nat.Sysctl("ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := c.layRules(ctx); err != nil {
		return err
	}
	c.node, err = c.layNode(ctx, NodeName, NodeAddress, podSubnet)
	return err
}

// layNode makes the host of a node, behind the cluster's router.
func (c *Cluster) layNode(ctx context.Context, name, address, pods string) (*node, error) {
	host, err := c.rig.lab.Host(c.Name + "-" + name)
	if err != nil {
		return nil, err
	}
	n := &node{c: c, name: name, address: address, pods: pods, host: host, dir: filepath.Join(c.dir, name),
		cgroup: c.rig.ID + "-" + c.Name + "-" + name}
	if err := batch(ctx, c.nat, "link add "+name+" type veth peer name eth0 netns "+host.Namespace(),
		"link set "+name+" master lan0 up"); err != nil {
		return nil, err
	}
	if err := batch(ctx, host, "addr add "+address+"/24 dev eth0", "link set eth0 up",
		"route add default via "+gateway); err != nil {
		return nil, err
	}
	if err := host.Sysctl("ipv4/ip_forward", "1"); err != nil {
		return nil, err
	}
	// The node hides its pods from the router, as CNI plugins do.
	if err := nft(ctx, host, `table ip rig {
	chain post { type nat hook postrouting priority srcnat;
		oifname "eth0" ip saddr `+PodRange+` ip daddr != `+PodRange+` masquerade; }
}`); err != nil {
		return nil, err
	}
	if c.node == nil {
		return n, nil
	}
	// Nodes reach each other's pods by routes.
	return n, errors.Join(batch(ctx, host, "route add "+c.node.pods+" via "+c.node.address),
		batch(ctx, c.node.host, "route add "+pods+" via "+address))
}

func (c *Cluster) layRules(ctx context.Context) error {
	if err := nft(ctx, c.nat, `table ip rig {
	chain post { type nat hook postrouting priority srcnat; oifname "wan0" ct state new masquerade; }
	chain inbound { type filter hook forward priority filter; }
}`); err != nil {
		return err
	}
	if err := nft(ctx, c.cp, `table ip rig {
	counter towards_node { }
	set dialled { typeof ip daddr . tcp dport . tcp flags; size 64; flags dynamic; }
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
		cut := "add rule ip rig out ip daddr { " + strings.Join([]string{NodeRange, PodRange, ServiceRange, c.router}, ", ") +
			" } ct state new "
		out += cut + "add @dialled { ip daddr . tcp dport . tcp flags }\n" + cut + "counter name towards_node drop\n"
		inbound += `add rule ip rig inbound iifname "wan0" ct state new ct status and dnat == 0 counter drop` + "\n"
	}
	if err := nft(ctx, c.nat, inbound); err != nil {
		return err
	}
	return nft(ctx, c.cp, out)
}

// Elastic gives each node an address of its own on the wan for one port of UDP, as a 1:1 NAT of a cloud does. The
// partition leaves that port open. It returns the addresses of the first node and of the second, which may come later.
func (c *Cluster) Elastic(ctx context.Context, port string) (first, second string, err error) {
	first, second = c.router, secondElastic(c.router)
	if err := batch(ctx, c.nat, "addr add "+second+wanBits+" dev wan0"); err != nil {
		return "", "", err
	}
	return first, second, nft(ctx, c.nat, strings.NewReplacer("PORT", port, "NODE1", NodeAddress, "NODE2", secondAddress,
		"WAN1", first, "WAN2", second).Replace(`table ip elastic {
	chain pre { type nat hook prerouting priority dstnat;
		iifname "wan0" ip daddr WAN1 udp dport PORT dnat to NODE1;
		iifname "wan0" ip daddr WAN2 udp dport PORT dnat to NODE2; }
	chain post { type nat hook postrouting priority srcnat - 1;
		oifname "wan0" ip saddr NODE1 udp sport PORT snat to WAN1:PORT;
		oifname "wan0" ip saddr NODE2 udp sport PORT snat to WAN2:PORT; }
}`))
}

// FirewallDropped are addresses, ports and TCP's flags of packets that FirewallDrops has counted, for people.
func (c *Cluster) FirewallDropped(ctx context.Context) string {
	text, err := output(ctx, c.cp, "nft", "list", "set", "ip", "rig", "dialled")
	if err != nil {
		return err.Error()
	}
	return text
}

// FirewallDrops is how many packets of new connections from the control plane towards the node, its pods and
// services the firewall has dropped.
func (c *Cluster) FirewallDrops(ctx context.Context) (uint64, error) {
	text, err := output(ctx, c.cp, "nft", "list", "counter", "ip", "rig", "towards_node")
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
