// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// renewal is after how long WireGuard agrees on new keys while packets flow (REKEY_AFTER_TIME of its paper, section 6).
const renewal = 120 * time.Second

// TestEngineRenews: the kernel's WireGuard agrees on new keys twice while a connection and packets go there and back. No
// packet is lost.
func TestEngineRenews(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, kind(t, "port-restricted"))
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	r.startDiscovery()
	a, b := r.withEngine(0, meshconf.Kernel), r.withEngine(1, meshconf.Kernel)
	together(a, b)
	there, back := r.begin(a, b), r.begin(b, a)
	begin := time.Now()
	for _, p := range []*pairTraffic{there, back} {
		r.awaitAfter(p.packets, begin)
	}
	begin = time.Now()
	agreed := map[string]bool{}
	for len(agreed) < 3 {
		if time.Since(begin) > 3*renewal {
			t.Fatalf("sessions began at %v alone", agreed)
		}
		p, err := a.peer(b)
		if err != nil {
			t.Fatal(err)
		}
		agreed[p.Handshake] = true
		for _, p := range []*pairTraffic{there, back} {
			if err := p.continues(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.noneLost("WireGuard renews its keys", begin, time.Now(), there.packets, back.packets)
	for _, p := range []*pairTraffic{there, back} {
		p.packets.End()
		t.Attr("figure", fmt.Sprintf("WireGuard renews its keys, %s: %s", p.packets, p.packets.Lost(begin)))
	}
	r.requireNoClearText(a, b)
}
