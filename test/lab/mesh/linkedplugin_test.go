// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
)

// translating has sources set as network plugins do, for what is no pod of their own cluster.
const translating = `nft add table ip cni
nft add chain ip cni post { type nat hook postrouting priority 100 ; }
nft add rule ip cni post ip saddr 10.99.0.0/16 oifname tombolo0 masquerade
nft add rule ip cni post ip daddr 10.99.0.0/16 oifname cni0 masquerade`

// plugin is a network plugin as far as it sets sources, and drops what a NetworkPolicy forbids. Each text has a command
// a line. NODE stands for the range of the node's pods, POD for an address.
type plugin struct {
	name string
	// begin makes its chain and lets the kernel's ask it; rules are written into it, again each time that it looks;
	// front puts itself before all others again.
	begin, rules, front string
	forbid, allow       string // what is forwarded to POD
	end                 string
}

// plugins are how Flannel, Calico and kube-router write their rules, with each backend, and one with nftables alone.
func plugins() (all []plugin) {
	for _, backend := range []string{"iptables-nft", "iptables-legacy"} {
		p := plugin{name: "flannel by " + backend,
			begin: "BACKEND -N FLANNEL-POSTRTG\nBACKEND -A POSTROUTING -m comment --comment flanneld -j FLANNEL-POSTRTG",
			rules: `BACKEND -F FLANNEL-POSTRTG
BACKEND -A FLANNEL-POSTRTG -s NODE -d NODE -m comment --comment flanneld -j RETURN
BACKEND -A FLANNEL-POSTRTG -s NODE ! -d 224.0.0.0/4 -m comment --comment flanneld -j MASQUERADE --random-fully
BACKEND -A FLANNEL-POSTRTG ! -s NODE -d NODE -m comment --comment flanneld -j MASQUERADE --random-fully`,
			front: "BACKEND -D POSTROUTING -m comment --comment flanneld -j FLANNEL-POSTRTG\n" +
				"BACKEND -I POSTROUTING 1 -m comment --comment flanneld -j FLANNEL-POSTRTG",
			forbid: "FILTER -I FORWARD 1 -d POD -p tcp -j DROP", allow: "FILTER -D FORWARD -d POD -p tcp -j DROP",
			end: "BACKEND -D POSTROUTING -m comment --comment flanneld -j FLANNEL-POSTRTG\n" +
				"BACKEND -F FLANNEL-POSTRTG\nBACKEND -X FLANNEL-POSTRTG"}
		calico := plugin{name: "calico by " + backend,
			begin: "BACKEND -N cali-nat-outgoing\nBACKEND -N cali-POSTROUTING\n" +
				"BACKEND -A cali-POSTROUTING -j cali-nat-outgoing\n" +
				"BACKEND -I POSTROUTING 1 -m comment --comment cali:O3lYWMrLQYEMJtB5 -j cali-POSTROUTING",
			rules: "BACKEND -F cali-nat-outgoing\n" +
				"BACKEND -A cali-nat-outgoing -s NODE ! -d NODE -j MASQUERADE --random-fully",
			front: "BACKEND -D POSTROUTING -m comment --comment cali:O3lYWMrLQYEMJtB5 -j cali-POSTROUTING\n" +
				"BACKEND -I POSTROUTING 1 -m comment --comment cali:O3lYWMrLQYEMJtB5 -j cali-POSTROUTING",
			forbid: p.forbid, allow: p.allow,
			end: "BACKEND -D POSTROUTING -m comment --comment cali:O3lYWMrLQYEMJtB5 -j cali-POSTROUTING\n" +
				"BACKEND -F cali-POSTROUTING\nBACKEND -X cali-POSTROUTING\n" +
				"BACKEND -F cali-nat-outgoing\nBACKEND -X cali-nat-outgoing"}
		router := plugin{name: "kube-router by " + backend,
			rules:  "BACKEND -I POSTROUTING 1 -s NODE ! -d NODE -j MASQUERADE --random-fully",
			front:  "BACKEND -D POSTROUTING -s NODE ! -d NODE -j MASQUERADE --random-fully",
			end:    "BACKEND -D POSTROUTING -s NODE ! -d NODE -j MASQUERADE --random-fully",
			begin:  "FILTER -P FORWARD DROP\nFILTER -A FORWARD -s NODE -j ACCEPT\nFILTER -A FORWARD -d NODE -j ACCEPT",
			forbid: p.forbid, allow: p.allow}
		router.front += "\n" + router.rules
		router.begin += "\nFILTER -A FORWARD -i tombolo0 -o tombolo0 -j ACCEPT" // of a gateway; nothing of ours opens it
		router.end += "\nFILTER -P FORWARD ACCEPT\nFILTER -F FORWARD"
		for _, q := range []plugin{p, calico, router} {
			all = append(all, q.by(backend))
		}
	}
	return append(all, plugin{name: "nftables",
		begin: "nft add table ip plug\nnft add chain ip plug post { type nat hook postrouting priority 100 ; }\n" +
			"nft add chain ip plug passed { type filter hook forward priority 0 ; }",
		rules: "nft flush chain ip plug post\n" +
			"nft add rule ip plug post ip saddr NODE ip daddr != NODE masquerade fully-random",
		front:  "nft insert rule ip plug post ip saddr != NODE ip daddr NODE masquerade fully-random",
		forbid: "nft add rule ip plug passed ip daddr POD drop", allow: "nft flush chain ip plug passed",
		end: "nft delete table ip plug"})
}

