// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestIPsecEngine: nodes with the kernel's IPsec carry traffic, with old keys and new ones, after a kill and behind a
// NAT, go without a trace, and send nothing in clear. A node with WireGuard is reached by WireGuard, and they say why.
// What other programs have of IPsec stays as it is. One node has the rights alone that unit and manifests give.
func TestIPsecEngine(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, kind(t, "symmetric"), open)
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
	a.asUnit()
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
	r.step("filters and policies that somebody removes", func(t *testing.T) { removed(t, a, b, c) })
	r.step("another port at the NAT", func(t *testing.T) { anotherPort(t, a, b) })
	r.step("new keys", func(t *testing.T) {
		for n, other := range map[*node]*node{a: b, b: a} {
			n.rotate()
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
		a.kill() // TestIPsecSizes kills all
		together(a)
		a.requireLink("xfrm")
		both(t)
		untouched()
	})
	r.step("killed, and taken away", func(t *testing.T) {
		a.down()
		r.requireTraces(a, bare[a])
		r.requireIPsec(a, others[a])
	})
	r.step("no trace", func(t *testing.T) {
		for _, n := range r.nodes {
			if n.runs() {
				n.stop()
			}
			r.requireTraces(n, bare[n])
		}
		untouched()
	})
	r.requireNoClearText(r.nodes...)
}

// removed has somebody remove what diverts packets of a to the link of WireGuard, and policies of a. Packets flow again
// soon.
func removed(t *testing.T, a, b, c *node) {
	r := a.rig
	for what, harm := range map[string]func(link netlink.Link) error{
		"filters": func(link netlink.Link) error {
			return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
				Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		},
		"policies": func(link netlink.Link) error {
			all, err := netlink.XfrmPolicyList(netlink.FAMILY_V4)
			for _, p := range all {
				if p.Ifid == int(link.(*netlink.Xfrmi).Ifid) {
					err = errors.Join(err, netlink.XfrmPolicyDel(&p))
				}
			}
			return err
		},
	} {
		to := map[string]*node{"filters": c, "policies": b}[what]
		f := a.flood(to.overlay4)
		r.awaitAfter(f, time.Now())
		if err := a.host.Do(func() error {
			link, err := netlink.LinkByName("tombolo0")
			if err != nil {
				return err
			}
			return harm(link)
		}); err != nil {
			t.Fatal(err)
		}
		t.Attr("figure", fmt.Sprintf("somebody removes %s: packets flow again after %v", what,
			r.awaitAfter(f, time.Now()).Round(10*time.Millisecond)))
		f.End()
	}
}

// asUnit has a node run with the rights of deploy/systemd/tombolo-mesh.service, and those of a pod.
func (n *node) asUnit() {
	n.confined = &lab.Confinement{Keep: []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, Writable: []string{n.dir, "/proc/sys/net"}}
}

// anotherPort has the NAT of b forget which port it has given to b, while packets flow: it gives another one.
func anotherPort(t *testing.T, a, b *node) {
	r := a.rig
	to, back := a.flood(b.overlay4), b.flood(a.overlay6)
	defer to.End()
	defer back.End()
	for _, f := range []*lab.Flood{to, back} {
		r.awaitAfter(f, time.Now())
	}
	before := a.mustPeer(b).Path
	if err := b.place.Forget(); err != nil {
		t.Fatal(err)
	}
	moment := time.Now()
	for _, f := range []*lab.Flood{to, back} {
		t.Attr("figure", fmt.Sprintf("another port at the NAT: packets of %s flow again after %v", f,
			r.awaitAfter(f, moment).Round(10*time.Millisecond)))
	}
	r.eventually("a sends to another port than "+before, a.role, func() error {
		if now := a.mustPeer(b).Path; now == before {
			return errNotYet
		}
		return nil
	})
}

// down takes away what a node leaves that is killed, after somebody has removed its link. Before that it is refused,
// though the command does not know of the node.
func (n *node) down() {
	r := n.rig
	r.t.Helper()
	if out, err := r.run(n.host, "mesh", "down"); err == nil || !strings.Contains(err.Error(), "a mesh runs") {
		r.t.Errorf("beside a node that runs it ends with %v\n%s", err, out)
	}
	n.kill()
	link, err := n.host.Netlink().LinkByName("tombolo0")
	if err == nil {
		err = n.host.Netlink().LinkDel(link)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.run(n.host, "mesh", "down", "--config", filepath.Join(n.dir, "mesh.yaml"))
	if err != nil || !strings.Contains(out, " states of IPsec") {
		r.t.Errorf("it has said (%v):\n%s", err, out)
	}
	if out, err := r.run(n.host, "mesh", "down", "--config", filepath.Join(n.dir, "mesh.yaml")); err != nil ||
		!strings.Contains(out, "nothing of a mesh is left") {
		r.t.Errorf("the second time it has said (%v):\n%s", err, out)
	}
}

// requireIPsec checks that a host has of IPsec what others have, and no more.
func (r *rig) requireIPsec(n *node, others []string) {
	r.t.Helper()
	if all, err := lab.AllIPsec(n.host); err != nil || !slices.Equal(all, others) {
		r.t.Errorf("%s has (%v)\n%s\nwant what others have:\n%s", n.name, err, strings.Join(all, "\n"),
			strings.Join(others, "\n"))
	}
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
