// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"net/netip"
	"testing"
	"time"
)

// TestMeshRestartStaysClosed: a node that is killed, or ends, and starts again is the same
// member all the while: what pods elsewhere send to its range goes in clear at no moment, and
// nobody takes its peer away.
func TestMeshRestartStaysClosed(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open")
	podA, podB := r.podBehind(r.grid.All[0], bridge, 1), r.podBehind(r.grid.All[1], bridge, 2)
	a, b := r.node(r.grid.All[0], settings{ranges: []string{podA.share}}), r.node(r.grid.All[1], settings{ranges: []string{podB.share}})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	begin := time.Now()
	f := r.flood(podA.host, netip.MustParseAddr(podB.addr))
	r.awaitAfter(f, begin)
	// Its self-test hears nothing, which makes the start of the node take two seconds.
	r.shell(b.host, `nft add table inet slow
		nft add chain inet slow in { type filter hook input priority 0 ; }
		nft add rule inet slow in iif lo meta l4proto udp drop`)
	const peer = "msg=peer node=b "
	before := a.said(peer)
	for _, end := range []func(){b.kill, b.stop} {
		end()
		together(b)
		r.awaitAfter(f, time.Now())
	}
	f.End()
	r.requireNoClearText(a)
	if n := a.said(peer) - before; n > 0 {
		t.Errorf("its peer was made anew %d times", n)
	}
}
