// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// kubernetes is a world in which nodes have nothing but an API server: no hub and no discovery service.
type kubernetes struct {
	*rig
	api *kubetest.Server
}

func withKubernetes(t *testing.T, kinds ...string) kubernetes {
	t.Helper()
	l := labtest.New(t, "mesh")
	var list []lab.Kind
	for _, name := range kinds {
		list = append(list, kind(t, name))
	}
	g, err := lab.NewPlaces(l, list...)
	if err != nil {
		t.Fatal(err)
	}
	at, err := g.Hub.Listen("tcp", lab.HubAddr+":6443")
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes{bareRig(t, l, g), kubetest.NewAt(t, at)}
}

// node makes a node whose kubelet's credentials the mesh uses. It announces the ranges of its pods, and
// reads and writes such words.
func (k kubernetes) node(place *lab.Place, words ...string) *node {
	k.t.Helper()
	return k.nodeWith(place, settings{}, words...)
}

func (k kubernetes) nodeWith(place *lab.Place, set settings, words ...string) *node {
	k.t.Helper()
	name := place.Host.Name() // that of the Node, by which others know who has no other name
	k.api.AddNode(k.t, name)
	set.sources = map[string]any{"kubernetes": map[string]any{
		"kubeconfig": k.write(name+".kubeconfig", string(k.api.Kubeconfig(name))), "node": name, "read": words, "write": words,
	}}
	set.more = map[string]map[string]any{"announce": {"podRanges": true}}
	return k.rig.node(place, set)
}

// announces waits until a node announces these ranges of pods and no others, and another one has
// them as its peer's.
func (k kubernetes) announces(n, by *node, ranges ...string) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("%s announces %v", n.name, ranges), n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		var got []string
		for _, a := range s.Announced {
			if slices.Equal(a.Sources, []string{"kubernetes"}) {
				got = append(got, a.Range)
			}
		}
		if !slices.Equal(got, ranges) || len(got) != len(s.Announced) {
			return fmt.Errorf("it announces %+v", s.Announced)
		}
		if by == nil {
			return nil
		}
		p, err := by.peer(n)
		if err == nil && !slices.Equal(p.Ranges, ranges) {
			err = fmt.Errorf("%s has its ranges %v", by.name, p.Ranges)
		}
		return err
	})
	if by != nil { // the status shows what is planned, explain what the kernel has
		for _, r := range ranges {
			by.explainedTo(netip.MustParsePrefix(r).Addr().Next().String(), n)
		}
	}
}

