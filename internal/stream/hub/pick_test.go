// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// noon is the time of the tests of pure functions.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func clusterOf(t testing.TB, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPick(t *testing.T) {
	at := func(minutes int) time.Time { return noon().Add(time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		all  []candidate
		want int // -1: none
	}{
		"there is none":                            {nil, -1},
		"the only one":                             {[]candidate{{load: 99}}, 0},
		"the least loaded":                         {[]candidate{{load: 3}, {load: 1}, {load: 2}}, 1},
		"the oldest of equals":                     {[]candidate{{load: 1, since: at(2)}, {load: 1, since: at(1)}, {load: 1, since: at(3)}}, 1},
		"the first of those that are equal in all": {[]candidate{{load: 1, since: at(1)}, {load: 1, since: at(1)}}, 0},
		"load counts before age":                   {[]candidate{{load: 2, since: at(1)}, {load: 1, since: at(9)}}, 1},
		"one that was tried is passed over":        {[]candidate{{tried: true}, {load: 5}}, 1},
		"one that drains is passed over":           {[]candidate{{draining: true}, {load: 5}}, 1},
		"all were tried":                           {[]candidate{{tried: true}, {tried: true, draining: true}}, -1},
		"all drain":                                {[]candidate{{draining: true}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if i, ok := pick(c.all); ok != (c.want >= 0) || ok && i != c.want {
				t.Errorf("%d, %v; want %d", i, ok, c.want)
			}
		})
	}
}

func TestPickIsAlwaysALeastLoadedThatTakesStreams(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) candidate {
		return candidate{
			tried: rapid.Bool().Draw(t, "tried"), draining: rapid.Bool().Draw(t, "draining"),
			load: rapid.IntRange(0, 4).Draw(t, "load"), since: noon().Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "since")) * time.Hour),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(one, 0, 12).Draw(t, "sessions")
		i, ok := pick(all)
		for _, c := range all {
			if c.tried || c.draining {
				continue
			}
			if !ok || c.load < all[i].load || c.load == all[i].load && c.since.Before(all[i].since) {
				t.Fatalf("picked %d, %v, although there is %+v", i, ok, c)
			}
		}
		if ok && (all[i].tried || all[i].draining) {
			t.Fatalf("picked %+v", all[i])
		}
	})
}

func TestNoAgentTellsWhoWasSeen(t *testing.T) {
	left := func(name, reason string, before time.Duration) admin.AgentStatus {
		return admin.AgentStatus{ID: name, LastDisconnect: &admin.Disconnect{Code: "x", Reason: reason, At: noon().Add(-before)}}
	}
	on := func(name string, draining bool) admin.AgentStatus {
		return admin.AgentStatus{ID: name, Connected: true, Draining: draining, CertificateEnd: noon().Add(time.Hour)}
	}
	ended := on("a1", false)
	ended.CertificateEnd = noon().Add(-2 * time.Second)
	for name, c := range map[string]struct {
		agents []admin.AgentStatus
		code   fault.Code
		why    string
	}{
		"nobody was ever seen": {nil, fault.CodeNoAgent, "the cluster is registered, but no agent has connected since this hub started"},
		"one left":             {[]admin.AgentStatus{left("a1", "session_lost: gone", 3*time.Second+210*time.Millisecond)}, fault.CodeNoAgent, "a1 left 3.2s ago (session_lost: gone)"},
		"one left long ago":    {[]admin.AgentStatus{left("a1", "bye", 3*time.Hour+time.Millisecond)}, fault.CodeNoAgent, "a1 left 3h0m0s ago (bye)"},
		"one is there, silent": {[]admin.AgentStatus{on("a1", false)}, fault.CodeNoAgent, "a1 is connected but does not answer"},
		"its certificate ended": {[]admin.AgentStatus{ended}, fault.CodeNoAgent,
			"a1 is connected, but its certificate ended 2s ago"},
		"all drain":            {[]admin.AgentStatus{on("a1", true), on("a2", true)}, fault.CodeDraining, "a1 is draining; a2 is draining"},
		"one drains, one left": {[]admin.AgentStatus{on("a1", true), left("a2", "bye", time.Second)}, fault.CodeNoAgent, "a1 is draining; a2 left 1s ago (bye)"},
		"more than are listed": {[]admin.AgentStatus{left("a1", "x", time.Second), left("a2", "x", time.Second), left("a3", "x", time.Second), left("a4", "x", time.Second), left("a5", "x", time.Second)},
			fault.CodeNoAgent, "a1 left 1s ago (x); a2 left 1s ago (x); a3 left 1s ago (x) and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			f := noAgent(clusterOf(t, "c1"), c.agents, noon())
			if f.Code != c.code || f.Why != c.why || f.What != "cluster c1 has no live agent" {
				t.Errorf("%s\nwant %s: ...: %s", f, c.code, c.why)
			}
			if !strings.Contains(f.Next, "tombolo status c1") || !strings.Contains(f.Next, "tombolo token create --cluster c1") {
				t.Errorf("the next step is %q", f.Next)
			}
		})
	}
}

