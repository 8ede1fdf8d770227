// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
)

// TestHowAConfigurationStands: what is refused stays told until a good one is loaded, and
// takes nothing away from what waits for a restart.
func TestHowAConfigurationStands(t *testing.T) {
	at := func(minute int) time.Time {
		return time.Unix(1_800_000_000, 0).Add(time.Duration(minute) * time.Minute)
	}
	wrong := fault.New(fault.CodeConfig, "problems").Whyf("\n  mesh.yaml:6:13: mesh.mtu: 1").Hint("correct it")
	worse := fault.New(fault.CodeRange, "a range").Whyf("another has it")
	type reload struct {
		waiting []string
		f       *fault.Fault
	}
	for name, c := range map[string]struct {
		reloads []reload
		want    Configuration
		warns   []string
	}{
		"none yet":   {nil, Configuration{}, nil},
		"a good one": {[]reload{{}}, Configuration{Loaded: at(1)}, nil},
		"a refused one": {[]reload{{f: wrong}}, Configuration{Refused: at(1), Fault: admin.BodyOf(wrong)},
			[]string{"the configuration is refused, and the one before stays (SIGHUP loads it again): config_invalid: problems:\n  mesh.yaml:6:13: mesh.mtu: 1; correct it"}},
		"the newest reason": {[]reload{{f: wrong}, {f: worse}}, Configuration{Refused: at(2), Fault: admin.BodyOf(worse)},
			[]string{"the configuration is refused, and the one before stays (SIGHUP loads it again): mesh_range: a range: another has it"}},
		"good again": {[]reload{{f: wrong}, {}}, Configuration{Loaded: at(2)}, nil},
		"a restart is needed": {[]reload{{waiting: []string{"log", "mesh.port"}}}, Configuration{Loaded: at(1), Waiting: []string{"log", "mesh.port"}},
			[]string{"changed in the configuration, and taken over at the next start only: log, mesh.port"}},
		"and one that is refused after it": {[]reload{{waiting: []string{"log"}}, {f: worse}}, Configuration{Loaded: at(1), Refused: at(2), Fault: admin.BodyOf(worse), Waiting: []string{"log"}},
			[]string{"the configuration is refused, and the one before stays (SIGHUP loads it again): mesh_range: a range: another has it", "changed in the configuration, and taken over at the next start only: log"}},
		"and changed back": {[]reload{{waiting: []string{"log"}}, {f: worse}, {}}, Configuration{Loaded: at(3)}, nil},
	} {
		var r reloads
		for i, l := range c.reloads {
			r = r.next(l.waiting, l.f, at(i+1))
		}
		var s Status
		r.into(&s)
		if !reflect.DeepEqual(s.Config, c.want) || !slices.Equal(s.Warnings, c.warns) {
			t.Errorf("%s: %+v, and it warns of %q", name, s.Config, s.Warnings)
		}
	}
}

func TestHowThePolicyStands(t *testing.T) {
	wrong, closed := fault.New(fault.CodeConfig, "wrong").Whyf("p.yaml:1:2"), fault.New(fault.CodeConfig, "too many")
	for name, c := range map[string]struct {
		is    routing.PolicyStatus
		want  *Policy
		warns []string
	}{
		"none":               {routing.PolicyStatus{}, nil, nil},
		"in force":           {routing.PolicyStatus{Files: []string{"p"}, Rules: 2}, &Policy{Files: []string{"p"}, Rules: 2}, nil},
		"refused":            {routing.PolicyStatus{Files: []string{"p"}, Rules: 2, Fault: wrong}, &Policy{Files: []string{"p"}, Rules: 2, Fault: admin.BodyOf(wrong)}, []string{"the last good policy stays: config_invalid: wrong: p.yaml:1:2"}},
		"the first, refused": {routing.PolicyStatus{Fault: wrong}, &Policy{Fault: admin.BodyOf(wrong)}, []string{"the last good policy stays: config_invalid: wrong: p.yaml:1:2"}},
		"nothing new":        {routing.PolicyStatus{Files: []string{"p"}, Closed: closed}, &Policy{Files: []string{"p"}, Closed: admin.BodyOf(closed)}, []string{"the policy lets nothing new in: config_invalid: too many"}},
	} {
		var s Status
		policyInto(&s, c.is)
		if !reflect.DeepEqual(s.Policy, c.want) || !slices.Equal(s.Warnings, c.warns) {
			t.Errorf("%s: %+v, and it warns of %q", name, s.Policy, s.Warnings)
		}
	}
}

