// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// TestARemovedCluster: all that it had ends and stays out, also when a cluster of the same
// name is registered again and when the hub has restarted; another cluster goes on.
func TestARemovedCluster(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	h := startHub(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", file)})
	token := h.tokenWith("c1", time.Hour, 3)
	a := startAgent(t, agentSpec{join: token.Join})
	other := startAgent(t, agentSpec{join: h.token("c2").Join})
	n := relayed(t, h.node("c1", "n1"), h.listen).up(t)
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	to := runtest.Echo(t)
	path := h.socket("c1", hub.ProtocolConnect)
	live, err := dialConnect(runtest.Within(t), path, to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "before")
	remote, err := h.dialConnectTLS(runtest.Within(t), client, to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	const bytes = "tombolo_hub_bytes_to_cluster_total"
	before := sumOf(t, h, bytes)
	if before == 0 {
		t.Error("nothing was counted")
	}

	err = h.admin.Call(runtest.Within(t), http.MethodDelete, "/v1/clusters/c1", nil, &admin.ClusterRemoval{})
	f := wantFault(t, err, fault.CodeClusterInUse)
	if f.Why != "agents connected: 1, nodes connected: 1, tokens that can be used: 1" || !strings.Contains(f.Next, "--force") {
		t.Errorf("%+v", f)
	}
	mustEcho(t, live, "after a refusal")
	var gone admin.ClusterRemoval
	h.call(http.MethodDelete, "/v1/clusters/c1?force=true", nil, &gone)
	if gone.Agents != 1 || gone.Nodes != 1 || gone.Clients != 1 || gone.Tokens != 2 || gone.Connections != 3 || len(gone.Warnings) > 0 {
		t.Errorf("%+v", gone)
	}
	for name, conn := range map[string]interface {
		SetReadDeadline(time.Time) error
		Read([]byte) (int, error)
	}{"by the socket": live, "by a certificate": remote} {
		conn.SetReadDeadline(time.Now().Add(runtest.Patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a stream %s goes on: %v", name, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Errorf("the socket %s is there", path)
	}
	runtest.Eventually(t, "the node knows why", func() bool {
		s := n.Status()[0]
		return !s.Connected && s.Fault != nil && s.Fault.Code == fault.CodeCertRevoked
	})
	logged(t, a.log, "this agent was revoked: the hub does not let it in any more", fault.CodeCertRevoked)
	a.stop()
	me, err := enrol.Load(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	wantShutOut := func(h *testHub) {
		t.Helper()
		if f := greet(t, h.dialTLS(me.TLS(), trust.ALPNSession), hello("x")).GetRefusal(); f.GetCode() != string(fault.CodeCertRevoked) {
			t.Errorf("a session: %v", f)
		}
		wantFault(t, renewal(t, h, a.dir), fault.CodeCertRevoked)
		_, err := h.dialConnectTLS(runtest.Within(t), client, to.Addr())
		wantRefused(t, err, http.StatusUnauthorized, fault.CodeCertRevoked)
	}
	wantShutOut(h)
	if now := sumOf(t, h, bytes); now < before {
		t.Errorf("a counter went back from %v to %v", before, now)
	}
	// What docs/reference/metrics.md tells to alert on.
	if all, connected := gauge(t, h.reg, "tombolo_hub_clusters"), gauge(t, h.reg, "tombolo_hub_clusters_connected"); all != 1 || connected != 1 || !other.Ready() {
		t.Errorf("%v clusters, %v of them connected", all, connected)
	}
	runtest.Eventually(t, "a record tells of it", func() bool {
		return slices.ContainsFunc(audited(t, file, audit.Filter{}), func(r audit.Record) bool {
			return r.Kind == audit.KindRemoval && r.Subject == "c1" && r.Cluster == "c1" && r.Peer != nil
		})
	})

	other.stop()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h = startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	wantShutOut(h)
	var again admin.Token
	runtest.Eventually(t, "it is registered anew", func() bool { // from the next second on
		q := admin.TokenRequest{Cluster: "c1", TTLSeconds: 900, Uses: 1}
		return h.admin.Call(runtest.Within(t), "POST", "/v1/tokens", q, &again) == nil
	})
	plantJoin(t, again.Join)
	if !again.NewCluster {
		t.Errorf("%+v", again)
	}
	wantShutOut(h)
	startAgent(t, agentSpec{join: again.Join})
}

// TestARemovedClusterThatIsNamed by the configuration and by a policy.
func TestARemovedClusterThatIsNamed(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "c1.yaml")
	policy := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules: [{name: all, clusters: [c1], allow: [10.0.0.0/8]}]\n"
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	h := startHub(t, hubSpec{extra: fmt.Sprintf("clusters: [{name: c1}]\npolicies: [%q]\n", file)})
	var gone admin.ClusterRemoval
	h.call(http.MethodDelete, "/v1/clusters/c1", nil, &gone)
	if said := strings.Join(gone.Warnings, "\n"); len(gone.Warnings) != 2 || !strings.Contains(said, "the hub's configuration names cluster c1") || !strings.Contains(said, file) {
		t.Errorf("%q", gone.Warnings)
	}
	var list admin.ClusterList
	h.call(http.MethodGet, "/v1/clusters", nil, &list)
	if len(list.Clusters) != 1 || !list.Clusters[0].Configured || len(list.Clusters[0].Policies) != 1 {
		t.Errorf("%+v", list)
	}
}

// sumOf adds up a metric over its labels.
func sumOf(t *testing.T, h *testHub, name string) (sum float64) {
	t.Helper()
	families, err := h.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
