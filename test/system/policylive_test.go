// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestAChangeEndsExactlyWhatItRefuses holds 1,000 live streams, half of which a change
// refuses: these end, with the rule and the version in their records and with the code
// at the agent, and all others go on.
func TestAChangeEndsExactlyWhatItRefuses(t *testing.T) {
	const each = 500
	stays, goes := runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf("- {name: both, clusters: [c1], allow: [%q, %q]}\n", stays.Addr(), goes.Addr()))
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	extra := f.extra() + fmt.Sprintf("audit: {path: %q}\n", file)
	h, a := pair(t, hubSpec{extra: extra}, agentSpec{allow: everything()})
	dial := h.ways("c1")[0].dial
	conns := map[*runtest.Target][]net.Conn{}
	for range each {
		for _, to := range []*runtest.Target{stays, goes} {
			conn, err := dial(runtest.Within(t), to.Addr())
			if err != nil {
				t.Fatal(err)
			}
			conns[to] = append(conns[to], closing(t, conn))
		}
	}
	before := h.status("c1").Policy
	f.put("c1.yaml", fmt.Sprintf("- {name: both, clusters: [c1], allow: [%q, %q]}\n- {name: shut, deny: [%q]}\n", stays.Addr(), goes.Addr(), goes.Addr()))
	if err := h.reload(extra); err != nil {
		t.Fatal(err)
	}
	after := h.status("c1").Policy
	if before == "" || after == "" || before == after {
		t.Errorf("the version was %q and is %q", before, after)
	}
	for i, conn := range conns[goes] {
		conn.SetReadDeadline(time.Now().Add(runtest.Patience))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("stream %d, which is refused now, goes on: %d, %v", i, n, err)
		}
	}
	for _, conn := range conns[stays] {
		mustEcho(t, conn, "after the change")
	}
	if n := h.status("c1").Streams; n != each {
		t.Errorf("%d streams live, want %d", n, each)
	}
	runtest.Eventually(t, "each end is recorded with the rule that ended it", func() bool {
		return len(audited(t, file, audit.Filter{Denied: true, Rule: "shut"})) == each
	})
	for _, r := range audited(t, file, audit.Filter{Denied: true}) {
		if r.Kind != audit.KindDial || r.Code != "policy_denied" || r.Reason == "" || r.Policy != after || r.Resolved != goes.Addr() {
			t.Fatalf("%+v, want version %s", r, after)
		}
	}
	runtest.Eventually(t, "the agent knows why", func() bool {
		return counter(t, a.reg, "tombolo_agent_stream_ends_total", "policy_denied") == each
	})
}

// counter is the value of a counter with this outcome.
func counter(t *testing.T, reg *prometheus.Registry, name, outcome string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// held is an agent that answers a dial when it is told to.
type held struct {
	asked   chan wire.Dial
	proceed chan string // the address that it says it has dialled
	got     chan []byte // what came after the answer
}

func holding(t *testing.T, link carrier.Session) *held {
	t.Helper()
	a := &held{make(chan wire.Dial, 8), make(chan string, 8), make(chan []byte, 8)}
	done := make(chan struct{})
	ctx := runtest.Within(t)
	go func() {
		defer close(done)
		for {
			s, err := link.AcceptStream(ctx)
			if err != nil {
				return
			}
			a.serve(ctx, s)
		}
	}()
	t.Cleanup(func() {
		link.Close()
		<-done
	})
	return a
}

func (a *held) serve(ctx context.Context, s carrier.Stream) {
	d, err := wire.ReadDial(s)
	if err != nil {
		return
	}
	a.asked <- d
	select {
	case resolved := <-a.proceed:
		if wire.Write(s, wire.Reply(resolved, nil)) == nil {
			all, _ := io.ReadAll(s)
			a.got <- all
		}
	case <-ctx.Done():
	}
}

// TestAChangeDuringADial: the policy allows a dial, changes while the agent is at it,
// and the answer comes then. The new policy counts, and no byte passes.
func TestAChangeDuringADial(t *testing.T) {
	const target = "10.9.8.7:443"
	f := policyFolder(t)
	f.put("c1.yaml", "- {name: open, clusters: [c1], allow: [\"10.0.0.0/8:443\"]}\n")
	h := startHub(t, hubSpec{extra: f.extra()})
	link, control := h.rawSession(h.enrol(h.token("c1").Join), "held")
	beatsOn(t, link, control) // who is silent is not asked
	a := holding(t, link)
	runtest.Eventually(t, "the agent is in", func() bool { return h.connected("c1") == 1 })
	errs := make(chan error, 1)
	go func() {
		conn, err := h.ways("c1")[0].dial(runtest.Within(t), target)
		if err == nil {
			conn.Close()
		}
		errs <- err
	}()
	select {
	case <-a.asked:
	case err := <-errs:
		t.Fatalf("the agent was not asked: %v", err)
	}
	f.put("c1.yaml", "- {name: narrow, clusters: [c1], allow: [\"10.1.0.0/16:443\"]}\n")
	if err := h.reload(f.extra()); err != nil {
		t.Fatal(err)
	}
	a.proceed <- target
	wantRefused(t, <-errs, 403, fault.CodePolicyDenied)
	if got := <-a.got; len(got) > 0 {
		t.Errorf("%q came through", got)
	}
	if n := h.status("c1").Streams; n != 0 {
		t.Errorf("%d streams live", n)
	}
}

// TestAnAgentThatCannotBeAsked: an agent of an older release dials a name before the
// hub knows the address. Under a policy it gets no name to dial; addresses it does.
func TestAnAgentThatCannotBeAsked(t *testing.T) {
	f := policyFolder(t)
	f.put("c1.yaml", "- {name: open, allow: [\"10.0.0.0/8\", \"*.example\"]}\n")
	h := startHub(t, hubSpec{extra: f.extra()})
	link, control := h.rawSession(h.enrol(h.token("c1").Join), "old") // it offers no capability
	beatsOn(t, link, control)
	a := holding(t, link)
	runtest.Eventually(t, "the agent is in", func() bool { return h.connected("c1") == 1 })
	dial := h.ways("c1")[0].dial
	_, err := dial(runtest.Within(t), "db.example:443")
	if r := wantRefused(t, err, 403, fault.CodePolicyDenied); !strings.Contains(r.Error(), "too old") {
		t.Errorf("%v", r)
	}
	if len(a.asked) != 0 {
		t.Error("the agent was asked")
	}
	a.proceed <- "10.1.1.1:443"
	conn, err := dial(runtest.Within(t), "10.1.1.1:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-a.asked

	// What it says that it dialled is judged as well, should it lie or have followed a name.
	a.proceed <- "192.0.2.1:443"
	_, err = dial(runtest.Within(t), "10.1.1.1:443")
	wantRefused(t, err, 403, fault.CodePolicyDenied)

	// Another agent that can be asked takes names over.
	to := runtest.Echo(t)
	f.put("c1.yaml", fmt.Sprintf("- {name: open, allow: [\"10.0.0.0/8\", %q]}\n", to.Addr()))
	if err := h.reload(f.extra()); err != nil {
		t.Fatal(err)
	}
	startAgent(t, agentSpec{join: h.token("c1").Join, allow: everything()})
	conn, err = dial(runtest.Within(t), net.JoinHostPort("localhost", portOf(t, to)))
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, closing(t, conn), "by the newer one")
}

// outside is an address of this machine that is none of loopback.
func outside(t *testing.T) (addr string, ok bool) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String(), true
		}
	}
	return "", false
}

