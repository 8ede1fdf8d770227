// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mustStatus is what a node says of itself as text and as data.
func (n *node) mustStatus() (string, meshStatus) {
	n.rig.t.Helper()
	text, err := n.verb("status")
	if err != nil {
		n.rig.t.Fatal(err)
	}
	s, err := n.status()
	if err != nil {
		n.rig.t.Fatal(err)
	}
	return text, s
}

// TestMeshWrongSecret: a node with another secret is alone in another cluster, though it
// asks the same services. Its status says so, and which secret it has; the others hear
// nothing of it.
func TestMeshWrongSecret(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	other := filepath.Join(r.dir, "other.secret")
	id := strings.TrimSpace(r.verb(nil, "discovery", "secret", "create", other))
	r.plantFile("the other cluster's secret", other)
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	wrong := r.node(r.grid.All[2], secretIn(other))
	together(a, b, wrong)
	known(a, b)
	awaitDirect(a, b)
	text, s := wrong.mustStatus()
	if len(s.Peers) != 0 || !strings.Contains(text, "no peer is known") || !strings.Contains(text, id) || !strings.Contains(text, "tombolo discovery members") {
		t.Errorf("who has another secret is told:\n%s", text)
	}
	t.Log(text)
	for n, other := range map[*node]*node{a: b, b: a} {
		if text, s := n.mustStatus(); len(s.Peers) != 1 || s.Peers[0].Node != other.host.Name() {
			t.Errorf("%s hears of who has another secret:\n%s", n.name, text)
		}
	}
}

// TestMeshOtherName: two nodes have one secret, and their configurations give the cluster
// two names, under which each of them has run alone. They are one network, with addresses in
// two prefixes: both say so.
func TestMeshOtherName(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	named := func(name string) settings {
		return settings{more: map[string]map[string]any{"cluster": {"id": name}}}
	}
	a, b := r.node(r.grid.All[0], named("one")), r.node(r.grid.All[1], named("other"))
	b.args = append(b.args, "--leave")
	together(b)
	b.stop()
	together(a)
	together(b)
	known(a, b)
	awaitDirect(a, b)
	for _, n := range []*node{a, b} {
		r.eventually(n.name+" tells that the names differ", n.role, func() error {
			text, s := n.mustStatus()
			for _, w := range s.Warnings {
				if strings.Contains(w, "cluster.id") && strings.Contains(text, "warning: "+w) {
					return nil
				}
			}
			return fmt.Errorf("its status is\n%s", text)
		})
	}
}

// TestMeshOwnKey: a node that has the key of another, as a copied state directory gives
// it, does not start, whoever is first; the other goes on. Without the key it is a node
// like others.
func TestMeshOwnKey(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	a, b, copied := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{}), r.node(r.grid.All[2], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	key, err := os.ReadFile(filepath.Join(a.dir, "state", "wireguard.key"))
	if err != nil {
		t.Fatal(err)
	}
	r.write(copied.host.Name()+"/state/wireguard.key", string(key))
	before := r.kernel(copied.host)
	said, exit := refused(t, copied, false)
	if exit != 1 || !strings.Contains(said, "error: mesh_self: ") || !strings.Contains(said, "it holds this node's key") || !strings.Contains(said, "remove wireguard.key") {
		t.Errorf("exit %d, and it said %s", exit, said)
	}
	if after := r.kernel(copied.host); after != before {
		t.Errorf("the refusal has left\n%s\nof what was\n%s", after, before)
	}
	if _, s := a.mustStatus(); len(s.Peers) != 1 || s.Peers[0].State != direct {
		t.Errorf("the one that had the key has the peers %+v", s.Peers)
	}
	begin := time.Now()
	r.awaitAfter(a.flood(b.overlay4), begin)
	if err := os.Remove(filepath.Join(copied.dir, "state", "wireguard.key")); err != nil {
		t.Fatal(err)
	}
	together(copied)
	known(a, b, copied)
	awaitDirect(a, copied)
}

// TestMeshRangesOfOthers: what two nodes announce both has one owner, the same for
// everybody; what covers the address of a node is routed nowhere, and what nobody accepts
// not either. All are told by each node, and traffic goes on.
func TestMeshRangesOfOthers(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "dual-stack")
	shared := map[string]any{"shared": true}
	a := r.node(r.grid.All[0], settings{ranges: []string{"10.80.0.0/16"}, mesh: shared})
	b := r.node(r.grid.All[1], settings{ranges: []string{"10.80.0.0/16", "10.81.0.0/16", "198.19.7.0/24"}, mesh: shared})
	under := a.place.Addr4.String() + "/32"
	c := r.node(r.grid.All[2], settings{ranges: []string{under, "10.82.0.0/16"}})
	together(a, b, c)
	known(a, b, c)
	awaitDirect(a, b)
	awaitDirect(a, c)
	owners := map[string]bool{}
	for _, n := range []*node{a, b, c} {
		r.eventually(n.name+" tells what does not count", n.role, func() error {
			text, s := n.mustStatus()
			var kinds []string
			for _, p := range s.Problems {
				kinds = append(kinds, p.Kind+" "+p.Range)
			}
			all := strings.Join(kinds, ", ")
			want := []string{"overlap 10.80.0.0/16", "refused " + under}
			if n != b { // a node's own ranges are its own matter
				want = append(want, "refused 198.19.7.0/24")
			}
			for _, say := range want {
				if !strings.Contains(all, say) {
					return fmt.Errorf("%q is not among %s\n%s", say, all, text)
				}
			}
			return nil
		})
		_, s := n.mustStatus()
		for _, p := range s.Problems {
			if p.Kind == "overlap" {
				owners[p.Other] = true
			}
		}
	}
	if len(owners) != 1 {
		t.Errorf("the range in common has the owners %v", owners)
	}
	for _, n := range []*node{b, c} {
		if out, err := n.verb("explain", a.place.Addr4.String()); err != nil || !strings.Contains(out, "in clear") && n != b || strings.Contains(out, "10.80") {
			t.Errorf("the address of a node goes into the mesh: %v\n%s", err, out)
		}
	}
	begin := time.Now()
	r.awaitAfter(a.flood(b.overlay4), begin)
}

