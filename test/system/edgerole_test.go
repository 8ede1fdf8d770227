// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func namesAt(t *testing.T, c *admin.Client, target, version string) (out admin.ClusterNames) {
	t.Helper()
	if err := c.Call(runtest.Within(t), "GET", "/v1/clusters/names?target="+target+"&version="+version, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAnEdgeDialsAndListsButDoesNotOperate: the certificate of an edge opens streams and shows names,
// as the policy lets its identity, and nothing else of the hub.
func TestAnEdgeDialsAndListsButDoesNotOperate(t *testing.T) {
	dir := runtest.Dir(t)
	to := runtest.Echo(t)
	rules := filepath.Join(dir, "policy.yaml")
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" +
		"- {name: e1, clusters: [c1, c2], callers: ['spiffe://*/edge/e1'], allow: [\"" + to.Addr() + "\"]}\n" +
		"- {name: e2, clusters: [c2], callers: ['spiffe://*/edge/e2'], allow: [\"" + to.Addr() + "\"]}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, _ := pair(t, hubSpec{extra: "policies: [" + rules + "]\naudit: {path: " + dir + "/audit.jsonl}"}, agentSpec{})
	h.token("c2")
	cert := h.issue(admin.CertificateRequest{Role: "edge", Name: "e1"})
	e1, e2 := h.operator(cert), h.operator(h.issue(admin.CertificateRequest{Role: "edge", Name: "e2"}))
	conn, err := e1.Stream(runtest.Within(t), "c1", to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEcho(t, conn, "through the hub")
	for who, c := range map[string]struct {
		client  *admin.Client
		cluster string
		code    fault.Code
	}{
		"another edge":            {e2, "c1", fault.CodePolicyDenied},
		"a cluster without agent": {e1, "c2", fault.CodeNoAgent},
		"an unknown cluster":      {e1, "c3", fault.CodeClusterUnknown},
	} {
		if _, err := c.client.Stream(runtest.Within(t), c.cluster, to.Addr()); !fault.Has(err, c.code) {
			t.Errorf("%s: %v, want %s", who, err, c.code)
		}
	}
	if out := namesAt(t, e1, to.Addr(), ""); !slices.Equal(out.Names, []string{"c1", "c2"}) {
		t.Errorf("e1 is shown %v", out.Names)
	}
	if out := namesAt(t, e2, to.Addr(), ""); !slices.Equal(out.Names, []string{"c2"}) {
		t.Errorf("e2 is shown %v", out.Names)
	}
	var none struct{}
	for _, r := range [][2]string{
		{"GET", "/v1/status"}, {"GET", "/v1/clusters"}, {"GET", "/v1/backup"}, {"POST", "/v1/tokens"},
		{"POST", "/v1/certificates"}, {"POST", "/v1/revocations"}, {"DELETE", "/v1/clusters/c1"},
		{"GET", "/v1/clusters/c1/explain?target=10.0.0.1:1"},
	} {
		if err := e1.Call(runtest.Within(t), r[0], r[1], nil, &none); !fault.Has(err, fault.CodeNotFound) {
			t.Errorf("%s %s: %v", r[0], r[1], err)
		}
	}
	if out := h.revoke("edge", cert.serial); out.Connections == 0 || out.Identity != "spiffe://tombolo.internal/edge/e1" {
		t.Errorf("%+v", out)
	}
	if err := e1.Call(runtest.Within(t), "GET", "/v1/clusters/names?target=a:1", nil, &none); err == nil {
		t.Error("a revoked edge is answered")
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the stream of a revoked edge gives %d bytes", n)
	}
	h.stop()
	found := false
	for line := range strings.Lines(string(read(t, dir+"/audit.jsonl"))) {
		found = found || strings.Contains(line, `"kind":"dial"`) && strings.Contains(line, `"frontend":"edge"`) &&
			strings.Contains(line, `"caller":"spiffe://tombolo.internal/edge/e1"`) && strings.Contains(line, `"allow"`)
	}
	if !found {
		t.Error("the dial of the edge has no record with its name")
	}
}

// TestNamesWaitForAChange: a request with the version of the last list is answered when a cluster comes or goes.
func TestNamesWaitForAChange(t *testing.T) {
	h := startHub(t, hubSpec{})
	h.token("c1")
	e := h.operator(h.issue(admin.CertificateRequest{Role: "edge", Name: "e1"}))
	last := namesAt(t, e, "a:1", "")
	for _, step := range []struct {
		change func()
		want   []string
	}{
		{func() { h.token("c0") }, []string{"c0", "c1"}},
		{func() { h.call(http.MethodDelete, "/v1/clusters/c1?force=true", nil, &struct{}{}) }, []string{"c0"}},
	} {
		got := make(chan admin.ClusterNames, 1)
		go func() { got <- namesAt(t, e, "a:1", last.Version) }()
		step.change()
		if last = <-got; !slices.Equal(last.Names, step.want) {
			t.Errorf("%v, want %v", last.Names, step.want)
		}
	}
}
