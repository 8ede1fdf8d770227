// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

const agentOne = "spiffe://tombolo.internal/cluster/c1/agent/agent-1"

// backRig is a hub with ports, of which only what follows the main port runs.
type backRig struct {
	*Hub
	t      *testing.T
	target net.Listener
}

// newBackRig has the ports registry for c1, which leads to a listener, other for c2, closed and named for c1.
func newBackRig(t *testing.T, h *Hub) *backRig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	r := &backRig{Hub: h, t: t, target: ln}
	r.configure(`
- {name: registry, target: "` + ln.Addr().String() + `", clusters: [c1]}
- {name: other, target: "` + ln.Addr().String() + `", clusters: [c2]}
- {name: closed, target: "127.0.0.1:1", clusters: [c1]}
- {name: named, target: "localhost:` + strings.TrimPrefix(ln.Addr().String(), "127.0.0.1:") + `", clusters: [c1]}
- {name: nowhere, target: "x.invalid:1", clusters: [c1]}
`)
	h.clusters.add(clusterOf(t, "c1"))
	return r
}

func (r *backRig) configure(ports string) {
	next := *r.settings.Load()
	next.ports = portsOf(r.t, ports)
	r.settings.Store(&next)
	r.dials.judgePorts()
}

func (r *backRig) dial(ctx context.Context, port string) (carrier.Stream, error) {
	who := record.Party{Cluster: clusterOf(r.t, "c1"), Frontend: policy.FlowBack, Caller: agentOne, Source: "192.0.2.1:4711"}
	return r.dials.forCaller(who)(ctx, wire.Dial{Network: wire.NetworkTCP, Address: port})
}

