// SPDX-License-Identifier: Apache-2.0

package system

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
)

// TestANodeAttaches: joins with a line, is known by the name of the hub's certificate,
// relays, and comes back without a line.
func TestANodeAttaches(t *testing.T) {
	h := startHub(t, hubSpec{name: "h1"})
	line := h.nodeToken("c1", "", 2).String()
	a := startNode(t, attach.Config{Node: "a.example.org", Join: line}, nil).up(t)
	b := startNode(t, attach.Config{Node: "b", Join: line}, nil).up(t)
	reach(t, a, b)
	reach(t, b, a)
	st := a.Attach.Status()
	if a.Cluster() != "c1" || !slices.Equal(a.Hubs(), []string{"h1"}) || !slices.Equal(a.Addresses(), []string{h.listen}) || !st.Enabled || st.Fault != nil ||
		st.Identity != "spiffe://tombolo.internal/cluster/c1/node/a.example.org" || len(st.Hubs) != 1 || st.Hubs[0].Hub != "h1" || st.Hubs[0].Address != h.listen {
		t.Errorf("%+v, hubs %v at %v", st, a.Hubs(), a.Addresses())
	}
	if life := time.Until(st.CertificateEnd); life < 23*time.Hour || st.NextRenewal.After(st.CertificateEnd.Add(-7*time.Hour)) {
		t.Errorf("ends %v, renewed at %v", st.CertificateEnd, st.NextRenewal)
	}
	a.Send("h1", "nobody", datagram(1, 0))
	runtest.Eventually(t, "an absent peer is told", func() bool { return slices.Equal(a.missed(), []string{"nobody"}) })
	for name, want := range map[string]float64{
		"tombolo_mesh_relay_hubs": 1, "tombolo_mesh_certificate_expiry_timestamp_seconds": float64(st.CertificateEnd.Unix()),
	} {
		if got := gauge(t, a.reg, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, least := range map[string]float64{
		"tombolo_mesh_relay_connects_total": 1, "tombolo_mesh_joins_total": 1, "tombolo_mesh_relay_absent_total": 1, "tombolo_mesh_relay_sent_packets_total": 2,
		"tombolo_mesh_relay_sent_bytes_total": 24, "tombolo_mesh_relay_received_packets_total": 1, "tombolo_mesh_relay_received_bytes_total": 12,
	} {
		m := family(t, a.reg, name)
		if m == nil || len(m.GetMetric()) != 1 || m.GetMetric()[0].GetCounter().GetValue() < least {
			t.Errorf("%s: %v, want %v or more", name, m, least)
		}
	}
	if m := family(t, a.reg, "tombolo_mesh_relay_dropped_packets_total"); len(m.GetMetric()) != 3 {
		t.Errorf("%v", m)
	}
	if a.changes.Load() < 1 {
		t.Error("nobody was told of the hub")
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	again := startNode(t, attach.Config{StateDir: b.cfg.StateDir, Node: "b"}, nil).up(t)
	reach(t, a, again)
	if info, err := os.Stat(filepath.Join(b.cfg.StateDir, enrol.File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestANodeRenews in time, with no gap in the relay, and also a certificate that has run out.
func TestANodeRenews(t *testing.T) {
	c := &clock{}
	h := startHub(t, hubSpec{now: c.now})
	line := h.nodeToken("c1", "", 2).String()
	a, b := startNode(t, attach.Config{Node: "a", Join: line}, c.now).up(t), startNode(t, attach.Config{Node: "b", Join: line}, c.now).up(t)
	first := a.Attach.Status()
	c.forward(17 * time.Hour)
	a.Again()
	runtest.Eventually(t, "it renews", func() bool { return a.Attach.Status().CertificateEnd.After(first.CertificateEnd) })
	runtest.Eventually(t, "the relay knows the new certificate", func() bool {
		s := a.Attach.Status().Hubs[0]
		return s.Connected && s.Since.After(first.Hubs[0].Since)
	})
	reach(t, b, a)
	stored, err := enrol.Load(a.cfg.StateDir)
	if err != nil || !stored.Cert.NotAfter.Equal(a.Attach.Status().CertificateEnd) {
		t.Errorf("the stored one is another: %v", err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	c.forward(9 * 24 * time.Hour)
	again := startNode(t, attach.Config{StateDir: b.cfg.StateDir, Node: "b"}, c.now).up(t)
	a.Again()
	reach(t, again, a)
}

// TestARevokedNodeAsks: it is told so, leaves the relay at once, does not come back by
// itself, and does with another token.
func TestARevokedNodeAsks(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.nodeToken("c1", "", 5).String()
	a := startNode(t, attach.Config{Node: "a", Join: line}, nil).up(t)
	var list admin.CertificateList
	h.call("GET", "/v1/certificates", nil, &list)
	h.revoke("node", list.Certificates[0].Serial)
	runtest.Eventually(t, "the node knows why", func() bool { return a.code() == fault.CodeCertRevoked && !a.Ready() })
	if hubs := a.Hubs(); len(hubs) != 0 {
		t.Errorf("it is at %v still", hubs)
	}
	if err := a.Reload(attach.Config{Join: line}); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the token of before does not undo it", func() bool { return a.code() == fault.CodeCertRevoked && a.Cluster() == "c1" })
	if err := a.Reload(attach.Config{Join: h.nodeToken("c1", "", 1).String()}); err != nil {
		t.Fatal(err)
	}
	// Within the second of the revocation the name is not free.
	runtest.Eventually(t, "it joins with another token", func() bool {
		if a.code() == fault.CodeNodeTaken {
			a.Again()
		}
		return a.Ready() && a.code() == ""
	})
}

// TestAHubThatRestarts: nodes come back by themselves, and its name stays told.
func TestAHubThatRestarts(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.nodeToken("c1", "", 2).String()
	a, b := startNode(t, attach.Config{Node: "a", Join: line}, nil).up(t), startNode(t, attach.Config{Node: "b", Join: line}, nil).up(t)
	before, changes := a.Hubs(), a.changes.Load()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "both notice", func() bool { return !a.Ready() && !b.Ready() })
	if !slices.Equal(a.Hubs(), before) {
		t.Errorf("%v were told, now %v", before, a.Hubs())
	}
	startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	reach(t, a, b)
	if n := a.changes.Load(); n != changes {
		t.Errorf("%d changes were told", n-changes)
	}
}

// TestTwoHubs of one CA, one with two addresses: one connection to each by its name.
func TestTwoHubs(t *testing.T) {
	one := startHub(t, hubSpec{name: "h1"})
	line := one.nodeToken("c1", "", 2)
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	dir := runtest.Dir(t)
	copyState(t, one.dir, dir)
	one = startHub(t, hubSpec{dir: one.dir, listen: one.listen, name: "h1"})
	two := startHub(t, hubSpec{dir: dir, name: "h2"})
	other := runtest.Serve(t, forwardTo(one.listen))
	hubs := []string{one.listen, other.Addr(), two.listen}
	a := startNode(t, attach.Config{Node: "a", Join: line.String(), Hubs: hubs}, nil)
	b := startNode(t, attach.Config{Node: "b", Join: line.String(), Hubs: hubs}, nil)
	both := func(n *meshNode) func() bool {
		return func() bool { return slices.Equal(n.Hubs(), []string{"h1", "h2"}) }
	}
	runtest.Eventually(t, "a has both", both(a))
	runtest.Eventually(t, "b has both", both(b))
	reach(t, a, b)
	runtest.Eventually(t, "the two addresses are known to be one hub", func() bool {
		st := a.Attach.Status().Hubs
		return len(st) == 2 && len(st[0].Others) == 1 && st[0].Fault == nil
	})
	if n := one.status("c1").Relay.Nodes; n != 2 {
		t.Errorf("%d nodes at the first", n)
	}
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the second carries", func() bool {
		a.Send("h2", "b", datagram(7, 0))
		return slices.Contains(b.seen(), "a 7")
	})
}

// TestHubsThatAreAwayAtFirst: the node joins when one is there.
func TestHubsThatAreAwayAtFirst(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.nodeToken("c1", "", 1).String()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	a := startNode(t, attach.Config{Node: "a", Join: line}, nil)
	runtest.Eventually(t, "it says that the hub is away", func() bool { return a.code() == fault.CodeHubAway })
	if st := a.Attach.Status(); !st.Enabled || st.Identity != "" || len(st.Hubs) != 0 || a.Cluster() != "" || len(a.Hubs()) != 0 {
		t.Errorf("%+v", st)
	}
	startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	a.up(t)
	if code := a.code(); code != "" {
		t.Errorf("still %s", code)
	}
}

// TestATokenThatIsRefused is told and ends nothing; another line is taken when it comes.
func TestATokenThatIsRefused(t *testing.T) {
	h := startHub(t, hubSpec{})
	used := h.nodeToken("c1", "", 1)
	startNode(t, attach.Config{Node: "a", Join: used.String()}, nil).up(t)
	b := startNode(t, attach.Config{Node: "b", Join: used.String()}, nil)
	runtest.Eventually(t, "b is refused", func() bool { return b.code() == fault.CodeTokenUsed })
	agents := h.token("c1").Join
	if err := b.Reload(attach.Config{Join: agents}); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "a token for agents is none", func() bool { return b.code() == fault.CodeJoinLine })
	taken := startNode(t, attach.Config{Node: "a", Join: h.nodeToken("c1", "", 1).String()}, nil)
	runtest.Eventually(t, "the name is taken", func() bool { return taken.code() == fault.CodeNodeTaken })
	wrong := h.nodeToken("c1", "", 1)
	wrong.Pin = used.Pin[:len(used.Pin)-2] + "AA"
	foreign := startNode(t, attach.Config{Node: "c", Join: wrong.String()}, nil)
	runtest.Eventually(t, "another CA", func() bool { return foreign.code() == fault.CodeCAMismatch })
	if err := b.Reload(attach.Config{Join: h.nodeToken("c1", "", 1).String()}); err != nil {
		t.Fatal(err)
	}
	b.up(t)
	if err := b.Reload(attach.Config{Join: wrong.String()}); !fault.Has(err, fault.CodeJoinLine) || !b.Ready() {
		t.Errorf("a line for another CA: %v", err)
	}
}

// TestALineThatIsOfNoUse is refused before a node begins, and nothing else of a hub is.
func TestALineThatIsOfNoUse(t *testing.T) {
	h := startHub(t, hubSpec{})
	used := h.nodeToken("c1", "", 1)
	startNode(t, attach.Config{Node: "a", Join: used.String()}, nil).up(t)
	revoked := h.nodeToken("c1", "", 1)
	h.call("DELETE", "/v1/tokens/"+revoked.TokenID, nil, &struct{}{})
	guessed := h.nodeToken("c1", "", 1)
	guessed.Secret = used.Secret
	for name, c := range map[string]struct {
		node, line string
		want       fault.Code
	}{
		"used":               {"b", used.String(), fault.CodeTokenUsed},
		"revoked":            {"b", revoked.String(), fault.CodeTokenUnknown},
		"another secret":     {"b", guessed.String(), fault.CodeTokenUnknown},
		"for agents":         {"b", h.token("c1").Join, fault.CodeJoinLine},
		"for another node":   {"b", h.nodeToken("c1", "x", 1).String(), fault.CodeJoinLine},
		"a name that is had": {"a", h.nodeToken("c1", "", 1).String(), ""}, // it may be free soon
		"good":               {"b", h.nodeToken("c1", "", 1).String(), ""},
	} {
		n, err := openNode(t, attach.Config{Node: c.node, Join: c.line}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = n.Join(t.Context())
		if c.want == "" && err != nil || c.want != "" && (!fault.Has(err, c.want) || fault.From(err).Next == "") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if joined := n.Cluster() == "c1"; joined != (name == "good") {
			t.Errorf("%s: joined %v", name, joined)
		}
		if name == "good" {
			if err := n.Join(t.Context()); err != nil {
				t.Errorf("again: %v", err)
			}
		}
	}
}

// TestStatesThatAreRefused before anything is done.
func TestStatesThatAreRefused(t *testing.T) {
	h := startHub(t, hubSpec{})
	a := startNode(t, attach.Config{Node: "a", Join: h.nodeToken("c1", "", 1).String()}, nil).up(t)
	agent, err := enrol.Client{Dial: enroller(t, nil, "").Dial, Now: time.Now, Log: h.log.logger()}.Join(runtest.Within(t), parsed(t, h.token("c1").Join), newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	agentDir := t.TempDir()
	if err := agent.Save(agentDir); err != nil {
		t.Fatal(err)
	}
	other := startHub(t, hubSpec{})
	for name, c := range map[string]struct {
		cfg  attach.Config
		want fault.Code
	}{
		"another name":            {attach.Config{StateDir: a.cfg.StateDir, Node: "b"}, fault.CodeConfig},
		"an agent's":              {attach.Config{StateDir: agentDir, Node: "a"}, fault.CodeCertInvalid},
		"a line for another CA":   {attach.Config{StateDir: a.cfg.StateDir, Node: "a", Join: other.nodeToken("c1", "", 1).String()}, fault.CodeJoinLine},
		"one for another cluster": {attach.Config{StateDir: a.cfg.StateDir, Node: "a", Join: h.nodeToken("c2", "", 1).String()}, fault.CodeJoinLine},
		"no line":                 {attach.Config{Node: "a", Join: "tombolo://x"}, fault.CodeJoinLine},
		"no name of a node":       {attach.Config{Node: "A_1", Join: h.nodeToken("c1", "", 1).String()}, fault.CodeConfig},
		"no address":              {attach.Config{Node: "a", Join: h.nodeToken("c1", "", 1).String(), Hubs: []string{"hub"}}, fault.CodeConfig},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openNode(t, c.cfg, nil)
			wantFault(t, err, c.want)
			if f := fault.From(err); f.Next == "" {
				t.Errorf("it does not say what to do: %s", f.Explain())
			}
		})
	}
	none, err := openNode(t, attach.Config{Node: "A_1"}, nil) // a name of discovery's, and no hub
	if err != nil || none.Enabled() || none.Attach.Status().Enabled || none.Cluster() != "" || none.Addresses() != nil {
		t.Errorf("without a line and an identity: %v", err)
	}
}

// TestAHubWithAnotherCA stands where the node's was: the node does not trust it, and says
// so; with its identity removed it joins anew.
func TestAHubWithAnotherCA(t *testing.T) {
	h := startHub(t, hubSpec{})
	a := startNode(t, attach.Config{Node: "a", Join: h.nodeToken("c1", "", 1).String()}, nil).up(t)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h = startHub(t, hubSpec{listen: h.listen})
	runtest.Eventually(t, "the node does not trust it", func() bool {
		st := a.Attach.Status().Hubs
		return len(st) == 1 && fault.Has(st[0].Fault, fault.CodeCAMismatch) && !st[0].Connected
	})
	line := h.nodeToken("c1", "", 1).String()
	if err := a.Reload(attach.Config{Join: line}); !fault.Has(err, fault.CodeJoinLine) {
		t.Errorf("a line of the new hub beside the old identity: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(a.cfg.StateDir, enrol.File)); err != nil {
		t.Fatal(err)
	}
	startNode(t, attach.Config{StateDir: a.cfg.StateDir, Node: "a", Join: line}, nil).up(t)
}