// TestTheHubIsNoTarget is the second half of CVE-2022-3294: a node's address, or what a
// name resolves to, is a listener of the hub itself, reached through an agent in its
// network or on its machine. Wide rules do not open it, nor does a range with its port.
func TestTheHubIsNoTarget(t *testing.T) {
	addr, ok := outside(t)
	if !ok {
		addr = "127.0.0.1"
	}
	free := func() string {
		ln, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		return port
	}
	front, admin := free(), free()
	wide := []string{"0.0.0.0/0", "::/0", "127.0.0.0/8", "127.0.0.0/8:" + front, addr, "localhost"}
	targets := []string{addr + ":" + front, "127.0.0.1:" + front, "127.9.9.9:" + front, "127.0.0.1:" + admin, "[::ffff:127.0.0.1]:" + front,
		"[64:ff9b::" + addr + "]:" + front, "localhost:" + front, "LocalHost.:" + admin}
	adminPort := fmt.Sprintf("admin: {listen: \"127.0.0.1:%s\"}\n", admin)
	f := policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf("- {name: wide, allow: [\"*\", \"0.0.0.0/0\", \"::/0\", \"127.0.0.0/8\", \"127.0.0.0/8:%s\", %q, localhost]}\n", front, addr))
	for name, spec := range map[string]struct {
		extra string
		agent []string
		named bool
	}{
		"by the hub, under a policy":             {f.extra(), append(wide, "127.0.0.1:"+front, addr+":"+front), false},
		"by the agent, without a policy":         {"", wide, false},
		"not where the agent's list names it":    {"", append(wide, "127.0.0.1:"+front), true},
		"not even there where the policy is not": {f.extra(), append(wide, "127.0.0.1:"+front), false},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := pair(t, hubSpec{listen: "0.0.0.0:" + front, extra: adminPort + spec.extra}, agentSpec{allow: spec.agent})
			for _, target := range targets {
				if spec.named && (strings.HasPrefix(target, "127.0.0.1:"+front) || strings.HasPrefix(target, "[::ffff:127.0.0.1]") || strings.HasPrefix(target, "localhost")) {
					conn, err := h.ways("c1")[0].dial(runtest.Within(t), target)
					if err != nil {
						t.Errorf("%s is named, and refused: %v", target, err)
						continue
					}
					conn.Close()
					continue
				}
				refusedBy(t, h, target, fault.CodePolicyDenied)
			}
		})
	}
	// Beside it everything is as the rules say.
	to := runtest.Echo(t)
	h, _ := pair(t, hubSpec{listen: "0.0.0.0:" + front, extra: adminPort + f.extra()}, agentSpec{allow: wide})
	conn, err := h.ways("c1")[0].dial(runtest.Within(t), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, closing(t, conn), "another port of loopback")
	f.put("c1.yaml", fmt.Sprintf("- {name: named, allow: [\"127.0.0.1:%s\"]}\n", front))
	if err := h.reload(adminPort + f.extra()); err != nil {
		t.Fatal(err)
	}
	_, err = h.ways("c1")[0].dial(runtest.Within(t), "127.0.0.1:"+front)
	if r := wantRefused(t, err, 403, fault.CodePolicyDenied); !strings.Contains(r.Error(), "the agent refuses") || !strings.Contains(r.Error(), "a listener of the hub") {
		t.Errorf("named by the hub's policy alone: %v", r)
	}
}