// by writes the rules with one of the programs.
func (p plugin) by(backend string) plugin {
	with := strings.NewReplacer("BACKEND", backend+" -w 5 -t nat", "FILTER", backend+" -w 5 -t filter").Replace
	return plugin{p.name, with(p.begin), with(p.rules), with(p.front), with(p.forbid), with(p.allow), with(p.end)}
}

// plug has the plugin of a node do something.
func (r *linkedRig) plug(n *node, pods pod, text string) {
	r.t.Helper()
	text = strings.NewReplacer("NODE", pods.share, "POD", pods.addr, " ;", ` \;`).Replace(text)
	if out, err := r.command(n.host, nil, "sh", "-ec", text); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// everywhere has the plugins of all nodes do something.
func (r *linkedRig) everywhere(text string) {
	r.t.Helper()
	for _, c := range r.linked {
		for i, n := range c.nodes {
			r.plug(n, c.pods[i], text)
		}
	}
}

// plugins has network plugins of all kinds set sources, and drop what they forward. Each shows at an address that is
// not linked that it does translate.
func (r *linkedRig) plugins(t *testing.T) {
	if err := r.speaks(r.grid.Hub); err != nil {
		t.Fatal(err)
	}
	for _, n := range append(r.west.nodes, r.east.nodes...) {
		r.shell(n.host, "nft delete table ip cni")
	}
	for _, p := range plugins() {
		if !r.step(p.name, func(t *testing.T) { r.plugged(t, p) }) {
			return
		}
	}
	r.step("nothing is left", r.nothingLeft)
}

// plugged has a plugin at all nodes.
func (r *linkedRig) plugged(t *testing.T, p plugin) {
	podA, podD := r.east.pods[0], r.west.pods[2]
	d := r.west.nodes[2]
	r.everywhere(p.begin + "\n" + p.rules)
	defer r.everywhere(p.end)
	check := func(when string) {
		t.Helper()
		r.reaches(when+", elsewhere it sets the source", podD.host, lab.HubAddr, d.place.Addr4.String())
		r.reaches(when+", it stays from the east", podA.host, podD.addr, podA.addr)
		r.reaches(when+", it stays from the west", podD.host, podA.addr, podD.addr)
	}
	check("at first")
	r.everywhere(p.rules)
	r.everywhere(p.front)
	check("when the plugin has written its rules again")

	r.forbids(t, p, func() *node { return d })
	r.forbids(t, p, func() *node { return r.carrier(podD.addr) })
	r.reaches("what is allowed again passes", podA.host, podD.addr, podA.addr)
}

// forbids has the plugin of a node forbid what reaches the last pod. On a busy machine another gateway may carry its
// range meanwhile: then that one's has to.
func (r *linkedRig) forbids(t *testing.T, p plugin, at func() *node) {
	t.Helper()
	podA, podD := r.east.pods[0], r.west.pods[2]
	for range 5 {
		n := at()
		r.plug(n, podD, p.forbid)
		passed := r.passes(podA.host, podD.addr)
		r.plug(n, podD, p.allow)
		if !passed {
			return
		}
		if at() == n {
			t.Errorf("the plugin of %s forbids what reaches the pod", n.name)
			return
		}
	}
	t.Error("another gateway carries the range each time")
}

// passes tries once, for a short time.
func (r *linkedRig) passes(from *lab.Host, to string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), refusedWithin)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", net.JoinHostPort(to, strconv.Itoa(tells)))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// counts are what a kernel's rules have seen.
var counts = regexp.MustCompile(`packets \d+ bytes \d+|\[\d+:\d+\]`)

// nothingLeft ends a node beside a plugin: what the plugin has stays, and nothing of ours.
func (r *linkedRig) nothingLeft(t *testing.T) {
	d, podD := r.west.nodes[2], r.west.pods[2]
	all := plugins()
	for _, p := range []plugin{all[0], all[len(all)-1]} {
		r.plug(d, podD, p.begin+"\n"+p.rules)
	}
	rules := func() (ours []string, others string) {
		t.Helper()
		for _, part := range strings.SplitAfter(strings.TrimPrefix(r.kernel(d.host), "# nft list ruleset\n"), "\n}\n") {
			if strings.Contains(part, "tombolo_mesh") || strings.Contains(part, link) || strings.Contains(part, "32500:") {
				ours = append(ours, part)
			} else if strings.Contains(part, "table ip") {
				others += counts.ReplaceAllString(part, "")
			}
		}
		return ours, others
	}
	_, before := rules()
	d.stop()
	ours, after := rules()
	if len(ours) > 0 || before != after || !strings.Contains(after, "FLANNEL-POSTRTG") {
		t.Errorf("after the mesh's end, of ours there is %q, and of the plugins\n%s\nof\n%s", ours, after, before)
	}
	d.begin()
	d.awaitUp()
	for _, p := range []plugin{all[0], all[len(all)-1]} {
		r.plug(d, podD, p.end)
	}
	r.reaches("when the mesh is back, the source stays", r.east.pods[0].host, podD.addr, r.east.pods[0].addr)
}
