// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const good = `apiVersion: tombolo.dev/v1alpha1
kind: VPNRoutesConfig
range: 192.168.128.0/22
endpoints: [{name: e1, address: e1.example}, {name: e2, address: 10.0.0.2, probe: "10.0.0.2:8448"}]
`

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct{ replace, with, want string }{
		"nothing wrong":    {"", "", ""},
		"no range":         {"192.168.128.0/22", "192.168.128.0", "range: "},
		"host bits":        {"192.168.128.0/22", "192.168.129.0/22", "range: "},
		"everything":       {"192.168.128.0/22", "0.0.0.0/0", "range: 0.0.0.0/0 is too large"},
		"nobody":           {"[{name: e1, address: e1.example}, {name: e2, address: 10.0.0.2, probe: \"10.0.0.2:8448\"}]", "[]", "endpoints: there are 0"},
		"one twice":        {"name: e2", "name: e1", "endpoints[1].name: e1 is that of endpoints[0] too"},
		"no name":          {"name: e2, ", "", "endpoints[1].name: it is empty"},
		"another family":   {"address: 10.0.0.2", "address: 'fd00::2'", "endpoints[1].address: fd00::2 is of the other family"},
		"its own overlay":  {"address: 10.0.0.2", "address: 192.168.128.2", "endpoints[1].address: 192.168.128.2 is in the range itself"},
		"loopback":         {"address: 10.0.0.2", "address: 127.0.0.1", "endpoints[1].address: 127.0.0.1 is no address of a machine"},
		"not a name":       {"e1.example", "'e1 example'", "endpoints[0].address: "},
		"no port":          {"10.0.0.2:8448", "10.0.0.2", "endpoints[1].probe: "},
		"the main table":   {"range:", "table: 254\nrange:", "table: 254"},
		"behind main":      {"range:", "rule: 40000\nrange:", "rule: 40000"},
		"an unknown field": {"range:", "ranges: 1\nrange:", "ranges: unknown key"},
	} {
		_, err := ParseConfig("x.yaml", []byte(strings.Replace(good, test.replace, test.with, 1)))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) { _, _ = ParseConfig("x", []byte(text)) })
}

func TestChoose(t *testing.T) {
	now := time.Unix(10_000, 0)
	at := func(answered, since time.Duration) known {
		return known{link: "eth0", answered: now.Add(-answered), since: now.Add(-since)}
	}
	fresh, old, silent := at(time.Second, 2*time.Second), at(time.Second, time.Hour), at(silentFor, time.Hour)
	far := old
	far.link = ""
	for name, c := range map[string]struct {
		all   []known
		order []int
		had   int
		want  int
	}{
		"the preferred one":              {[]known{old, old}, []int{1, 0}, -1, 1},
		"nobody answers":                 {[]known{silent, silent}, []int{0, 1}, 0, -1},
		"nobody has answered yet":        {[]known{{link: "eth0"}, {}}, []int{0, 1}, -1, -1},
		"the one that has it is silent":  {[]known{silent, fresh}, []int{0, 1}, 0, 1},
		"it stays while that is new":     {[]known{fresh, old}, []int{0, 1}, 1, 1},
		"it goes back to a steady one":   {[]known{old, old}, []int{0, 1}, 1, 0},
		"one that cannot be a next hop":  {[]known{far, old}, []int{0, 1}, -1, 1},
		"the third when two are silent":  {[]known{silent, silent, fresh}, []int{1, 0, 2}, 1, 2},
		"a new one if nobody has it yet": {[]known{fresh, silent}, []int{1, 0}, -1, 0},
	} {
		if got := choose(c.all, c.order, c.had, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	k := known{link: "eth0"}.heard(now)
	if k.since != now || k.heard(now.Add(time.Second)).since != now || k.heard(now.Add(silentFor)).since == now {
		t.Error("since is not that of the answers in a row")
	}
}

// twin is a kernel in memory that has nothing, and keeps what is added to it.
type twin struct {
	mu    sync.Mutex
	steps []string
}

func (k *twin) Check(plan.State) []*fault.Fault { return nil }
func (k *twin) Observe() (plan.State, error)    { return plan.State{}, nil }
func (k *twin) Close() error                    { return nil }

func (k *twin) Apply(steps []plan.Step) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps = nil
	for _, s := range steps {
		k.steps = append(k.steps, s.String())
	}
	return nil
}

func (k *twin) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.steps, "; ")
}

// machines are the endpoints of a test, and the names of them.
type machines struct {
	mu      sync.Mutex
	names   map[string]string
	answers []string
	hops    map[string]machine.Hop
}

func (m *machines) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *machines) hop(a netip.Addr) (machine.Hop, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h, ok := m.hops[a.String()]; ok {
		return h, nil
	}
	return machine.Hop{Link: "eth0", Own: netip.MustParseAddr("10.0.0.8")}, nil // even: it prefers the first
}

func (m *machines) lookup(_ context.Context, _, host string) ([]netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[host] == "" {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(m.names[host])}, nil
}

func (m *machines) asks(_ context.Context, _ Endpoint, at netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.answers, at.String())
}

func TestTheRouteFollowsWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := ParseConfig("x", []byte(good))
		if err != nil {
			t.Fatal(err)
		}
		k := &twin{}
		m := &machines{names: map[string]string{"e1.example": "10.0.0.1"}, answers: []string{"10.0.0.1", "10.0.0.2"},
			hops: map[string]machine.Hop{"10.9.0.1": {Link: "eth0", Gateway: netip.MustParseAddr("10.0.0.254")}}}
		r := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		r.kernel, r.host = k, host{hop: m.hop, lookup: m.lookup, asks: m.asks}
		g := run.NewGroup(t.Context())
		g.Go("route", r.loop)
		want := func(what, via string) {
			t.Helper()
			synctest.Wait()
			got := k.last()
			refuses := strings.Contains(got, "unreachable 192.168.128.0/22 table 190") && strings.Contains(got, "rule")
			if via == "" && strings.Contains(got, " via ") || via != "" && !strings.Contains(got, "via "+via+" dev eth0 table 190") || !refuses {
				t.Errorf("%s: %s, want it by %q", what, got, via)
			}
			if ready := r.unready() == nil; ready != (via != "") {
				t.Errorf("%s: ready is %v", what, ready)
			}
		}
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		want("at the start", "10.0.0.1")
		m.set(func() { m.answers = []string{"10.0.0.2"} })
		pass(silentFor - 2*probeEvery)
		want("a short silence", "10.0.0.1")
		pass(3 * probeEvery)
		want("a long one", "10.0.0.2")
		m.set(func() { m.answers = []string{"10.0.0.1", "10.0.0.2"} })
		pass(steadyFor - 2*probeEvery)
		want("it is back", "10.0.0.2")
		pass(4 * probeEvery)
		want("and stays", "10.0.0.1")
		m.set(func() { m.names["e1.example"], m.answers = "10.0.0.3", []string{"10.0.0.3"} })
		pass(2 * resolveEvery)
		want("it has moved", "10.0.0.3")
		m.set(func() { delete(m.names, "e1.example") })
		pass(2 * resolveEvery)
		want("its name is not resolved", "10.0.0.3")
		m.set(func() { m.names["e1.example"], m.answers = "10.9.0.1", []string{"10.9.0.1"} })
		pass(3 * resolveEvery)
		want("behind a router", "")
		if f := r.unready(); f == nil || !strings.Contains(f.Why, "10.0.0.254") {
			t.Errorf("it says %v", f)
		}
		m.set(func() { m.hops["10.0.0.2"] = machine.Hop{Link: "lo", Self: true} })
		pass(2 * resolveEvery)
		if got := k.last(); got != "" || r.unready() != nil {
			t.Errorf("an endpoint itself has %s; %v", got, r.unready())
		}
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
