// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"

// fromN2 lets the node n2, and nobody else, into a port of this node's range.
const fromN2 = head + "- name: web\n  callers: [\"spiffe://t/cluster/c1/node/n2\"]\n  allow: [\"10.0.1.0/24:80\"]\n"

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func called(p topology.Peer) string { return "spiffe://t/cluster/c1/node/" + p.Node }

// admits walks a packet that came by the link through what is in force: the first of its
// connection and a later one, which are to be treated alike; or an answer.
func (r *rig) admits(src, dst string, port uint16, answer bool) bool {
	have, _ := r.kernel.Kernel.Observe()
	p := plan.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), In: "tombolo0", Out: "cni0", Proto: 6, Port: port, Established: answer, Reply: answer}
	later := p
	later.Established = true
	accepts := have.Tables[0].Walk("forward", &p).Do == "accept"
	if (have.Tables[0].Walk("forward", &later).Do == "accept") != accepts {
		r.t.Errorf("of a connection from %s to port %d the first packet is not treated as the others are", src, port)
	}
	return accepts
}

func TestAPolicyIsInForceForThePeersThereAre(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "p.yaml"), fromN2)
	inBubble(t, func(p *Parts) { p.Caller = called }, func(t *testing.T, r *rig) {
		if err := r.Reload([]string{file}, "c1"); err != nil {
			t.Fatal(err)
		}
		in := input(3)
		in.Members[0].Addresses = addrs("192.0.2.2")
		if err := r.Prepare(in); err != nil {
			t.Fatal(err)
		}
		r.link()
		r.start()
		r.Set(in)
		r.settle()
		allows := func(what string, want map[string]bool) {
			t.Helper()
			for src, ok := range want {
				if r.admits(src, "10.0.1.7", 80, false) != ok {
					t.Errorf("%s: from %s: %v is expected", what, src, ok)
				}
			}
		}
		// By its own address a peer comes to us beside the mesh: within it nothing begins from there.
		allows("n2 is known", map[string]bool{"10.0.2.7": true, "100.112.0.2": true, "192.0.2.2": false, "10.0.3.7": false})
		if r.admits("10.0.2.7", "10.0.1.7", 81, false) || !r.admits("10.0.3.7", "10.0.1.7", 81, true) {
			t.Error("another port, and an answer to this side")
		}
		// Its range moves to another: so does nothing of what it may.
		in.Members[0].Ranges = nil
		in.Members[1].Ranges = append(in.Members[1].Ranges, netip.MustParsePrefix("10.0.2.0/24"))
		r.Set(in)
		r.settle()
		allows("the range has moved", map[string]bool{"10.0.2.7": false, "100.112.0.2": true})
		in = input(1)
		r.Set(in)
		r.settle()
		allows("n2 is gone", map[string]bool{"10.0.2.7": false, "100.112.0.2": false})
		in = input(2)
		r.Set(in)
		r.settle()
		allows("n2 is back", map[string]bool{"10.0.2.7": true})

		// What only changes how it goes with peers lowers nothing again.
		before := len(r.kernel.Log)
		in.Health = map[string]topology.Health{"m0002": {Down: true}}
		r.Set(in)
		r.settle()
		if steps := r.kernel.Log[before:]; len(steps) != 0 {
			t.Errorf("a peer is down:\n%s", plan.Print(steps))
		}

		// A file that is refused changes nothing.
		write(t, file, fromN2+"- name: bad\n  uids: [0]\n  allow: [\"10.0.1.0/24\"]\n")
		err := r.Reload([]string{file}, "c1")
		if f := fault.From(err); !fault.Has(err, fault.CodeConfig) || !strings.Contains(f.Why, file+":8:") {
			t.Errorf("refused with %v", err)
		}
		r.settle()
		allows("a bad file", map[string]bool{"10.0.2.7": true, "10.0.3.7": false})
		if s := r.Status().Policy; s.Fault == nil || s.Rules != 1 || len(s.Files) != 1 {
			t.Errorf("status %+v", s)
		}
		if r.metric("tombolo_mesh_policy_reloads_total", "config_invalid") != 1 || r.metric("tombolo_mesh_policy_reloads_total", "ok") != 1 {
			t.Error("metrics of readings")
		}
		write(t, file, strings.Replace(fromN2, "node/n2", "node/*", 1))
		if err := r.Reload([]string{file}, "c1"); err != nil {
			t.Fatal(err)
		}
		in = input(3)
		r.Set(in)
		r.settle()
		allows("another rule", map[string]bool{"10.0.2.7": true, "10.0.3.7": true})
		if s := r.Status().Policy; s.Fault != nil {
			t.Errorf("status %+v", s)
		}
		if err := r.Reload(nil, "c1"); err != nil {
			t.Fatal(err)
		}
		r.settle()
		if !r.admits("10.0.2.7", "10.0.1.7", 81, false) {
			t.Error("without a policy not all is allowed")
		}
	})
}

