// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestIPsecEngine: nodes with the kernel's IPsec carry traffic, with old keys and new ones, after a kill and behind a
// NAT, go without a trace, and send nothing in clear. A node with WireGuard is reached by WireGuard, and they say why.
// What other programs have of IPsec stays as it is.
func TestIPsecEngine(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, kind(t, "port-restricted"), open)
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	r.startDiscovery()
	a, b, c := r.withEngine(0, meshconf.IPsec), r.withEngine(1, meshconf.IPsec), r.withEngine(2, meshconf.Userspace)
	t.Cleanup(func() {
		for _, n := range []*node{a, b} {
			if t.Failed() {
				t.Logf("%s has %s", n.name, n.xfrm())
			}
		}
	})
	bare, others := map[*node]string{}, map[*node][]string{}
	for _, n := range []*node{a, b} {
		if others[n], err = lab.OthersIPsec(n.host); err != nil {
			t.Fatal(err)
		}
	}
	untouched := func() {
		r.t.Helper()
		for n, want := range others {
			r.requireOthers(n, want)
		}
	}
	for _, n := range r.nodes {
		bare[n] = r.traces(n.host)
	}
	together(a, b, c)
	untouched()
	for _, n := range []*node{a, b} {
		n.requireEngine(meshconf.IPsec, "mesh.engine says so")
		n.requireLink("xfrm")
	}
	a.requireShown()
	both := func(t *testing.T) {
		reach(a, b)
		reach(b, a)
	}
	r.step("traffic", both)
	r.step("shown", func(t *testing.T) {
		text, err := a.verb("status", "--candidates")
		if err != nil || !strings.Contains(text, "aes-256-gcm") || !strings.Contains(text, "sends and receives") {
			t.Errorf("the status (%v) shows no tunnel:\n%s", err, text)
		}
		if text, err := a.verb("explain", b.overlay4.String()); err != nil || !strings.Contains(text, "ipsec: from ") {
			t.Errorf("explain (%v) does not say by which keys:\n%s", err, text)
		}
		for _, series := range []string{`tombolo_mesh_ipsec_packets_total{direction="sent"}`,
			`tombolo_mesh_ipsec_packets_total{direction="received"}`, "tombolo_mesh_ipsec_sequence_used"} {
			r.eventually(series, a.role, func() error {
				if m := a.metrics(); m.value(series) <= 0 {
					return errors.New(m.of("tombolo_mesh_ipsec"))
				}
				return nil
			})
		}
	})
	r.step("another engine", func(t *testing.T) {
		reach(a, c)
		reach(c, b)
		if text, err := a.verb("status"); err != nil || !strings.Contains(text, "engine wireguard beside it: for nodes without ipsec, 1 peer now") {
			t.Errorf("the status (%v) does not say how %s is reached:\n%s", err, c.name, text)
		}
	})
	r.step("new keys", func(t *testing.T) {
		for n, other := range map[*node]*node{a: b, b: a} {
			if out, err := n.verb("keys", "rotate"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			after, err := n.status()
			if err != nil || after.PublicKey == n.started.PublicKey {
				t.Errorf("%s has its old key %s (%v)", n.name, after.PublicKey, err)
			}
			awaitKey(other, n, after.PublicKey)
			both(t)
		}
		untouched()
	})
	r.step("killed", func(t *testing.T) {
		for _, n := range []*node{a, b} {
			n.kill()
			together(n)
			n.requireLink("xfrm")
			both(t)
		}
		untouched()
	})
	r.step("no trace", func(t *testing.T) {
		for _, n := range r.nodes {
			n.stop()
			r.requireTraces(n, bare[n])
		}
		untouched()
	})
	r.requireNoClearText(r.nodes...)
}

// requireOthers checks that other programs have what they had of IPsec.
func (r *rig) requireOthers(n *node, want []string) {
	r.t.Helper()
	all, err := lab.AllIPsec(n.host)
	for _, w := range want {
		if err != nil || !slices.Contains(all, w) {
			r.t.Errorf("%s has no %s any more (%v), but\n%s", n.name, w, err, strings.Join(all, "\n"))
		}
	}
}

// xfrm is what the kernel of a node has counted of IPsec's errors, and on its links.
func (n *node) xfrm() string {
	links, err := n.host.Netlink().LinkList()
	var out strings.Builder
	for _, l := range links {
		fmt.Fprintf(&out, "\nlink %s: %+v", l.Attrs().Name, l.Attrs().Statistics)
	}
	err = errors.Join(err, n.host.Do(func() error {
		stat, err := os.ReadFile("/proc/thread-self/net/xfrm_stat")
		fmt.Fprintf(&out, "\n%s", stat)
		return err
	}))
	return fmt.Sprint(out.String(), err)
}