// open gives both ends of a stream to the port registry.
func (r *backRig) open() (stream carrier.Stream, target *net.TCPConn) {
	r.t.Helper()
	stream, err := r.dial(runtest.Within(r.t), wire.PortAddress("registry"))
	must(r.t, err)
	conn, err := r.target.Accept()
	must(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	return stream, conn.(*net.TCPConn)
}

// unused fails if a place is still taken.
func (r *backRig) unused() {
	r.t.Helper()
	c, err := r.clusters.get(clusterOf(r.t, "c1"))
	must(r.t, err)
	if n, m, k := c.ports.streams.Load(), c.accounts.Cluster.Streams(), len(r.access.Streams(c.name)); n != 0 || m != 0 || k != 0 || c.accounts.Cluster.Pending() != 0 {
		r.t.Errorf("%d streams to ports, %d of the cluster, %d under the policy are left", n, m, k)
	}
}

// backRecords are the records of what is done with a rig.
func backRecords(t *testing.T, fn func(r *backRig)) []audit.Record {
	t.Helper()
	return records(t, func(h *Hub) {
		r := newBackRig(t, h)
		fn(r)
		r.unused()
	})
}

func TestBytesOfAPort(t *testing.T) {
	out := backRecords(t, func(r *backRig) {
		stream, target := r.open()
		if n := r.liveStreams(); n != 1 {
			t.Errorf("%d streams would be waited for", n)
		}
		_, err := io.WriteString(stream, "question")
		must(t, err)
		must(t, stream.CloseWrite())
		asked, err := io.ReadAll(target)
		must(t, err)
		_, err = io.WriteString(target, "the answer")
		must(t, err)
		must(t, target.Close())
		answer, err := io.ReadAll(stream)
		if err != nil || string(asked) != "question" || string(answer) != "the answer" {
			t.Errorf("%q, %q, %v", asked, answer, err)
		}
		must(t, stream.Close())
		c, _ := r.clusters.get(clusterOf(t, "c1"))
		if in, out := c.traffic(); in != 10 || out != 8 {
			t.Errorf("%d bytes into the cluster, %d out of it", in, out)
		}
	})
	if len(out) != 1 {
		t.Fatalf("records: %+v", out)
	}
	if rec := out[0]; rec.Kind != audit.KindDial || rec.Frontend != "back" || rec.Caller != agentOne || rec.Asked != "registry.port.tombolo:1" || rec.Egress != "" ||
		!strings.HasPrefix(rec.Resolved, "127.0.0.1:") || rec.Code != "ok" || rec.Up != 8 || rec.Down != 10 || rec.Verdict != "" {
		t.Errorf("%+v", rec)
	}
}

// What an agent may not have, and why what it may have does not come: one record each.
func TestRefusalsOfAPort(t *testing.T) {
	for name, c := range map[string]struct {
		ask    string
		before func(r *backRig)
		code   fault.Code
	}{
		"an address":                   {ask: "10.0.0.1:80", code: fault.CodeUnauthorized},
		"a target of a port":           {ask: "127.0.0.1:1", code: fault.CodeUnauthorized},
		"a name with another number":   {ask: "registry.port.tombolo:2", code: fault.CodeUnauthorized},
		"another cluster's":            {ask: wire.PortAddress("other"), code: fault.CodePolicyDenied},
		"one that there is not":        {ask: wire.PortAddress("none"), code: fault.CodePolicyDenied},
		"nobody listens":               {ask: wire.PortAddress("closed"), code: fault.CodeDialRefused},
		"a name leads to loopback":     {ask: wire.PortAddress("named"), code: fault.CodePolicyDenied},
		"a name that does not resolve": {ask: wire.PortAddress("nowhere"), code: fault.CodeDialDNS},
		"the target is the hub": {ask: wire.PortAddress("registry"), code: fault.CodePolicyDenied,
			before: func(r *backRig) { r.own.Bind(nil, r.target) }},
		"the hub drains": {ask: wire.PortAddress("registry"), code: fault.CodeDraining, before: func(r *backRig) { r.draining.Store(true) }},
		"above the quota": {ask: wire.PortAddress("registry"), code: fault.CodeLimit, before: func(r *backRig) {
			account := r.clusters.add(clusterOf(r.t, "c1")).accounts.Caller(agentOne)
			b := account.Bounds()
			b.Streams = 0
			account.Bound(b)
		}},
		"a policy without a rule for it": {ask: wire.PortAddress("registry"), code: fault.CodePolicyDenied, before: func(r *backRig) {
			p, _ := policy.Compile([]policy.Rule{{Name: "all", Destination: []string{"*"}}}, nil)
			r.access.Replace(true, map[string]*policy.Policy{"f": p})
		}},
		"no such cluster": {ask: wire.PortAddress("registry"), code: fault.CodeClusterUnknown, before: func(r *backRig) { r.clusters.remove(clusterOf(r.t, "c1")) }},
	} {
		t.Run(name, func(t *testing.T) {
			out := records(t, func(h *Hub) {
				r := newBackRig(t, h)
				if c.before != nil {
					c.before(r)
				}
				stream, err := r.dial(runtest.Within(t), c.ask)
				if !fault.Has(err, c.code) || stream != nil {
					t.Errorf("%v, %v", stream, err)
				}
				if err != nil && strings.Contains(fault.From(err).Explain(), "127.0.0.1") {
					t.Errorf("the agent is told the target: %v", err)
				}
				if c.code != fault.CodeClusterUnknown {
					r.unused()
				}
			})
			if len(out) != 1 || out[0].Code != string(c.code) || out[0].Frontend != "back" || out[0].Asked != c.ask {
				t.Errorf("%+v", out)
			}
		})
	}
}

// A live stream ends when its port goes, leads elsewhere, or a policy refuses it; other changes leave it alone.
func TestChangesEndStreamsToPorts(t *testing.T) {
	rule := func(port string) map[string]*policy.Policy {
		p, _ := policy.Compile([]policy.Rule{{Name: "pull", Flow: []string{policy.FlowBack}, Destination: []string{port}}}, nil)
		return map[string]*policy.Policy{"f": p}
	}
	for name, c := range map[string]struct {
		change func(r *backRig)
		rule   string
		code   string
	}{
		"it is removed": {change: func(r *backRig) { r.configure("- {name: other, target: \"10.0.0.5:1\", clusters: [c1]}") }, code: "policy_denied"},
		"it is another cluster's": {change: func(r *backRig) {
			r.configure("- {name: registry, target: \"" + r.target.Addr().String() + "\", clusters: [c2]}")
		}, code: "policy_denied"},
		"it leads elsewhere": {change: func(r *backRig) { r.configure("- {name: registry, target: \"10.0.0.5:1\", clusters: [c1]}") }, code: "policy_denied"},
		"a policy": {change: func(r *backRig) {
			for _, s := range r.access.Replace(true, rule("other")) {
				s.Overrule(s.Ruling)
			}
		}, code: "policy_denied"},
		"its cluster is removed": {change: func(r *backRig) {
			c, _ := r.clusters.get(clusterOf(r.t, "c1"))
			r.clusters.remove(c.name)
			if n := r.dials.endGone(c); n != 1 {
				t.Errorf("%d streams ended", n)
			}
			r.clusters.add(c.name)
		}, code: "stream_reset"},
		"nothing that matters": {change: func(r *backRig) {
			r.configure("- {name: registry, target: \"" + r.target.Addr().String() + "\", clusters: [c1, c2]}")
			if refused := r.access.Replace(true, rule("registry")); len(refused) > 0 {
				t.Errorf("refused: %v", refused)
			}
		}, code: "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			out := backRecords(t, func(r *backRig) {
				stream, target := r.open()
				c.change(r)
				if c.code == "ok" {
					must(t, stream.Close())
				}
				if n, err := target.Read(make([]byte, 1)); err == nil {
					t.Errorf("%d bytes came", n)
				}
				if c.code != "ok" {
					if _, err := stream.Read(make([]byte, 1)); err == nil || err == io.EOF {
						t.Errorf("the agent's side reads %v", err)
					}
					stream.Close()
				}
			})
			if len(out) != 1 || out[0].Code != c.code {
				t.Errorf("%+v", out)
			}
		})
	}
}

