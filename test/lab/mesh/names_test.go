// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// lone is a mesh on a machine where there may be others: it has a secret, a directory and names
// of its own, and knows one member, by a file.
type lone struct {
	*node
	number int
	names  map[string]any
}

// names are such that nothing of two numbers is the same.
func names(number int) map[string]any {
	own, mesh := 0x100<<(2*number), 0x200<<(2*number)
	return map[string]any{
		"link": fmt.Sprintf("mesh%d", number), "filter": fmt.Sprintf("filter%d", number), "table": 500 + number, "rule": 30000 + 10*number,
		"marks": map[string]any{"own": fmt.Sprintf("%#x", own), "mesh": fmt.Sprintf("%#x", mesh), "mask": fmt.Sprintf("%#x", own|mesh)},
	}
}

// lone makes a mesh, and starts nothing yet. Only its number's networks and ports are its.
func (r *rig) lone(place *lab.Place, number int, names map[string]any) *lone {
	r.t.Helper()
	name := fmt.Sprintf("lone%d", number)
	m := &lone{node: &node{rig: r, place: place, dir: filepath.Join(r.dir, name)}, number: number}
	secret := filepath.Join(r.dir, name+".secret")
	r.verb(nil, "discovery", "secret", "create", secret)
	r.plantFile("the secret of "+name, secret)
	m.role = r.role(name, place.Host, "mesh", "--config", m.call(names))
	r.nodes = append(r.nodes, m.node)
	return m
}

// call gives the mesh names, which count from its next start on, and returns its file.
func (m *lone) call(names map[string]any) string {
	m.rig.t.Helper()
	m.names = names
	name := filepath.Base(m.dir)
	members := m.rig.write(name+"/members.yaml", fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\nmembers:\n"+
		"- name: away\n  wireguardPublicKey: %s=\n  ranges: [10.%d.0.0/16]\n", strings.Repeat(string(rune('A'+m.number)), 42)+"A", 200+m.number))
	mesh := map[string]any{"port": 52000 + m.number, "overlay4": fmt.Sprintf("100.%d.0.0/16", 100+m.number)}
	maps.Copy(mesh, names)
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "tombolo.dev/v1alpha1", "kind": "MeshConfig",
		"cluster":      map[string]any{"secretFiles": []string{filepath.Join(m.rig.dir, name+".secret")}},
		"node":         map[string]any{"name": name, "stateDir": filepath.Join(m.dir, "state"), "runDir": filepath.Join(m.dir, "run")},
		"sources":      map[string]any{"file": members},
		"healthListen": fmt.Sprintf("127.0.0.1:%d", 8450+m.number),
		"mesh":         mesh,
	}, "", "  ")
	if err != nil {
		m.rig.t.Fatal(err)
	}
	return m.rig.write(name+"/mesh.yaml", string(text)+"\n")
}

// bearing are the lines of the kernel that bear names.
func (m *lone) bearing(names map[string]any) []string {
	m.rig.t.Helper()
	var out []string
	for line := range strings.Lines(m.rig.kernel(m.host)) {
		for _, key := range []string{"link", "filter", "table", "rule"} {
			name := fmt.Sprint(names[key])
			if slices.ContainsFunc(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n:\"@/", r) }), func(word string) bool { return word == name }) {
				out = append(out, line)
				break
			}
		}
	}
	return out
}

// started begins, and waits until it is up and has looked back.
func (m *lone) started() {
	m.rig.t.Helper()
	m.begin()
	m.awaitUp()
}

// refusedWith starts a mesh that has one name after the other from another one, which runs.
func (m *lone) refusedWith(other *lone) {
	t := m.rig.t
	t.Helper()
	before := m.rig.kernel(m.host)
	for _, key := range []string{"filter", "table", "rule", "marks"} {
		half := names(m.number)
		half[key] = other.names[key]
		m.call(half)
		if _, err := m.rig.run(m.host, m.args...); err == nil || !strings.Contains(err.Error(), "mesh_clash") {
			t.Errorf("with the %s of another mesh: %v", key, err)
		}
		if after := m.rig.kernel(m.host); after != before {
			t.Errorf("a start with its %s has left\n%s\nof what was\n%s", key, after, before)
		}
	}
}

