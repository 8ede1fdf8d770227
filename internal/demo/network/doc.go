// SPDX-License-Identifier: Apache-2.0

// Package network builds small networks on one machine: hosts, routers, NAT and
// firewalls, each in a network namespace of its own, from Go alone (netlink and
// nftables, no ip, nft or iptables command). `tombolo demo` plays in them; the lab
// of the tests (test/lab) builds on them and adds what only tests need.
//
//	n, err := network.New(ctx, "cut")
//	defer n.Close()
//	inside, _ := n.Host("inside")
//	gateway, _ := n.Router("gateway")
//	outside, _ := n.Host("outside")
//	n.Link(network.End{Host: inside, Name: "lan", Addr: "10.42.0.10"},
//		network.End{Host: gateway, Name: "lan0", Addr: "10.42.0.1"})
//	n.Link(network.End{Host: gateway, Name: "wan", Addr: "203.0.113.2"},
//		network.End{Host: outside, Name: "eth0", Addr: "203.0.113.1"})
//	inside.Default("10.42.0.1")
//	masquerade := gateway.Masquerade("wan")
//	masquerade.On()
//
// Every link is a veth pair with one address on each end and a host route to
// the other, so no bridge is needed and two clusters may use the same range.
// Nothing is put into the root network namespace: links are created from one
// namespace straight into another, sysctls are set inside.
//
// What a network makes is named after the process that owns it (pid namespace, pid
// and start time), so Sweep can remove what a killed run left behind and cannot
// touch anything of a live run. Processes started in a network die with it, also
// when their parent is killed with -9.
//
// It does no rate limits and no delays. It needs root on Linux; Check reports why it
// cannot work.
package network
