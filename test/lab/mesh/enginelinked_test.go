// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestEngineLinkedClusters: two linked clusters with the kernel's WireGuard, node to node and through gateways. On no
// cable is a packet between them in clear.
func TestEngineLinkedClusters(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, kind(t, "port-restricted"), open, open, open)
	if err != nil {
		t.Fatal(err)
	}
	r := linkedRigOf(bareRig(t, l, g), [][]*lab.Place{g.All[:1], g.All[1:]}, linkedOptions{engine: meshconf.Kernel})
	r.clusters(p2p(), p2p())
	r.mirror()
	masquerades := r.masquerades()
	r.switched(masquerades, (*lab.Filter).On)
	heard := r.heardAtFirst()
	together(r.all()...)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"node to node", r.nodeToNode},
		{"IPv6 and nodes themselves", r.familiesAndNodes},
		{"through gateways", r.throughGateways},
		{"IPv6 and nodes themselves, through gateways", r.without(masquerades, r.familiesAndNodesByGateways)},
		{"a Service", r.service},
		{"a gateway is killed", r.killed},
		{"mapped ranges", r.mapped},
		{"nothing in clear", func(*testing.T) { r.nothingInClear(heard) }},
	} {
		if !r.step(step.name, step.do) {
			return // what comes then would only wait
		}
	}
}