// Without names nobody is a caller.
func TestWhoHasNoNameIsNoCaller(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "p.yaml"), strings.Replace(fromN2, "spiffe://t/cluster/c1/node/n2", "*", 1))
	for name, caller := range map[string]func(topology.Peer) string{"no names": nil, "an empty one": func(topology.Peer) string { return "" }} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(p *Parts) { p.Caller = caller }, func(t *testing.T, r *rig) {
				if err := r.Reload([]string{file}, "c1"); err != nil {
					t.Fatal(err)
				}
				r.link()
				r.start()
				r.Set(input(2))
				r.settle()
				if r.admits("10.0.2.7", "10.0.1.7", 80, false) {
					t.Error("it is let in")
				}
			})
		})
	}
}

// TestADenyRuleHoldsUntilSomebodyElseIsVouchedFor: it is about connections that there are too.
func TestADenyRuleHoldsUntilSomebodyElseIsVouchedFor(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "p.yaml"), head+"- name: all\n  allow: [\"*\"]\n- name: not-n2\n  callers: [n2]\n  deny: [\"*\"]\n")
	vouched := map[string]bool{}
	caller := func(p topology.Peer) string {
		if !vouched[p.Node] {
			return ""
		}
		return called(p)
	}
	inBubble(t, func(p *Parts) { p.Caller = caller }, func(t *testing.T, r *rig) {
		if err := r.Reload([]string{file}, "c1"); err != nil {
			t.Fatal(err)
		}
		r.link()
		r.start()
		for _, now := range []struct {
			names  []string
			n2, n3 bool
		}{{nil, false, false}, {[]string{"n3"}, false, true}, {[]string{"n2", "n3"}, false, true}, {[]string{"n2"}, false, false}} {
			clear(vouched)
			for _, n := range now.names {
				vouched[n] = true
			}
			r.Set(input(3))
			r.settle()
			if n2, n3 := r.admits("10.0.2.7", "10.0.1.7", 80, false), r.admits("10.0.3.7", "10.0.1.7", 80, false); n2 != now.n2 || n3 != now.n3 {
				t.Errorf("a hub has vouched for %v: n2 is let in: %v, n3: %v", now.names, n2, n3)
			}
		}
		e, err := r.Explain(t.Context(), netip.MustParseAddr("10.0.3.7"))
		if text := e.String(); err != nil || !strings.Contains(text, "no hub has vouched for a name of 10.0.3.7") || !strings.Contains(text, "do drop") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}

func TestFilesOfAPolicyAreRefusedWithTheirPlace(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string { return write(t, filepath.Join(dir, name), text) }
	many := head
	for i := range limit.PolicyLines/6 + 1 { // an entry with a port is three lines in each family
		many += fmt.Sprintf("- name: r%d\n  callers: [\"spiffe://t/cluster/c1/node/nobody\"]\n  allow: [\"*:%d\"]\n", i, i+1)
	}
	file("list.txt", "10.0.1.0/24\nnonsense\n")
	for _, tc := range []struct {
		name, text string
		says       []string
	}{
		{"good", fromN2, nil},
		{"no YAML", "{", []string{":1:"}},
		{"an unknown field", head + "- name: a\n  allow: [\"*:80\"]\n  colour: red\n", []string{":6:"}},
		{"another kind", strings.Replace(fromN2, "AccessPolicy", "MeshConfig", 1), []string{":2:7: kind"}},
		{"users", head + "- name: a\n  uids: [0]\n  allow: [\"*:80\"]\n", []string{":5:", "no user"}},
		{"flows", head + "- name: a\n  flows: [dial]\n  allow: [\"*:80\"]\n", []string{":5:", "flows"}},
		{"names", head + "- name: a\n  allow: [\"example.com:80\"]\n", []string{":5:", "write ranges"}},
		{"two mistakes", head + "- name: a\n  uids: [0]\n  allow: [\"x.example:80\"]\n", []string{"uids", "allow"}},
		{"a list", head + "- name: a\n  allow: [\"@l\"]\nlists:\n- name: l\n  file: list.txt\n", []string{"list.txt:2:1"}},
		{"a list that is not there", head + "- name: a\n  allow: [\"@l\"]\nlists:\n- name: l\n  file: none.txt\n", []string{":8:", "cannot be read"}},
		{"more lines than possible, if somebody comes", many, []string{"at most 4096"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := file("p.yaml", tc.text)
			rules, err := ReadAccess([]string{path}, "c1")
			if tc.says == nil {
				if err != nil || rules.Size() != 1 {
					t.Fatalf("%v", err)
				}
				return
			}
			if rules != nil || !fault.Has(err, fault.CodeConfig) || fault.From(err).Next == "" {
				t.Fatalf("%v, %v", rules, err)
			}
			for _, s := range tc.says {
				if strings.HasPrefix(s, ":") {
					s = path + s
				}
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v\ndoes not name %q", err, s)
				}
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		for _, path := range []string{filepath.Join(dir, "none.yaml"), dir} {
			if _, err := ReadAccess([]string{path}, "c1"); !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v", err)
			}
		}
		if rules, err := ReadAccess(nil, "c1"); rules != nil || err != nil {
			t.Errorf("none: %v, %v", rules, err)
		}
	})
	t.Run("a bad one beside a good one", func(t *testing.T) {
		rules, err := ReadAccess([]string{file("good.yaml", fromN2), file("bad.yaml", "{")}, "c1")
		if rules != nil || err == nil || !strings.Contains(err.Error(), "bad.yaml") || strings.Contains(err.Error(), "good.yaml") {
			t.Errorf("%v, %v", rules, err)
		}
	})
}

// Rules that cannot be lowered let nothing new in.
func TestWhatCannotBeLoweredLetsNothingIn(t *testing.T) {
	// Which cannot come from a file: Reload would have refused it.
	path := write(t, filepath.Join(t.TempDir(), "p.yaml"), head+"- name: a\n  allow: [\"*:80\"]\n")
	rules, err := ReadAccess([]string{path}, "c1")
	if err != nil {
		t.Fatal(err)
	}
	for range limit.PolicyLines {
		rules.policies = append(rules.policies, rules.policies[0])
	}
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.Use(rules)
		r.link()
		r.start()
		r.Set(input(2))
		r.settle()
		if r.admits("10.0.2.7", "10.0.1.7", 80, false) || !r.admits("10.0.2.7", "10.0.1.7", 80, true) {
			t.Error("it is open, or closed to answers")
		}
		if s := r.Status(); !s.InForce || s.Policy.Closed == nil || s.Policy.Fault != nil {
			t.Errorf("status %+v", s)
		}
		if err := r.Prepare(input(2)); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("a start: %v", err)
		}
		rules.policies = rules.policies[:1]
		r.Use(&Rules{cluster: "c1", files: rules.files, policies: rules.policies})
		r.settle()
		if s := r.Status(); s.Policy.Closed != nil || !r.admits("10.0.2.7", "10.0.1.7", 80, false) {
			t.Errorf("status %+v", s)
		}
		if n := r.logged("level=ERROR"); n != 1 {
			t.Errorf("%d errors are logged", n)
		}
	})
}