// TestMeshByKubernetesAlone: nodes that know of each other what the API server says, and nothing else, are
// one network, with the ranges that Kubernetes assigns their pods. Without the API server they stay one.
func TestMeshByKubernetesAlone(t *testing.T) {
	t.Parallel()
	k := withKubernetes(t, "open", "port-restricted")
	podA, podB := k.podBehind(k.grid.All[0], bridge, 1), k.podBehind(k.grid.All[1], bridge, 2)
	a, b := k.node(k.grid.All[0], "members"), k.node(k.grid.All[1], "members")
	k.api.Assign(t, "a", podA.share)
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	k.announces(a, b, podA.share)
	k.announces(b, a)
	if text, s := b.mustStatus(); !strings.Contains(text, `warning: Node "b" has no ranges of pods`) || len(s.Announced) > 0 {
		t.Errorf("of a Node without ranges is told\n%s", text)
	}
	own := netip.PrefixFrom(b.place.Addr4, 24).Masked().String()
	k.api.Assign(t, "b", podB.share, "0.0.0.0/0", own, "::ffff:10.244.3.0/120", "everything")
	k.announces(b, a, podB.share)
	flows := func(when string) {
		begin := time.Now()
		for _, f := range []*lab.Flood{k.flood(podA.host, netip.MustParseAddr(podB.addr)), k.flood(podB.host, netip.MustParseAddr(podA.addr))} {
			t.Logf("%s: packets between pods pass after %v", when, k.awaitAfter(f, begin).Round(time.Millisecond))
			f.End()
		}
	}
	flows("at first")
	text, s := b.mustStatus()
	for _, say := range []string{"announces " + podB.share + " (Kubernetes)", "0.0.0.0/0: it is the default route", own + ": it covers " + b.place.Addr4.String(),
		`"::ffff:10.244.3.0/120" of its Node is no range`, `"everything" of its Node is no range`} {
		if !strings.Contains(text, say) {
			t.Errorf("the status does not say %q:\n%s", say, text)
		}
	}
	if len(s.Problems) != 4 {
		t.Errorf("the problems are %+v", s.Problems)
	}
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		for _, c := range awaitState(pair[0], pair[1], direct).Candidates {
			if strings.HasPrefix(c.At, "relay") {
				t.Errorf("there is no hub, and %s knows of %s", pair[0].name, c.At)
			}
		}
	}

	k.api.Away(true)
	b.kill()
	b.begin()
	b.awaitUp()
	k.announces(b, nil, podB.share) // it does not know the others, whom only the API server tells
	k.api.Away(false)
	known(a, b)
	flows("after a start without an API server")

	k.api.DeleteNode(t, "b")
	k.announces(b, nil)
	k.api.AddNode(t, "b")
	k.api.Assign(t, "b", podB.share)
	k.announces(b, a, podB.share)
	flows("with another Node of the name")
	k.requireNoClearText(a, b)
}

// TestMeshByAnnotationsAlone: the same by the annotations of Talos, which say less: WireGuard itself finds out
// by which endpoint a node is reached.
func TestMeshByAnnotationsAlone(t *testing.T) {
	t.Parallel()
	k := withKubernetes(t, "open", "open")
	k.api.MayListNodes(true)
	podA, podB := k.podBehind(k.grid.All[0], bridge, 1), k.podBehind(k.grid.All[1], bridge, 2)
	a, b := k.node(k.grid.All[0], "annotations"), k.node(k.grid.All[1], "annotations")
	k.api.Assign(t, "a", podA.share)
	k.api.Assign(t, "b", podB.share)
	together(a, b)
	k.announces(a, b, podA.share)
	k.announces(b, a, podB.share)
	begin := time.Now()
	k.awaitAfter(k.flood(podA.host, netip.MustParseAddr(podB.addr)), begin)
	k.awaitAfter(k.flood(podB.host, netip.MustParseAddr(podA.addr)), begin)
	awaitState(a, b, direct)
	k.requireNoClearText(a, b)
}

// TestMeshAPIServerInARange: a peer announces where the API server is. Its address is a hole in that range, and
// the node hears of Kubernetes as before: the mesh never needs itself.
func TestMeshAPIServerInARange(t *testing.T) {
	t.Parallel()
	k := withKubernetes(t, "open", "port-restricted")
	around := netip.PrefixFrom(netip.MustParseAddr(lab.HubAddr), 24).Masked().String()
	a := k.nodeWith(k.grid.All[0], settings{ranges: []string{around}}, "members")
	b := k.nodeWith(k.grid.All[1], settings{mesh: map[string]any{"accept": []string{"10.0.0.0/8", around}}}, "members")
	together(a, b)
	known(a, b)
	k.eventually("the rest of the range is a's for b", b.role, func() error {
		out, err := b.verb("explain", netip.MustParseAddr(lab.HubAddr).Next().String())
		if err == nil && !strings.Contains(out, "path:") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	k.eventually("b sends to the API server without a", b.role, func() error {
		out, err := b.verb("explain", lab.HubAddr)
		if err == nil && !strings.Contains(out, "is reached without the mesh") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	k.api.Away(true) // and all connections end
	k.api.Away(false)
	k.api.Assign(t, "b", "10.244.7.0/24")
	k.announces(b, a, "10.244.7.0/24")
}
