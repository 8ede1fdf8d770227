// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// tells is a port at which a pod says by which address it is reached.
const tells = 7100

// linkedCluster is a cluster with an API server of its own.
type linkedCluster struct {
	kubernetes
	name string
	// services is its range of Services.
	services string
	spec     map[string]any
	nodes    []*node
	pods     []pod
}

// linkedRig is two linked clusters, or three. What controllers do is done by mirror: each API server has all objects.
//
//	east: a           west: b, c and d           south, if it is there: e
type linkedRig struct {
	*rig
	linked            []*linkedCluster
	east, west, south *linkedCluster

	mu    sync.Mutex
	roles map[string]bool // gateways, by their nodes' names
	ready map[string]string
}

func newLinkedRig(t *testing.T) *linkedRig {
	t.Helper()
	l := labtest.New(t, "mesh")
	g, err := lab.NewPlaces(l, kind(t, "port-restricted"), kind(t, "open"), kind(t, "open"), kind(t, "open"))
	if err != nil {
		t.Fatal(err)
	}
	return linkedRigOf(bareRig(t, l, g), [][]*lab.Place{g.All[:1], g.All[1:]}, linkedOptions{})
}

// linkedOptions are what rigs of linked clusters differ in.
type linkedOptions struct {
	engine string // of all nodes; empty: the default
}

// linkedRigOf has clusters with nodes at the places.
func linkedRigOf(bare *rig, places [][]*lab.Place, o linkedOptions) *linkedRig {
	t, g := bare.t, bare.grid
	t.Helper()
	r := &linkedRig{rig: bare, roles: map[string]bool{}, ready: map[string]string{}}
	for i, name := range []string{"east", "west", "south"}[:len(places)] {
		at, err := g.Hub.Listen("tcp", fmt.Sprintf("%s:%d", lab.HubAddr, 6443+i))
		if err != nil {
			t.Fatal(err)
		}
		c := &linkedCluster{kubernetes: kubernetes{r.rig, kubetest.NewAt(t, at)}, name: name, services: fmt.Sprintf("10.%d.0.0/16", 101+i),
			spec: map[string]any{}}
		r.linked = append(r.linked, c)
		*[]**linkedCluster{&r.east, &r.west, &r.south}[i] = c
		for _, place := range places[i] {
			number := len(r.rig.nodes) + 1
			p := r.podBehind(place, bridge, number)
			r.bothFamilies(place.Host, &p, number)
			if err := r.speaks(p.host); err != nil {
				t.Fatal(err)
			}
			c.pods = append(c.pods, p)
			name := place.Host.Name()
			c.api.AddNode(t, name)
			mesh := map[string]any{"accept": []string{"10.0.0.0/8", "240.0.0.0/8", "fd99::/16"}}
			if o.engine != "" {
				mesh["engine"] = o.engine
			}
			n := r.rig.node(place, settings{
				mesh: mesh,
				sources: map[string]any{
					"kubernetes": map[string]any{"kubeconfig": r.write(name+".kubeconfig", string(c.api.Kubeconfig(name))), "node": name},
					"linked":     map[string]any{"cluster": c.name},
				}})
			c.nodes = append(c.nodes, n)
			r.ready[name] = "Ready"
		}
	}
	return r
}

// clusters gives all API servers the objects of the clusters, in their order.
func (r *linkedRig) clusters(specs ...map[string]any) {
	r.mu.Lock()
	for i, spec := range specs {
		r.linked[i].spec = spec
	}
	r.mu.Unlock()
	for _, c := range r.linked {
		var pods, accepted []any
		for _, p := range c.pods {
			for _, share := range p.shares() {
				accepted = append(accepted, share)
				pods = append(pods, map[string]any{"cidr": share, "source": "the lab"})
			}
		}
		mapped, _ := c.spec["globalCIDRsMap"].(map[string]any)
		judged := []any{} // as the host cluster would
		for cidr, as := range mapped {
			accepted, judged = append(accepted, as), append(judged, map[string]any{"cidr": cidr, "as": as})
		}
		r.put(kubetest.Clusters, c.name, map[string]any{"spec": c.spec, "status": map[string]any{
			"podCIDRs": pods, "serviceCIDRs": []any{map[string]any{"cidr": c.services, "source": "the lab"}},
			"conditions": []any{map[string]any{"type": "RangesAccepted", "status": "True"}}, "accepted": append(accepted, c.services), "mapped": judged}})
	}
}

