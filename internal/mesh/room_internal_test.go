// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// knower is a discovery client that knows what the test says, and keeps what it is told.
type knower struct {
	mu       sync.Mutex
	said     []member.Facts
	now      []member.Key // proven, the newest last
	result   roster.Result
	under    map[string][]seal.ClusterID
	pairs    map[string]seal.Keys
	refuses  error
	shared   *fault.Fault
	attends  []string
	awaited  int
	waiting  []string // who never tells
	unopened map[string]int
}

func (k *knower) Announce(m member.Facts) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said = append(k.said, m)
	return k.refuses
}

func (k *knower) Prove(p seal.WireGuardPrivate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = append(k.now, p.Public())
}

func (k *knower) Result() (roster.Result, <-chan struct{}) { return k.result, nil }

func (k *knower) Merged() roster.Result { return k.result }

func (k *knower) Attending() []string { return k.attends }

func (k *knower) AwaitSettled(context.Context, time.Duration) []string { k.awaited++; return k.waiting }

func (k *knower) Unopened() map[string]int { return k.unopened }

func (k *knower) Under(member string) []seal.ClusterID { return k.under[member] }

func (k *knower) PairKeys(file string) (seal.Keys, bool) { keys, ok := k.pairs[file]; return keys, ok }

func (k *knower) Suspect(bool) {}

func (k *knower) Shared() *fault.Fault { return k.shared }
func (k *knower) Warnings() []string   { return nil }

func (k *knower) last(t *testing.T) member.Facts {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.said) == 0 {
		t.Fatal("nothing was announced")
	}
	return k.said[len(k.said)-1]
}

func keysFrom(t testing.TB, c string) seal.Keys {
	t.Helper()
	s, err := seal.ParseSecret(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32))))
	if err != nil {
		t.Fatal(err)
	}
	return s.Keys()
}

// newRoom is a node that does not run, with what it knows of others.
func newRoom(t testing.TB, dir string, change func(*Config)) (*Mesh, *knower) {
	t.Helper()
	k := &knower{under: map[string][]seal.ClusterID{}}
	cfg := Config{Config: meshconf.Default(), Version: "v", StateDir: dir, RunDir: dir, Keys: slices.All([]seal.Keys{keysFrom(t, "n"), keysFrom(t, "o")}), Announce: member.Facts{Node: "a"}, ID: seal.MemberID{1}.String(), Lease: 30 * time.Minute}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(), Members: k, Listed: k, Announcer: k, Services: k})
	if err != nil {
		t.Fatal(err)
	}
	return m, k
}

// turn has a node that does not run take an event, and gives all that came of it.
func turn(m *Mesh, e event, now time.Time) effects {
	s, do := step(*m.state.Load(), e, now)
	m.state.Store(&s)
	here := do // what needs nothing that runs
	here.policy, here.plan, here.tunnels, here.reload, here.rotate, here.refresh = nil, nil, false, nil, false, false
	for _, e := range m.carryOut(nil, here) {
		next := turn(m, e, now)
		if next.plan != nil {
			do.plan, do.tunnels, do.peers, do.policy = next.plan, next.tunnels, next.peers, next.policy
		}
		if next.say != nil {
			do.say = next.say
		}
		do.log = append(do.log, next.log...)
	}
	return do
}

// seen is a look that finds these members, and nothing else.
func seen(m *Mesh, k *knower, r roster.Result) looked {
	return looked{world{result: r, under: k.under, attending: k.attends, unopened: k.unopened, pods: m.pods.Load()}}
}

// become changes the state of a node that does not run.
func become(m *Mesh, change func(*state)) {
	s := *m.state.Load()
	change(&s)
	m.state.Store(&s)
}