// TestWhatAPolicySaysOfAnAddress: the lines that look at it, as a peer's user would ask.
func TestWhatAPolicySaysOfAnAddress(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "p.yaml"), fromN2)
	inBubble(t, func(p *Parts) { p.Caller = called }, func(t *testing.T, r *rig) {
		if err := r.Reload([]string{file}, "c1"); err != nil {
			t.Fatal(err)
		}
		r.link()
		r.start()
		r.Set(input(3))
		r.settle()
		for addr, want := range map[string]bool{"10.0.2.7": true, "10.0.3.7": false} {
			e, err := r.Explain(t.Context(), netip.MustParseAddr(addr))
			if err != nil || !e.Ruled || strings.Contains(strings.Join(e.Lines, "\n"), "dport 80") != want || !strings.Contains(e.String(), "anything else: drop") ||
				!strings.Contains(e.String(), "a hub has vouched for "+addr+" as spiffe://t/cluster/c1/node/n") {
				t.Errorf("%s: %v %+v\n%s", addr, err, e.Lines, e)
			}
		}
		if e, err := r.Explain(t.Context(), netip.MustParseAddr("8.8.8.8")); err != nil || e.Ruled {
			t.Errorf("of who is no peer: %v, %s", err, e)
		}
	})
}

// TestGoverningFiles are those of the policy and the lists that they name, also of a policy
// that is refused: a change of each may mend it.
func TestGoverningFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	inBubble(t, nil, func(t *testing.T, r *rig) {
		write(t, file, "junk")
		if err := r.Reload([]string{file}, "c1"); err == nil || !slices.Equal(r.Governing(), []string{file}) {
			t.Errorf("%v, and it is governed by %v", err, r.Governing())
		}
		write(t, file, head+"- name: a\n  sources: [\"@l\"]\n  allow: [\"10.0.1.0/24:80\"]\nlists:\n- name: l\n  file: list\n")
		err := r.Reload([]string{file}, "c1")
		if want := []string{file, filepath.Join(dir, "list")}; err == nil || !slices.Equal(r.Governing(), want) {
			t.Errorf("%v, and it is governed by %v, want %v", err, r.Governing(), want)
		}
	})
}
