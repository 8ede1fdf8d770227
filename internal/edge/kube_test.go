// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// tenantObject is one as an API server keeps it.
func tenantObject(namespace, name, host, upstream string) string {
	return `{"apiVersion":"tombolo.dev/v1alpha1","kind":"EdgeTenant","metadata":{"namespace":"` + namespace + `","name":"` + name +
		`","uid":"u","generation":3,"labels":{"a":"b"}},"spec":{"ways":[{"flow":"api","names":["` + host + `"],"upstreams":["` +
		upstream + `"]}]},"status":{"x":1}}`
}

// TestTenantsOfKubernetes: objects come, change and go while a tunnel of another one lives; a mistake is refused with
// its field and keeps what was good, a claim of a file is respected, and an API server that is away takes nothing.
func TestTenantsOfKubernetes(t *testing.T) {
	s := kubetest.New(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, s.Kubeconfig("edge"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := secure(t)
	s.Put(kubetest.Tenants, "c1", tenantObject("ns", "c1", "c1.k", up))
	f := start(t, "", "kubernetes: {kubeconfig: "+file+"}")
	leads := func(name, cluster string) {
		t.Helper()
		runtest.Eventually(t, name+" leads to "+cluster, func() bool {
			r, ok := f.Tenants().ByName(name, nil)
			return ok && r.Tenant.Name == cluster || !ok && cluster == ""
		})
	}
	refused := func(want string) {
		t.Helper()
		runtest.Eventually(t, "refused: "+want, func() bool {
			st := f.Status().Tenants
			if want == "" {
				return st.Refused == 0
			}
			return st.Refused == 1 && strings.Contains(st.Refusals[0].File+" "+st.Refusals[0].Reason, want)
		})
	}
	leads("c1.k", "c1")
	c := tls.Client(dial(t, f.tls), &tls.Config{ServerName: "c1.k", InsecureSkipVerify: true})
	ping(t, c, "by an object")
	s.Put(kubetest.Tenants, "c2", tenantObject("ns", "c2", "c2.k", up))
	leads("c2.k", "c2")
	s.Put(kubetest.Tenants, "c2", tenantObject("ns", "c2", "bad name", up))
	refused(`spec.ways[0].names[0]: name "bad name" has the character`)
	refused("Kubernetes ns/c2")
	leads("c2.k", "c2")
	f.tenant("own", "  - {flow: api, names: [own.k], upstreams: [\""+up+"\"]}\n")
	s.Put(kubetest.Tenants, "c2", tenantObject("ns", "c2", "own.k", up))
	refused("own.yaml")
	f.remove("own")
	leads("own.k", "c2")
	refused("")
	away := func(want int) {
		t.Helper()
		runtest.Eventually(t, "sources that are away", func() bool {
			st := f.Status().Tenants.Away
			return len(st) == want && (want == 0 || st[0].Source == "Kubernetes" && st[0].Reason != "")
		})
	}
	away(0)
	s.Away(true)
	s.Forget()
	away(1)
	leads("c1.k", "c1")
	s.Away(false)
	s.Delete(kubetest.Tenants, "c2")
	leads("own.k", "")
	away(0)
	ping(t, c, "while others came and went")
}