// TestReloadsAreTold by the API and by metrics, whoever found out how they ended.
func TestReloadsAreTold(t *testing.T) {
	m, _ := newRoom(t, t.TempDir(), nil)
	reg := m.o.Reg.(*prometheus.Registry)
	status := func() (c Configuration) {
		t.Helper()
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil))
		var s Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		return s.Config
	}
	if got := series(t, reg, "tombolo_mesh_config_reloads_total", "tombolo_mesh_settings_waiting"); got != "tombolo_mesh_config_reloads_total{ok} 0, tombolo_mesh_settings_waiting 0" {
		t.Errorf("before any: %s", got)
	}
	m.Reloaded([]string{"log", "mesh.port"}, nil)
	m.Reloaded(nil, fault.New(fault.CodeConfig, "problems").Whyf("mesh.yaml:6:13"))
	m.Reloaded(nil, errors.New("of no code"))
	if c := status(); !slices.Equal(c.Waiting, []string{"log", "mesh.port"}) || c.Loaded.IsZero() || c.Refused.Before(c.Loaded) || c.Fault == nil || c.Fault.Code != string(fault.CodeInternal) || !strings.Contains(c.Fault.Why, "of no code") {
		t.Errorf("%+v", c)
	}
	if got := series(t, reg, "tombolo_mesh_config_reloads_total", "tombolo_mesh_settings_waiting"); got != "tombolo_mesh_config_reloads_total{config_invalid} 1, tombolo_mesh_config_reloads_total{internal} 1, tombolo_mesh_config_reloads_total{ok} 1, tombolo_mesh_settings_waiting 2" {
		t.Errorf("after three: %s", got)
	}
	m.Reloaded(nil, nil)
	if c := status(); c.Fault != nil || len(c.Waiting) > 0 || !c.Refused.IsZero() {
		t.Errorf("after a good one: %+v", c)
	}
}

// TestClosedRangesAreCounted as the status lists them: each range, none of who is there, and
// none where nothing is closed.
func TestClosedRangesAreCounted(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	reg := m.o.Reg.(*prometheus.Registry)
	now := time.Now().Round(0)
	b, c, d := ranged("b", "nb", "10.2.0.0/16", "fd00:2::/64"), ranged("c", "nc", "10.3.0.0/16"), ranged("d", "nd", "10.4.0.0/16")
	check := func(when string, want int) {
		t.Helper()
		listed := 0
		for _, of := range m.Status().Closed {
			listed += len(of.Ranges)
		}
		if got := series(t, reg, "tombolo_mesh_closed_ranges"); listed != want || got != fmt.Sprintf("tombolo_mesh_closed_ranges %d", want) {
			t.Errorf("%s: %s, and the status lists %d; want %d", when, got, listed, want)
		}
	}
	check("at first", 0)
	turn(m, seen(m, k, roster.Result{Members: []roster.Member{b, c, d}}), now)
	check("all are there", 0)
	turn(m, seen(m, k, roster.Result{Members: []roster.Member{d}}), now.Add(time.Minute))
	check("two are gone", 3)
	become(m, func(s *state) { s.set.Options.Bypass = true })
	check("with a bypass", 0)
	become(m, func(s *state) { s.set.Options.Bypass = false })
	turn(m, seen(m, k, roster.Result{Members: []roster.Member{b, d}}), now.Add(2*time.Minute))
	check("one is back", 1)
	turn(m, forget{"nc"}, now.Add(2*time.Minute))
	check("the other one is forgotten", 0)
}

// series are those of metrics, with the values of their labels, in their order.
func series(t *testing.T, reg prometheus.Gatherer, names ...string) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			text := f.GetName()
			for _, l := range m.GetLabel() {
				text += "{" + l.GetValue() + "}"
			}
			value, err := json.Marshal(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, text+" "+string(value))
		}
	}
	return strings.Join(out, ", ")
}
