// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestWhenTheLoopLooks(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	type moment struct {
		after       time.Duration
		stale, news bool // what happens then
		differ      bool
		look        bool
		next        time.Duration // after begin; 0: never
	}
	for name, c := range map[string]struct {
		again   time.Duration
		moments []moment
	}{
		"nothing happens":          {0, []moment{{time.Hour, false, false, true, false, 0}}},
		"something may be new":     {0, []moment{{time.Second, true, false, false, true, 0}}},
		"members come":             {0, []moment{{time.Second, false, true, true, true, 0}}},
		"what comes soon is later": {0, []moment{{meshGather / 2, true, false, false, false, meshGather}, {meshGather, false, false, false, true, 0}}},
		"so do members that come":  {0, []moment{{meshGather / 2, false, true, true, false, meshGather}, {meshGather, false, false, true, true, 0}}},
		"leases are renewed":       {0, []moment{{time.Second, false, true, false, false, meshQuiet}, {2 * time.Second, false, true, false, false, meshQuiet}, {meshQuiet, false, false, false, true, 0}}},
		"not all is on disk":       {4 * time.Second, []moment{{time.Second, false, true, false, false, 4 * time.Second}, {4 * time.Second, false, false, false, true, 0}}},
	} {
		var p pace
		p.looked(begin, c.again, false)
		for i, m := range c.moments {
			now := begin.Add(m.after)
			p.stale, p.news = p.stale || m.stale, p.news || m.news
			got := p.due(now, func() bool { return m.differ })
			if got != m.look {
				t.Errorf("%s, %d: looks: %v", name, i, got)
			}
			if got {
				p.looked(now, 0, false)
			}
			if next := p.next(); m.next == 0 != next.IsZero() || m.next > 0 && !next.Equal(begin.Add(m.next)) {
				t.Errorf("%s, %d: next %v", name, i, next.Sub(begin))
			}
		}
	}
}

// TestPeersGetTunnels once routing has planned them, and with what each look finds after that: no
// peers is not the same as not known yet.
func TestPeersGetTunnels(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	b := ranged("b", "nb", "10.2.0.0/16")
	b.Mesh = limit.MeshVersion
	b.Endpoints = []member.Endpoint{{Addr: netip.MustParseAddrPort("192.0.2.2:51820"), Kind: member.KindStatic}}
	there := seen(m, k, roster.Result{Members: []roster.Member{b}})
	if do := turn(m, there, time.Now()); do.tunnels {
		t.Error("there are tunnels before anybody has planned")
	}
	peers := topology.Peers{{ID: "b", Node: "nb", Key: b.Key}, {ID: "gone"}}
	do := turn(m, tunneled{peers}, time.Now())
	if !do.tunnels || !do.refresh || do.answer == nil || len(do.peers) != 1 || do.peers[0].ID != "b" || !do.peers[0].Facts.Probes || len(do.peers[0].Facts.Candidates) != 1 {
		t.Errorf("%+v", do)
	}
	if do := turn(m, there, time.Now()); !do.tunnels || len(do.peers) != 1 {
		t.Errorf("after another look: %+v", do.peers)
	}
	refused := errors.New("its key is none")
	if do := turn(m, peersSet{refused}, time.Now()); len(do.log) != 1 || !slices.Contains(m.Status().Warnings, refused.Error()) {
		t.Errorf("%+v", do.log)
	}
	if do := turn(m, peersSet{refused}, time.Now()); len(do.log) != 0 {
		t.Errorf("it is logged again: %+v", do.log)
	}
	if turn(m, peersSet{}, time.Now()); len(m.Status().Warnings) != 0 {
		t.Errorf("%q", m.Status().Warnings)
	}
}

// TestThePolicyIsOfTheCluster: it is read when the certificate's cluster is another one, and when its
// files have changed.
func TestThePolicyIsOfTheCluster(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), func(c *Config) { c.Policies = []string{"p"} })
	look := seen(m, k, roster.Result{})
	for i, c := range []struct {
		cluster string
		reads   bool
	}{{"", true}, {"", false}, {"c1", true}, {"c1", false}, {"c2", true}} {
		look.world.cluster = c.cluster
		if do := turn(m, look, time.Now()); (do.policy != nil) != c.reads || c.reads && (do.policy.cluster != c.cluster || do.policy.edited || !slices.Equal(do.policy.files, []string{"p"})) {
			t.Errorf("%d: %+v", i, do.policy)
		}
	}
	if _, do := step(*m.state.Load(), edited{}, time.Now()); do.policy == nil || do.policy.cluster != "c2" || !do.policy.edited {
		t.Errorf("edited: %+v", do.policy)
	}
}

