// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"log/slog"
	"net"
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
	slow    bool // no name is resolved
	answers []string
	probes  []string // that answer
	asked   []time.Time
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

func (m *machines) lookup(ctx context.Context, _, host string) ([]netip.Addr, error) {
	m.mu.Lock()
	at, slow := m.names[host], m.slow
	m.mu.Unlock()
	if slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if at == "" {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(at)}, nil
}

func (m *machines) asks(_ context.Context, at netip.Addr, probe netip.AddrPort) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.String() == "10.0.0.1" {
		m.asked = append(m.asked, time.Now())
	}
	return slices.Contains(m.answers, at.String()) && (!probe.IsValid() || slices.Contains(m.probes, probe.String()))
}

// rig is a Router of a configuration among machines.
func rig(t *testing.T, text string, m *machines) (*Router, *twin, *run.Group) {
	t.Helper()
	cfg, err := ParseConfig("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	k := &twin{}
	r := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	r.kernel, r.host = k, host{hop: m.hop, lookup: m.lookup, asks: m.asks}
	g := run.NewGroup(t.Context())
	r.start(g)
	return r, k, g
}

// end stops what a rig runs.
func end(t *testing.T, g *run.Group) {
	t.Helper()
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNamesDelayNothing: while DNS answers nothing, endpoints are asked each second as ever, and one that is silent
// loses the route as soon as ever.
func TestNamesDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{names: map[string]string{"e1.example": "10.0.0.1"}, answers: []string{"10.0.0.1", "10.0.0.2"},
			probes: []string{"10.0.0.2:8448"}}
		_, k, g := rig(t, good, m)
		defer end(t, g)
		time.Sleep(time.Second / 2)
		m.set(func() { m.slow, m.asked = true, nil })
		time.Sleep(time.Minute)
		m.set(func() {
			for i := range m.asked[1:] {
				if gap := m.asked[i+1].Sub(m.asked[i]); gap != probeEvery {
					t.Errorf("it was not asked for %v", gap)
				}
			}
			m.answers = []string{"10.0.0.2"}
		})
		for range 2 {
			if got := k.last(); !strings.Contains(got, "via 10.0.0.1 ") {
				t.Errorf("too early: %s", got)
			}
			time.Sleep(silentFor - probeEvery)
		}
		if got := k.last(); !strings.Contains(got, "via 10.0.0.2 ") {
			t.Errorf("too late: %s", got)
		}
	})
}

// TestSlowNamesAtTheStart: who has an address gets the route within a second, and who has a name later.
func TestSlowNamesAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{names: map[string]string{"e1.example": "10.0.0.1"}, answers: []string{"10.0.0.1", "10.0.0.2"},
			probes: []string{"10.0.0.2:8448"}, slow: true}
		_, k, g := rig(t, good, m)
		defer end(t, g)
		time.Sleep(probeEvery + time.Millisecond)
		if got := k.last(); !strings.Contains(got, "via 10.0.0.2 ") {
			t.Errorf("at the start: %s", got)
		}
		m.set(func() { m.slow = false })
		time.Sleep(2*resolveEvery + steadyFor)
		if got := k.last(); !strings.Contains(got, "via 10.0.0.1 ") {
			t.Errorf("its name is resolved: %s", got)
		}
	})
}

// TestTheProbeDecides: an endpoint whose machine answers, and whose probe does not, loses the route. A name of the probe
// is resolved like that of the machine, and counts on while it is not.
func TestTheProbeDecides(t *testing.T) {
	for _, probe := range []string{"10.0.0.1:8448", "e1.example:8448", "health.example:8448"} {
		synctest.Test(t, func(t *testing.T) {
			m := &machines{names: map[string]string{"e1.example": "10.0.0.1", "health.example": "10.0.0.1"},
				answers: []string{"10.0.0.1", "10.0.0.2"}, probes: []string{"10.0.0.1:8448", "10.0.0.2:8448"}}
			text := strings.Replace(good, "address: e1.example", `address: e1.example, probe: "`+probe+`"`, 1)
			_, k, g := rig(t, text, m)
			defer end(t, g)
			synctest.Wait()
			if got := k.last(); !strings.Contains(got, "via 10.0.0.1 ") {
				t.Errorf("%s answers: %s", probe, got)
			}
			m.set(func() { m.slow = true })
			time.Sleep(time.Minute)
			if got := k.last(); !strings.Contains(got, "via 10.0.0.1 ") {
				t.Errorf("%s is not resolved: %s", probe, got)
			}
			m.set(func() { m.probes = []string{"10.0.0.2:8448"} })
			time.Sleep(silentFor + probeEvery)
			if got := k.last(); !strings.Contains(got, "via 10.0.0.2 ") {
				t.Errorf("%s is silent: %s", probe, got)
			}
		})
	}
}

// TestAsks: a port that nobody listens at does not answer, though its machine does.
func TestAsks(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	machine, probe := netip.MustParseAddr("127.0.0.1"), ln.Addr().(*net.TCPAddr).AddrPort()
	if !asks(t.Context(), machine, probe) {
		t.Error("it listens")
	}
	ln.Close()
	if asks(t.Context(), machine, probe) {
		t.Error("it is closed")
	}
}

func TestTheRouteFollowsWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{names: map[string]string{"e1.example": "10.0.0.1"}, answers: []string{"10.0.0.1", "10.0.0.2"},
			probes: []string{"10.0.0.2:8448"},
			hops:   map[string]machine.Hop{"10.9.0.1": {Link: "eth0", Gateway: netip.MustParseAddr("10.0.0.254")}}}
		r, k, g := rig(t, good, m)
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
		pass(resolveEvery + probeEvery)
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
		end(t, g)
	})
}