func TestTheRegistry(t *testing.T) {
	r := newRegistry(nil, func(quota.Scope, quota.Resource) {})
	c1, c0 := r.add(clusterOf(t, "c1")), r.add(clusterOf(t, "c0"))
	if r.add(clusterOf(t, "c1")) != c1 {
		t.Error("a second registration made another cluster")
	}
	if got, err := r.get(clusterOf(t, "c0")); err != nil || got != c0 {
		t.Errorf("%v", err)
	}
	if all := r.all(); len(all) != 2 || all[0] != c0 || all[1] != c1 {
		t.Error("the list is not by name")
	}
	_, err := r.get(clusterOf(t, "unknown"))
	if f := fault.From(err); f == nil || f.Code != fault.CodeClusterUnknown || !strings.Contains(f.Next, "tombolo token create --cluster unknown") {
		t.Errorf("%v", err)
	}
}

// leaver is a link whose session leaves when its status is asked for.
type leaver struct {
	carrier.Session
	leave func()
}

func (l *leaver) Info() (none carrier.Info) {
	if leave := l.leave; leave != nil {
		l.leave = nil // its last status is asked for, too
		leave()
	}
	return none
}

// TestAnAgentIsListedOnce: one that leaves while the list is made is not both live and gone in it.
func TestAnAgentIsListedOnce(t *testing.T) {
	c := newRegistry(nil, func(quota.Scope, quota.Resource) {}).add(clusterOf(t, "c1"))
	name := agentOf(t, "a1")
	link := &leaver{}
	s := &session{cluster: c, agent: name, account: c.accounts.Agent(name), link: link, beat: &heartbeat.Beat{}}
	if _, err := c.join(s); err != nil {
		t.Fatal(err)
	}
	link.leave = func() { c.leave(s, fault.New(fault.CodeSessionLost, "gone"), noon()) }
	if all := c.agents(); len(all) != 1 || !all[0].Connected {
		t.Errorf("while it leaves: %+v", all)
	}
	if all := c.agents(); len(all) != 1 || all[0].Connected {
		t.Errorf("after that: %+v", all)
	}
}

func TestWarningsOfClientCertificates(t *testing.T) {
	cert := func(identity string, left time.Duration) state.Certificate {
		return state.Certificate{Serial: "0a", Identity: identity, Expires: noon().Add(left)}
	}
	client := "spiffe://td/cluster/c1/client/apiserver"
	revoked := cert(client, time.Hour)
	revoked.Revoked = noon()
	for name, c := range map[string]struct {
		cert state.Certificate
		says string // empty: nothing
	}{
		"one that lives long":     {cert(client, limit.ExpiryWarning+time.Second), ""},
		"one that ends soon":      {cert(client, 49*time.Hour), "client certificate 0a of cluster c1 ends in 2 days; issue a new one (tombolo egress-config c1 --mode connect-tls) and restart kube-apiserver"},
		"one that has ended":      {cert(client, 0), "client certificate 0a of cluster c1 has ended; "},
		"one that was revoked":    {revoked, ""},
		"one of an operator":      {cert("spiffe://td/operator/o", time.Hour), ""},
		"one that cannot be read": {cert("nonsense", time.Hour), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(expiring([]state.Certificate{c.cert}, noon()), "\n")
			if c.says == "" && got != "" || !strings.HasPrefix(got, c.says) {
				t.Errorf("%q, want %q", got, c.says)
			}
		})
	}
	all := []state.Certificate{revoked, cert("spiffe://td/operator/o", time.Second), cert(client, 3*time.Hour), cert(client, 2*time.Hour)}
	if got, want := firstClientEnd(all), float64(noon().Add(2*time.Hour).Unix()); got != want {
		t.Errorf("the first end is %f, want %f", got, want)
	}
	if got := firstClientEnd(all[:2]); got != 0 {
		t.Errorf("without a client certificate: %f, want 0", got)
	}
}
