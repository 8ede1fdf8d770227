// SPDX-License-Identifier: Apache-2.0

// Package lab builds the networks of the tests: those of the demo
// (internal/demo/network), and what only tests need: kinds of places with their
// NATs, LANs, loss, delay, proxies, port mapping and confined processes. It imports
// no testing package; labtest does.
//
// Kinds lists the kinds of places where a node may stand, Theory says which of them
// find a direct path, and NewGrid builds the world of a pair:
//
//	home, _ := lab.KindOf("port-restricted")
//	cloud, _ := lab.KindOf("symmetric")
//	fmt.Println(lab.Theory(home, cloud).Why) // why there is none
//	g, err := lab.NewGrid(l, lab.Pair{A: home, B: cloud})
//	g.A.Host.Start(...) // a node; g.STUN4, g.Hub and port 443 on it are there for it
//	g.A.Forget()        // the router is switched off and on
//	g.Between.On()      // the way between the nodes is cut, not that to the hub
//
// A LAN is a bridge within its router; neighbours on it talk past the router's
// filters. Confined processes need Linux 5.12 or newer.
package lab