func TestWhatANodeSays(t *testing.T) {
	at := netip.MustParseAddrPort
	six, four := netip.MustParseAddr("fd00::a"), netip.MustParseAddr("100.112.0.1")
	own := member.Endpoint{Addr: at("192.0.2.1:51820"), Kind: member.KindOwn}
	static := member.Endpoint{Addr: at("203.0.113.1:51820"), Kind: member.KindStatic}
	var many []member.Endpoint
	var addresses []netip.Addr
	for i := range limit.DiscoveryFacts + 9 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		many = append(many, member.Endpoint{Addr: netip.AddrPortFrom(addresses[i], 1), Kind: member.KindOwn})
	}
	key := member.Key{1}
	base := member.Facts{Node: "a", Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	with := func(change func(*member.Facts)) member.Facts {
		m := base
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		s    saying
		base member.Facts
		want func(*member.Facts)
	}{
		"a key and addresses": {saying{key: key, overlay: overlay{Six: six, Four: four}, addresses: addresses[:1], endpoints: []member.Endpoint{own}}, base,
			func(m *member.Facts) {
				m.Key, m.Overlay6, m.Overlay4, m.Addresses, m.Endpoints = key, six, four, addresses[:1], []member.Endpoint{own}
			}},
		"addresses that are stated": {saying{addresses: addresses[:3]}, with(func(m *member.Facts) { m.Addresses = addresses[5:6] }),
			func(m *member.Facts) { m.Addresses = addresses[5:6] }},
		"stated endpoints are first, and each is there once": {saying{endpoints: []member.Endpoint{{Addr: static.Addr, Kind: member.KindOwn}, own, own}},
			with(func(m *member.Facts) { m.Endpoints = []member.Endpoint{static} }), func(m *member.Facts) { m.Endpoints = []member.Endpoint{static, own} }},
		"as much as may be": {saying{addresses: addresses, endpoints: many}, base,
			func(m *member.Facts) {
				m.Addresses, m.Endpoints = addresses[:limit.DiscoveryFacts], many[:limit.PathCandidates]
			}},
		"what it is known by in IPsec":      {saying{pin: member.Pin{3}, engine: member.IPsec}, base, func(m *member.Facts) { m.Pin, m.Engine = member.Pin{3}, member.IPsec }},
		"hubs":                              {saying{cluster: "c1", hubs: []string{"h1"}}, base, func(m *member.Facts) { m.RelayCluster, m.Relays = "c1", []string{"h1"} }},
		"hubs that do not know whose it is": {saying{hubs: []string{"h1"}}, base, func(*member.Facts) {}},
	} {
		want := c.base
		want.Mesh, want.Endpoints = limit.MeshVersion, nil
		c.want(&want)
		c.s.mesh = limit.MeshVersion
		if got := c.s.over(c.base); !sameMember(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if len(base.Addresses) != 0 || base.Mesh != 0 {
		t.Errorf("what the configuration states was changed: %+v", base)
	}
}

func sameMember(a, b member.Facts) bool {
	return a.Node == b.Node && a.Mesh == b.Mesh && a.Key == b.Key && a.Pin == b.Pin && a.Engine == b.Engine && a.Overlay6 == b.Overlay6 && a.Overlay4 == b.Overlay4 &&
		a.RelayCluster == b.RelayCluster && slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Endpoints, b.Endpoints) && slices.Equal(a.Relays, b.Relays) && slices.Equal(a.Ranges, b.Ranges)
}

// TestSecretsOfAPair: those that both are under, the newest first, and the same for both ends.
func TestSecretsOfAPair(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	fresh, old := keysFrom(t, "n"), keysFrom(t, "o")
	k.under["b"] = []seal.ClusterID{old.Cluster()}
	k.under["c"] = []seal.ClusterID{old.Cluster(), fresh.Cluster()}
	k.under["d"] = []seal.ClusterID{{9}}
	become(m, func(s *state) { s.world.under = k.under })
	for peer, want := range map[string][]seal.ClusterID{
		"b": {old.Cluster()}, "c": {fresh.Cluster(), old.Cluster()}, "d": nil, "of a file": {fresh.Cluster(), old.Cluster()},
	} {
		var got []seal.ClusterID
		s := m.state.Load()
		of := pairSecrets(s.secrets, s.world.under[peer])
		mine, its := of(member.Key{1}, member.Key{2}), of(member.Key{2}, member.Key{1})
		for i, s := range mine {
			got = append(got, s.ID)
			if s.PSK.IsZero() || s.ID != its[i].ID || !s.PSK.Equal(its[i].PSK) {
				t.Errorf("%s: both ends have not the same", peer)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", peer, got, want)
		}
	}
}

// TestASecretOfAPair: a member with a secret of its own has no other, and none while it cannot be read.
func TestASecretOfAPair(t *testing.T) {
	m, _ := newRoom(t, t.TempDir(), nil)
	own := keysFrom(t, "x")
	become(m, func(s *state) { s.world.pairs = map[string]seal.Keys{"/s/b": own} })
	s := m.state.Load()
	for file, want := range map[string][]seal.ClusterID{
		"/s/b": {own.Cluster()}, "/s/c": nil, "": {keysFrom(t, "n").Cluster(), keysFrom(t, "o").Cluster()},
	} {
		r := &roster.Member{Facts: member.Facts{Pair: member.Pair{File: file}}}
		var got []seal.ClusterID
		for _, secret := range s.secretsOf(r, "b")(member.Key{1}, member.Key{2}) {
			got = append(got, secret.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", file, got, want)
		}
	}
}

func TestNamesOfOtherClusters(t *testing.T) {
	one, two, three := member.Overlay6("one"), member.Overlay6("two"), member.Overlay6("three")
	at := func(node string, p netip.Prefix) topology.Peer {
		return topology.Peer{Node: node, Overlay6: p.Addr().Next()}
	}
	var many topology.Peers
	for _, c := range "lkjihgfedcba" {
		many = append(many, at(string(c), two))
	}
	for name, c := range map[string]struct {
		peers topology.Peers
		want  [][]string // what each warning says
	}{
		"nobody":             {nil, nil},
		"all are ours":       {topology.Peers{at("b", one), at("c", one)}, nil},
		"one has none":       {topology.Peers{{Node: "b"}}, nil},
		"chosen by hand":     {topology.Peers{{Node: "b", Overlay6: netip.MustParseAddr("fd00::b")}, {Node: "c", Overlay6: netip.MustParseAddr("2001:db8::1")}}, nil},
		"another name":       {topology.Peers{at("b", one), at("d", two), at("c", two)}, [][]string{{"of c, d are in " + two.String(), "this node in " + one.String(), "cluster.id"}}},
		"two others":         {topology.Peers{at("b", two), at("c", three)}, [][]string{{three.String()}, {two.String()}}},
		"more than are told": {many, [][]string{{"of a, b, c, d, e, f, g, h and 4 more are"}}},
	} {
		got := otherPrefixes(one, c.peers)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		if name == "two others" && three.String() > two.String() {
			slices.Reverse(c.want)
		}
		for i, says := range c.want {
			for _, say := range says {
				if name != "two others" && !strings.Contains(got[i], say) || !strings.Contains(strings.Join(got, "\n"), say) {
					t.Errorf("%s: %q does not say %q", name, got[i], say)
				}
			}
		}
	}
}

// TestTheAPIRefuses what is no request, with a code, before the node is up and without it.
func TestTheAPIRefuses(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	for _, c := range []struct {
		request string
		status  int
		code    fault.Code
	}{
		{"GET /v1/explain", 400, fault.CodeRequest},
		{"GET /v1/explain?ip=x", 400, fault.CodeRequest},
		{"GET /v1/explain?ip=10.0.0.0/8", 400, fault.CodeRequest},
		{"GET /v1/explain?ip=10.0.0.1", 503, fault.CodeMeshAway},
		{"GET /v1/netcheck", 503, fault.CodeMeshAway},
		{"POST /v1/ping?peer=b", 400, fault.CodeRequest},
		{"POST /v1/ping?peer=b&wait=0s", 400, fault.CodeRequest},
		{"POST /v1/ping?peer=b&wait=-1s", 400, fault.CodeRequest},
		{"POST /v1/ping?peer=b&wait=6s", 400, fault.CodeRequest},
		{"POST /v1/ping?peer=b&wait=soon", 400, fault.CodeRequest},
		{"POST /v1/ping?peer=b&wait=1s", 404, fault.CodeNotFound},
		{"POST /v1/ping?wait=1s", 404, fault.CodeNotFound},
		{"POST /v1/ping?peer=a&wait=1s", 404, fault.CodeNotFound},
		{"GET /v1/ping?peer=b&wait=1s", 404, fault.CodeNotFound},
		{"GET /v1/keys/rotate", 404, fault.CodeNotFound},
		{"POST /v1/keys/rotate", 503, fault.CodeMeshAway},
		{"POST /v1/forget?node=b", 503, fault.CodeMeshAway},
		{"POST /v1/status", 404, fault.CodeNotFound},
		{"GET /v2/status", 404, fault.CodeNotFound},
		{"GET /", 404, fault.CodeNotFound},
		{"DELETE /v1/status", 404, fault.CodeNotFound},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(method, target, nil))
		var body struct{ Code, What, Next string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status || body.Code != string(c.code) || body.What == "" || w.Header().Get("Tombolo-Fault") != body.Code {
			t.Errorf("%s: %d %s (%v)", c.request, w.Code, w.Body, err)
		}
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/status", nil))
	var s Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 || s.Kind != KindStatus || s.Node != "a" || s.InForce || s.Peers == nil || s.PublicKey == "" ||
		!slices.Equal(s.Secrets, []string{keysFrom(t, "n").Cluster().String(), keysFrom(t, "o").Cluster().String()}) || s.Cluster != s.Secrets[1] {
		t.Errorf("the status before the node is up: %s (%v)", w.Body, err)
	}
	k.shared = fault.New(fault.CodeMemberShared, "another machine").Hint("remove member.key")
	if w := m.Status().Warnings; len(w) != 1 || !strings.Contains(w[0], "another machine") || !strings.Contains(w[0], "remove member.key") {
		t.Errorf("of a copied machine is told %q", w)
	}
	if f := m.Ready(); f == nil || f.Code != fault.CodeMeshAway {
		t.Errorf("ready: %v", f)
	}
	if _, err := m.Reload(m.cfg); !fault.Has(err, fault.CodeStateBusy) {
		t.Errorf("reload: %v", err)
	}
	if entries, _ := os.ReadDir(m.cfg.StateDir); len(entries) != 2 || entries[0].Name() != certificateFile || entries[1].Name() != keyFile {
		t.Errorf("the state directory holds %v", entries)
	}
}