// A change while the target is dialled is noticed: whoever stands under the policy by then is found.
func TestAChangeDuringADialToAPort(t *testing.T) {
	r := newBackRig(t, bareHub(t))
	stream, _ := r.open()
	defer stream.Close()
	s := stream.(*hubStream)
	if f := r.dials.gone(s); f != nil {
		t.Error(f)
	}
	next := *r.settings.Load()
	next.ports = nil
	r.settings.Store(&next)
	if f := r.dials.gone(s); !fault.Has(f, fault.CodePolicyDenied) {
		t.Error(f)
	}
}

func identityOf(t *testing.T, uri string) id.Identity {
	t.Helper()
	who, err := id.ParseURI(uri)
	must(t, err)
	return who
}

func TestFrontendsOfRoles(t *testing.T) {
	for uri, want := range map[string]string{
		agentOne: policy.FlowBack, "spiffe://d/cluster/c1/client/x": frontendTLS, "spiffe://d/cluster/c1/route/x": policy.FlowRoute,
	} {
		if got := frontendOf(identityOf(t, uri).Role); got != want {
			t.Errorf("%s: %s", uri, got)
		}
	}
	r := newBackRig(t, bareHub(t))
	for uri, want := range map[string]bool{
		agentOne: true, "spiffe://d/cluster/c3/agent/x": false, "spiffe://d/cluster/c3/client/x": true, "spiffe://d/cluster/c1/node/x": false,
		"spiffe://d/operator/x": false, "spiffe://d/edge/x": false,
	} {
		if got := r.front.connects(identityOf(t, uri)); got != want {
			t.Errorf("%s may connect: %v", uri, got)
		}
	}
	none := DefaultConfig().Reloadable
	r.settings.Store(&none)
	if r.front.connects(identityOf(t, agentOne)) {
		t.Error("an agent may connect although there is no port")
	}
}

// Explain says what an agent would get, by the ports and by the policy.
func TestExplainOfPorts(t *testing.T) {
	r := newBackRig(t, bareHub(t))
	for _, c := range []struct {
		ask, as, policy string // the port that a rule allows; empty: there is no policy
		verdict, hop    string
		malforms        bool
	}{
		{ask: "registry", as: agentOne, verdict: admin.VerdictAllowed, hop: "it leads to " + r.target.Addr().String()},
		{ask: "other", as: agentOne, verdict: admin.VerdictDenied, hop: "names no such port"},
		{ask: "registry", as: agentOne, policy: "registry", verdict: admin.VerdictAllowed, hop: "it leads to"},
		{ask: "registry", as: agentOne, policy: "closed", verdict: admin.VerdictDenied, hop: "it leads to"},
		{ask: "other", as: agentOne, policy: "*", verdict: admin.VerdictDenied, hop: "names no such port"},
		{ask: "10.0.0.1:80", as: agentOne, malforms: true},
		{ask: "registry", as: "unix:c1/connect", malforms: true},
	} {
		if r.access.Replace(false, map[string]*policy.Policy{"f": nil}); c.policy != "" {
			p, _ := policy.Compile([]policy.Rule{{Name: "pull", Flow: []string{policy.FlowBack}, Destination: []string{c.policy}}}, nil)
			r.access.Replace(true, map[string]*policy.Policy{"f": p})
		}
		q, err := Question("c1", url.Values{"target": {c.ask}, "as": {c.as}, "from": {"192.0.2.1"}})
		if c.malforms {
			if !fault.Has(err, fault.CodeRequest) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		must(t, err)
		got := r.api.explainPort(q)
		if got.Verdict != c.verdict || got.Target != c.ask || len(got.Hops) != 2 || !strings.Contains(got.Hops[0].Why, c.hop) || got.Hops[1].Why == "" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestStatusOfPorts(t *testing.T) {
	r := newBackRig(t, bareHub(t))
	stream, _ := r.open()
	c, _ := r.clusters.get(clusterOf(t, "c1"))
	got := r.api.portsOf(c)
	if len(got) != 4 || got[0] != (admin.PortStatus{Name: "registry", Target: r.target.Addr().String(), Streams: 1}) || got[1].Streams != 0 {
		t.Errorf("%+v", got)
	}
	stream.Close()
	if got := r.api.portsOf(c); got[0].Streams != 0 {
		t.Errorf("%+v", got)
	}
	if got := r.api.portsOf(r.clusters.add(clusterOf(t, "c3"))); got != nil {
		t.Errorf("a cluster without ports: %+v", got)
	}
}