func (r *linkedRig) put(collection, name string, o map[string]any) {
	o["metadata"] = map[string]any{"name": name}
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range r.linked {
		c.api.Put(collection, name, string(text))
	}
}

// mirror makes ClusterNodes of what nodes say to their own API servers, until the test ends.
func (r *linkedRig) mirror() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		before := map[string]string{}
		for ctx.Err() == nil {
			for _, c := range r.linked {
				for i, n := range c.nodes {
					r.mirrorOne(c, n.host.Name(), c.pods[i].shares(), before)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond): // as watches would
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

func (r *linkedRig) mirrorOne(c *linkedCluster, node string, pods []string, before map[string]string) {
	member, _ := c.api.Object(kubetest.Members, node)["spec"].(map[string]any)
	if member["publicKey"] == nil {
		return
	}
	spec := map[string]any{"clusterName": c.name, "nodeName": node, "podCIDRs": pods}
	for _, field := range []string{"publicKey", "pin", "engine", "overlay4", "overlay6", "endpoints", "mesh"} {
		if member[field] != nil {
			spec[field] = member[field]
		}
	}
	r.mu.Lock()
	if elastic, ok := c.spec["nodeElasticIPMap"].(map[string]string); ok {
		spec["elasticIP"] = elastic[node]
		spec["ip"] = member["addresses"].([]any)[0]
	}
	if r.roles[node] {
		spec["roles"] = []any{"gateway"}
	}
	status := map[string]any{"nodeStatus": r.ready[node]}
	r.mu.Unlock()
	text := fmt.Sprint(spec, status)
	if name := c.name + "." + node; before[name] != text {
		before[name] = text
		r.put(kubetest.ClusterNodes, name, map[string]any{"spec": spec, "status": status})
	}
}

func (r *linkedRig) gateways(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.roles)
	for _, n := range names {
		r.roles[n] = true
	}
}

func (r *linkedRig) setReady(node, status string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready[node] = status
}

// carrier is the node of the west that passes on what east's node sends to an address.
func (r *linkedRig) carrier(to string) *node {
	r.t.Helper()
	var found *node
	r.eventually("east's node knows through whom it reaches "+to, nil, func() error {
		out, err := r.east.nodes[0].verb("explain", to)
		if err != nil {
			return err
		}
		for _, n := range r.west.nodes {
			if strings.Contains(out, "west."+n.host.Name()) {
				found = n
				return nil
			}
		}
		return errors.New(out)
	})
	return found
}

func p2p() map[string]any { return map[string]any{"networkType": "p2p"} }

// TestLinkedClusters: pods of two clusters reach each other with their own addresses, node to node and through gateways,
// whatever a network plugin translates; with equal ranges by mapped ones; and a gateway that dies costs seconds.
func TestLinkedClusters(t *testing.T) {
	t.Parallel()
	r := newLinkedRig(t)
	r.clusters(p2p(), p2p())
	r.mirror()
	a := r.east.nodes[0]
	together(append(r.west.nodes, a)...)
	r.everywhere(translating)

	r.step("node to node", r.nodeToNode)
	r.step("an MTU", r.mtu)
	r.step("an interface", r.nics)
	r.step("IPv6 and nodes themselves", r.familiesAndNodes)
	r.step("through gateways", r.throughGateways)
	r.step("network plugins", r.plugins)
	r.step("IPv6 and nodes themselves, through gateways", r.familiesAndNodesByGateways)
	r.everywhere(translating)
	r.step("a gateway is cut off from the other cluster", r.cutOff)
	r.step("a gateway is cut off from its own cluster", r.alone)
	r.step("a gateway is killed", r.killed)
	r.step("a gateway is not ready", r.notReady)
	r.step("without API servers", r.withoutAPI)
	r.step("tombolo link check", r.checked)
	r.step("a Service", r.service)
	r.step("what a node reports", r.reported)
	r.step("mapped ranges", r.mapped)
	r.requireNoClearText(append(r.west.nodes, a)...)
}

// nodeToNode has both clusters of type p2p.
func (r *linkedRig) nodeToNode(t *testing.T) {
	d := r.west.nodes[2]
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	r.reaches("a pod of the east reaches one of the west", podA.host, podD.addr, podA.addr)
	r.reaches("and the other way", podD.host, podA.addr, podD.addr)
	if n := r.carrier(podD.addr); n != d {
		t.Errorf("it goes through %s", n.name)
	}
}

// mtu has the east bound packets to other clusters; the west does not.
func (r *linkedRig) mtu(t *testing.T) {
	a, podD := r.east.nodes[0], r.west.pods[2]
	await := func(want int) {
		t.Helper()
		r.eventually(fmt.Sprintf("the route of a has the MTU %d", want), nil, func() error {
			var routes []struct {
				Dst     string
				Metrics []struct{ MTU int }
			}
			a.ask(&routes, "ip", "-j", "route", "show", "table", "all")
			got := 0
			for _, x := range routes {
				if x.Dst == podD.share && len(x.Metrics) > 0 {
					got = x.Metrics[0].MTU
				}
			}
			if got != want {
				return fmt.Errorf("it has %d", got)
			}
			return nil
		})
	}
	await(0)
	r.clusters(map[string]any{"networkType": "p2p", "mtu": 1310}, p2p())
	await(1300)
	r.clusters(p2p(), p2p())
	await(0)
}

// nics has the node of the east find the interface that its Cluster names.
func (r *linkedRig) nics(t *testing.T) {
	a := r.east.nodes[0]
	for _, c := range []struct {
		says map[string]any
		ok   func(*report.NIC) bool
	}{
		{map[string]any{"reach": lab.HubAddr}, func(n *report.NIC) bool {
			return n != nil && len(n.Addresses) > 0 && n.Addresses[0] == a.place.Addr4 && n.Interface != ""
		}},
		{map[string]any{"interface": "eth9"}, func(n *report.NIC) bool { return n != nil && strings.Contains(n.Reason, "eth9") }},
	} {
		r.clusters(map[string]any{"networkType": "p2p", "nics": []any{c.says}}, p2p())
		r.eventually(fmt.Sprint("a reports its interface by ", c.says), nil, func() error {
			is, err := r.east.plan(a)
			if err == nil && !c.ok(is.Status.NIC) {
				err = fmt.Errorf("%+v", is.Status.NIC)
			}
			return err
		})
	}
	r.clusters(p2p(), p2p())
}

// throughGateways makes the west one of type gateway, with b and c.
func (r *linkedRig) throughGateways(t *testing.T) {
	a := r.east.nodes[0]
	d := r.west.nodes[2]
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	r.gateways("b", "c")
	r.clusters(p2p(), map[string]any{"networkType": "gateway"})
	r.eventually("d is no peer of a", nil, func() error {
		if _, err := a.status(); err != nil {
			return err
		}
		if n := r.carrier(podD.addr); n == d {
			return errors.New("it goes to d itself")
		}
		return nil
	})
	r.reaches("a pod of the east reaches one behind a gateway", podA.host, podD.addr, podA.addr)
	r.reaches("and the other way", podD.host, podA.addr, podD.addr)
}

// withoutAPI starts a node while no API server answers.
func (r *linkedRig) withoutAPI(t *testing.T) {
	a := r.east.nodes[0]
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	for _, c := range r.linked {
		c.api.Away(true)
	}
	a.kill()
	a.begin()
	a.awaitUp()
	r.reaches("a node that starts without an API server reaches the other cluster", podA.host, podD.addr, podA.addr)
	for _, c := range r.linked {
		c.api.Away(false)
	}
}

// service reaches a Service, which a proxy on each node leads to a pod of d.
func (r *linkedRig) service(t *testing.T) {
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	for _, n := range r.west.nodes {
		proxy := lab.ToAddress(n.host, netip.MustParseAddr("10.102.0.10"), netip.MustParseAddr(podD.addr))
		if err := proxy.On(); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("a pod of the east reaches a Service of the west", nil, func() error {
		_, err := r.seenAs(podA.host, "10.102.0.10")
		return err
	})
}