// What a killed node has left goes at its next start, also if its names are others by then,
// and with mesh down. What a second mesh has stays as it is to the letter, and so does what
// another one has made of the names that the first one had.
func TestMeshNamesOfBefore(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, "mesh")
	g, err := lab.NewPlaces(l, kind(t, "open"))
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	place := g.All[0]
	nothing := r.kernel(place.Host)
	second := r.lone(place, 2, names(2))
	second.started()
	beside := r.kernel(place.Host)
	first := r.lone(place, 1, names(1))
	first.refusedWith(second)
	first.call(names(1))
	first.started()
	if len(first.bearing(names(1))) < 10 {
		t.Fatalf("the names are not where they are looked for:\n%s", r.kernel(place.Host))
	}
	untouched := func(what string, want string) {
		t.Helper()
		if after := r.kernel(place.Host); after != want {
			t.Errorf("%s there is\n%s\nwant\n%s", what, after, want)
		}
		if second.said("in the kernel was changed") > 0 {
			t.Errorf("%s the second mesh had to put something back", what)
		}
	}

	r.step("each name alone", func(t *testing.T) {
		for _, key := range []string{"link", "filter", "table", "rule", "marks"} {
			was, next := first.names, maps.Clone(first.names)
			next[key] = names(3)[key]
			first.kill()
			first.call(next)
			first.started()
			gone := map[string]any{key: was[key]}
			if key == "marks" {
				gone = map[string]any{"link": was[key].(map[string]any)["mesh"]}
			}
			if left := first.bearing(gone); len(left) > 0 {
				t.Errorf("%s was %v, and of that is left:\n%s", key, was[key], strings.Join(left, ""))
			}
		}
	})
	r.step("all of them", func(t *testing.T) {
		first.kill()
		first.call(names(1))
		first.started()
		if left := first.bearing(names(3)); len(left) > 0 {
			t.Errorf("of what was before is left:\n%s", strings.Join(left, ""))
		}
		first.stop()
		untouched("after a graceful end", beside)
	})
	r.step("mesh down", func(t *testing.T) {
		first.started()
		first.kill()
		config := first.call(names(3))
		if out := r.verb(first.host, "mesh", "down", "--config", config); !strings.Contains(out, "remove table inet filter1") || !strings.Contains(out, "table 501") {
			t.Errorf("it tells\n%s", out)
		}
		untouched("after mesh down", beside)
		if out := r.verb(first.host, "mesh", "down", "--config", config); out != "nothing of a mesh is left\n" {
			t.Errorf("once more it tells\n%s", out)
		}
	})
	r.step("a third one has them now", func(t *testing.T) {
		first.call(names(1))
		first.started()
		first.kill()
		third := r.lone(place, 3, names(1)) // takes over what is there
		third.started()
		with := r.kernel(place.Host)
		config := first.call(names(4))
		r.verb(first.host, "mesh", "down", "--config", config)
		untouched("after mesh down with others", with)
		first.started()
		if left := first.bearing(names(4)); len(left) < 10 {
			t.Errorf("under its new names the first one has\n%s", strings.Join(left, ""))
		}
		first.stop()
		untouched("after a start and an end with others", with)
		if third.said("in the kernel was changed") > 0 {
			t.Error("the third mesh had to put something back")
		}
		if out, err := r.run(first.host, "mesh", "down", "--config", first.call(names(1))); err == nil || !strings.Contains(err.Error(), "mesh_clash") {
			t.Errorf("mesh down with the names of another mesh: %s%v", out, err)
		}
		untouched("after mesh down of another one", with)
		third.stop()
		untouched("after the end of the third", beside)
	})
	r.step("a damaged file", func(t *testing.T) {
		first.call(names(1))
		first.started()
		first.kill()
		path := filepath.Join(first.dir, "state", "applied")
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		first.started()
		if first.said("state_corrupt") == 0 {
			t.Error("nobody is told")
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "filter1") {
			t.Errorf("it is not learned anew: %s, %v", text, err)
		}
		first.stop()
		untouched("after a damaged file", beside)
	})
	second.stop()
	if after := r.kernel(place.Host); after != nothing {
		t.Errorf("in the end there is\n%s\nof what was\n%s", after, nothing)
	}
}
