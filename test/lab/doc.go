// SPDX-License-Identifier: Apache-2.0

// Package lab builds small networks on one machine: hosts, routers, NAT and
// firewalls, each in a network namespace of its own, from Go alone (netlink and
// nftables, no ip, nft or iptables command). Tests use it, and so does
// `tombolo demo`, which is why it imports no testing package.
//
//	l, err := lab.New("cut")
//	defer l.Close()
//	inside, _ := l.Host("inside")
//	gateway, _ := l.Router("gateway")
//	outside, _ := l.Host("outside")
//	l.Link(lab.End{Host: inside, Name: "lan", Addr: "10.42.0.10"},
//		lab.End{Host: gateway, Name: "lan0", Addr: "10.42.0.1"})
//	l.Link(lab.End{Host: gateway, Name: "wan", Addr: "203.0.113.2"},
//		lab.End{Host: outside, Name: "eth0", Addr: "203.0.113.1"})
//	inside.Default("10.42.0.1")
//	masquerade := gateway.Masquerade("wan")
//	masquerade.On()
//
// For nodes that have to find each other, Kinds lists the kinds of places that
// there are, Theory says which of them find a direct way, and NewGrid builds the
// world of a pair:
//
//	home, _ := lab.KindOf("port-restricted")
//	cloud, _ := lab.KindOf("symmetric")
//	fmt.Println(lab.Theory(home, cloud).Why) // why there is none
//	g, err := l.NewGrid(lab.Pair{A: home, B: cloud})
//	g.A.Host.Start(...) // a node; g.STUN4, g.Hub and port 443 on it are there for it
//	g.A.Forget()        // the router is switched off and on
//	g.Between.On()      // the way between the nodes is cut, not that to the hub
//
// Every link is a veth pair with one address on each end and a host route to
// the other, so no bridge is needed and two clusters may use the same range; a
// LAN is a bridge within its router.
// Nothing is put into the root network namespace: links are created from one
// namespace straight into another, sysctls are set inside.
//
// What a lab makes is named after the process that owns it (pid namespace, pid
// and start time), so Sweep can remove what a killed run left behind and cannot
// touch anything of a run that lives. Processes started in a lab die with it,
// also when their parent is killed with -9.
//
// It does no rate limits. It needs root on
// Linux 5.12 or newer; Check says so in words.
package lab
