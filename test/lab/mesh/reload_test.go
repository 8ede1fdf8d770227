// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMeshReload: a configuration that is refused, for itself or for its policy, is told
// with its code and its place until a good one is there, and what waits for a restart with
// the names of its settings; in text, as data, and by metrics. The node goes on meanwhile.
func TestMeshReload(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	begin := time.Now()
	flow := a.flood(b.overlay4)
	r.awaitAfter(flow, begin)
	file := filepath.Join(a.dir, "mesh.yaml")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, s := a.mustStatus(); strings.Contains(text, "warning: ") || s.Configuration.Fault != nil || s.Configuration.Waiting != nil || s.Policy != nil {
		t.Errorf("before any reload:\n%s", text)
	}
	with := func(mesh map[string]any) string {
		t.Helper()
		var whole map[string]any
		if err := json.Unmarshal(good, &whole); err != nil {
			t.Fatal(err)
		}
		for field, value := range mesh {
			section(whole, "mesh")[field] = value
		}
		text, err := json.MarshalIndent(whole, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	policy := r.write(a.host.Name()+"/policy.yaml", accessRules+"- name: web\n  allow: [nonsense/99]\n")
	wrong := with(map[string]any{"mtu": 7})
	refused := 0
	for _, c := range []struct {
		name, text string
		code, says string // empty: it is taken over
		waiting    []string
	}{
		{name: "a field is wrong", text: wrong, code: "config_invalid", says: placeOf(t, file, wrong, `"mtu"`) + ": mesh.mtu: 7 is not within 1280"},
		{name: "it is no YAML", text: "{", code: "config_invalid", says: file + ":1:"},
		{name: "its policy is wrong", text: with(map[string]any{"policies": []string{policy}}), code: "config_invalid", says: policy + ":7:11: "},
		{name: "a restart is needed", text: with(map[string]any{"mtu": 1400, "port": 7777}), waiting: []string{"mesh.port", "mesh.mtu"}},
		{name: "wrong after that", text: wrong, code: "config_invalid", says: "mesh.mtu: 7 is not within 1280", waiting: []string{"mesh.port", "mesh.mtu"}},
		{name: "as it was", text: string(good)},
	} {
		replace(r, file, c.text)
		r.eventually(c.name, a.role, func() error {
			text, s := a.mustStatus()
			is := s.Configuration
			switch {
			case c.code == "" && is.Fault != nil, c.code != "" && is.Fault == nil:
				return errors.New(text)
			case c.code != "" && (is.Fault.Code != c.code || !strings.Contains(is.Fault.Why, c.says)):
				return fmt.Errorf("it was refused with %+v, which does not say %q", is.Fault, c.says)
			case !slices.Equal(slices.Sorted(slices.Values(is.Waiting)), slices.Sorted(slices.Values(c.waiting))):
				return fmt.Errorf("%q wait for a restart, want %q", is.Waiting, c.waiting)
			}
			return nil
		})
		text, _ := a.mustStatus()
		if c.code != "" {
			refused++
			if !strings.Contains(text, "warning: the configuration is refused, and the one before stays (SIGHUP loads it again): "+c.code+": ") || !strings.Contains(text, c.says) {
				t.Errorf("%s: the status says\n%s", c.name, text)
			}
		}
		if len(c.waiting) > 0 != strings.Contains(text, "warning: changed in the configuration, and taken over at the next start only: ") ||
			!strings.Contains(text, strings.Join(c.waiting, ", ")) {
			t.Errorf("%s: of what waits the status says\n%s", c.name, text)
		}
		if c.code == "" && c.waiting == nil && strings.Contains(text, "warning: ") {
			t.Errorf("%s: it still warns\n%s", c.name, text)
		}
		m := a.metrics()
		if got := m.value(`tombolo_mesh_config_reloads_total{outcome="config_invalid"}`); got != float64(refused) {
			t.Errorf("%s: %v reloads are counted as refused, want %d", c.name, got, refused)
		}
		if got := m.value("tombolo_mesh_settings_waiting"); got != float64(len(c.waiting)) {
			t.Errorf("%s: %v settings are counted as waiting, want %d", c.name, got, len(c.waiting))
		}
	}
	if ok := a.metrics().value(`tombolo_mesh_config_reloads_total{outcome="ok"}`); ok != 2 {
		t.Errorf("%v reloads are counted as good, want 2", ok)
	}
	r.noneLost("configurations are loaded and refused", begin, time.Now(), flow)
	flow.End()
}

// placeOf is where the value of a field stands: file:line:column.
func placeOf(t *testing.T, file, text, field string) string {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, field+": "); at >= 0 {
			return fmt.Sprintf("%s:%d:%d", file, i+1, at+len(field)+3)
		}
	}
	t.Fatalf("there is no %s in\n%s", field, text)
	return ""
}