// TestAReload is judged before anything is changed, and takes over what a running node can.
func TestAReload(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, func(c *Config) { c.Announce.Ranges = ranges("10.1.0.0/16") })
	turn(m, seen(m, k, roster.Result{Members: []roster.Member{ranged("b", "nb", "10.2.0.0/16")}}), time.Now())
	next := m.cfg
	next.Announce.Ranges = ranges("10.2.0.0/16")
	if do := turn(m, reload{next}, time.Now()); do.reload != nil || do.answer == nil || !fault.Has(do.answer.err, fault.CodeRange) {
		t.Errorf("a range of another member: %+v", do)
	}
	next.Shared = true
	if do := turn(m, reload{next}, time.Now()); do.reload == nil || do.answer != nil {
		t.Errorf("a range that both shall have: %+v", do)
	}
	next.Announce = member.Facts{Node: "other", Ranges: ranges("10.3.0.0/16")}
	next.Port++
	next.ClosedFor = time.Minute
	do := turn(m, reload{next}, time.Now())
	if do.reload == nil || !slices.Equal(do.reload.self.Self.Ranges, ranges("10.3.0.0/16")) {
		t.Fatalf("%+v", do)
	}
	if do := turn(m, reloaded{next, errors.New("refused")}, time.Now()); do.answer.err == nil || m.state.Load().set.ClosedFor == time.Minute {
		t.Errorf("what attach refuses is in force: %+v", do.answer)
	}
	do = turn(m, reloaded{next, nil}, time.Now())
	s := m.state.Load()
	if fixed, _ := do.answer.value.([]string); !slices.Equal(fixed, []string{"mesh.port", "node.name"}) || !do.refresh || !do.soon {
		t.Errorf("%+v", do)
	}
	if s.set.ClosedFor != time.Minute || s.base.Node != "a" || !slices.Equal(s.base.Ranges, ranges("10.3.0.0/16")) {
		t.Errorf("in force is %+v, announced %+v", s.set, s.base)
	}
	if on, err := readKnownRanges(dir); err != nil || !slices.Equal(on.Own, ranges("10.3.0.0/16")) {
		t.Errorf("on disk is %v, %v", on.Own, err)
	}
}

// TestAnotherKey is announced with the word that it is in force; where no service would tell the
// others, there is none.
func TestAnotherKey(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), func(c *Config) { c.Services = []endpoint.Server{{Name: "s", HostPort: "s:1"}} })
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if do := turn(m, rotate{}, time.Now()); do.rotate || !fault.Has(do.answer.err, fault.CodeServiceAway) {
		t.Errorf("nobody would hear of it: %+v", do)
	}
	k.attends = []string{"s"}
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if do := turn(m, rotate{}, time.Now()); !do.rotate || do.answer != nil {
		t.Errorf("%+v", do)
	}
	next, err := drawKey()
	if err != nil {
		t.Fatal(err)
	}
	was := m.state.Load().key
	if do := turn(m, rotated{key{}, errors.New("refused")}, time.Now()); do.answer.err == nil || m.state.Load().key.public != was.public {
		t.Errorf("%+v", do.answer)
	}
	do := turn(m, rotated{next, nil}, time.Now())
	out, _ := do.answer.value.(Rotated)
	if pin := next.certificate.pin; out.Pin != pin.String() || do.say == nil || do.say.Pin != pin || pin == was.certificate.pin {
		t.Errorf("%+v, announced is %+v", out, do.say)
	}
	if out.PublicKey != next.public.String() || out.Previous != was.public.String() || do.say == nil || do.say.Key != next.public || k.now[len(k.now)-1] != do.say.Key {
		t.Errorf("%+v, announced is %+v", out, do.say)
	}
}

// TestWhatANextKeyProves: what proves the key that a member tells now says nothing of the one that routing has planned with.
func TestWhatANextKeyProves(t *testing.T) {
	m, k := newRoom(t, t.TempDir(), nil)
	b := ranged("b", "nb", "10.2.0.0/16")
	b.Key = member.Key{1}
	next := b
	next.Key, next.Proven = member.Key{2}, true
	for _, c := range []struct {
		said    roster.Member
		planned member.Key
		want    bool
	}{{b, b.Key, false}, {next, b.Key, false}, {next, next.Key, true}} {
		turn(m, seen(m, k, roster.Result{Members: []roster.Member{c.said}}), time.Now())
		planned := topology.Peer{ID: "b", Node: "nb", Key: c.planned, Pin: member.Pin{7}, Engine: member.IPsec}
		do := turn(m, tunneled{topology.Peers{planned}}, time.Now())
		if len(do.peers) != 1 || do.peers[0].Pin != planned.Pin || do.peers[0].Engine != member.WireGuard || do.peers[0].Key != c.planned || do.peers[0].Proven != c.want {
			t.Errorf("said %x, planned %x: %+v", c.said.Key[:1], c.planned[:1], do.peers)
		}
	}
}

// TestACallerIsWhoWasVouchedFor: a hub's word is for one key and one name.
func TestACallerIsWhoWasVouchedFor(t *testing.T) {
	m, _ := newRoom(t, t.TempDir(), nil)
	s := *m.state.Load()
	s.world.certified = map[string]vouched{"b": {member.Key{1}, "nb"}}
	m.state.Store(&s)
	for _, p := range []topology.Peer{{ID: "b", Node: "nb", Key: member.Key{2}}, {ID: "b", Node: "victim", Key: member.Key{1}}, {ID: "c", Node: "nb", Key: member.Key{1}}} {
		if got := m.caller(p); got != "" {
			t.Errorf("%+v is taken for %s", p, got)
		}
	}
}