// TestMeshTwiceOnAMachine: while a node runs no second one starts beside it, with its
// files or with others, and what it has is not taken down. It goes on all the while.
func TestMeshTwiceOnAMachine(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	flow := a.flood(b.overlay4)
	r.awaitAfter(flow, time.Now())
	config := filepath.Join(a.dir, "mesh.yaml")
	before := r.kernel(a.host)
	tries := 0
	apart := func(more ...string) []string { // of a new member each time: who was here before is a peer from his first word on
		tries++
		return append([]string{"mesh", "--config", config, "--state-dir", filepath.Join(a.dir, fmt.Sprint("state", tries)), "--run-dir", filepath.Join(a.dir, "run2")}, more...)
	}
	free := func(health, port string) []string { // these ports, and no join line: that of the first one is used
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		var whole map[string]any
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
		delete(whole["mesh"].(map[string]any), "join")
		whole["node"].(map[string]any)["name"] = "second" // the name of two members has the smaller id
		if health != "" {
			whole["healthListen"] = "127.0.0.1:" + health
		}
		if port != "" {
			whole["mesh"].(map[string]any)["port"] = json.Number(port)
		}
		out, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		line := apart()
		line[2] = r.write("second"+health+port+".yaml", string(out))
		return line
	}
	for _, c := range []struct {
		name string
		args []string
		code string
		exit string
	}{
		{"the same files", []string{"mesh", "--config", config}, "state_busy", "exit status 1"},
		{"the same join line", apart(), "token_used", "exit status 4"},
		{"the same health port", free("", ""), "address_in_use", "exit status 1"},
		{"the same port of the mesh", free("8449", ""), "address_in_use", "exit status 1"},
		{"the same link", free("8449", "0"), "mesh_clash", "exit status 1"},
		{"mesh down", []string{"mesh", "down", "--config", config}, "state_busy", "exit status 1"},
	} {
		out, err := r.run(a.host, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.exit) || !strings.Contains(err.Error(), "error: "+c.code) || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("%s: %s%v, want %s, %s and a hint", c.name, out, err, c.exit, c.code)
		}
		t.Logf("%s: %v", c.name, err)
		if after := r.kernel(a.host); after != before {
			t.Errorf("%s has left\n%s\nof what was\n%s", c.name, after, before)
		}
	}
	r.awaitAfter(flow, time.Now())
	awaitState(a, b, direct)
}

// TestMeshCopiedState: a whole state directory on a second machine is one member at two
// places, of which nobody can say which is the right one. A status tells what to do.
func TestMeshCopiedState(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	a, b, copied := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{}), r.node(r.grid.All[2], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	for _, name := range []string{"member.key", "member.version", "wireguard.key"} {
		text, err := os.ReadFile(filepath.Join(a.dir, "state", name))
		if err != nil {
			t.Fatal(err)
		}
		r.write(copied.host.Name()+"/state/"+name, string(text))
	}
	together(copied)
	r.eventually("one of them tells that there is another", copied.role, func() error {
		for _, n := range []*node{a, copied} {
			text, s := n.mustStatus()
			if strings.Contains(strings.Join(s.Warnings, "\n"), "member_key_shared") && strings.Contains(text, "remove member.key") {
				return nil
			}
		}
		return errors.New("neither status does")
	})
}

// TestMeshByFlags: who has no configuration file names the secret, a service and a join
// line, and is a node like others.
func TestMeshByFlags(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	b.args = []string{"mesh", "--secret-file", r.secret, "--service", discoveryAt4, "--pin", r.pin, "--join", "@" + b.token(),
		"--node", b.host.Name(), "--state-dir", filepath.Join(b.dir, "state"), "--run-dir", filepath.Join(b.dir, "run")}
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	r.eventually("b is at the hub", b.role, func() error {
		_, s := b.mustStatus()
		if len(s.Hubs) == 0 || !s.Hubs[0].Connected {
			return fmt.Errorf("its hubs are %+v", s.Hubs)
		}
		return nil
	})
}
