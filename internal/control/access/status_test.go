// SPDX-License-Identifier: Apache-2.0

package access

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

// looked is the outcome of a pass that looked at everything.
func looked(w clusters.World, gaps ...istio.Uncovered) *outcome {
	c := newCoverage()
	for _, k := range w.Clusters {
		c.gaps[k.Name] = nil
	}
	for _, u := range gaps {
		c.gaps[u.Cluster] = append(c.gaps[u.Cluster], u)
	}
	o := &outcome{judged: judged{world: w, facts: istio.Facts{Clusters: w.Clusters}}, coverage: c, now: time.Unix(1e9, 0),
		gateways: []istio.Workload{{}}}
	for _, k := range w.Clusters {
		o.want.Covered = append(o.want.Covered, istio.Covered{Cluster: k.Name, Flow: "api"})
	}
	return o
}

// see compares a condition with one like "Ready False Pending".
func see(t *testing.T, what string, all []metav1.Condition, want string) {
	t.Helper()
	kind, _, _ := strings.Cut(want, " ")
	c := meta.FindStatusCondition(all, kind)
	if c == nil || c.Type+" "+string(c.Status)+" "+c.Reason != want {
		t.Errorf("%s: %+v, want %s", what, c, want)
	}
}

func TestATenantSaysWhetherItIsCovered(t *testing.T) {
	old := objects.EdgeTenantStatus{}
	way := clusters.Ways{Namespace: "ns", Name: "c1"}
	status := func(o *outcome) []metav1.Condition { return o.tenant(way, old, 1).Conditions }
	see(t, "guarded", status(looked(known(true))), "Covered True InForce")
	see(t, "no list", status(looked(known(false))), "Covered Unknown NoList")
	see(t, "not known", status(looked(clusters.World{})), "Covered Unknown NoList")
	o := looked(known(true), istio.Uncovered{Cluster: "c1", Flow: "api", Way: "Service ns/api", Kind: istio.Open})
	see(t, "a gap", status(o), "Covered False Unguarded")
	o = looked(known(true))
	o.problems = []istio.Problem{{Object: "Gateway ns/g", What: "its port is not known"}}
	see(t, "a problem", status(o), "Covered Unknown Unclear")
	o = looked(known(true))
	o.gateways = nil
	see(t, "no gateway", status(o), "Covered Unknown NoGateway")
}

func TestATenantNotesWhatStaysInForce(t *testing.T) {
	o := looked(known(true))
	kept := v1alpha1.EdgeTenantSpec{Protected: true}
	refused := clusters.Ways{Namespace: "ns", Name: "c1", Refused: "spec.ways: none", InForce: &kept}
	one := o.tenant(refused, objects.EdgeTenantStatus{}, 2)
	if r := one.Refused; r == nil || r.Generation != 2 || r.Why != refused.Refused || r.InForce != &kept {
		t.Errorf("%+v", r)
	}
	see(t, "refused", one.Conditions, "Accepted False Invalid")
	o.now = o.now.Add(time.Hour)
	if two := o.tenant(refused, one, 2); two.Refused.Time != one.Refused.Time {
		t.Errorf("it is noted again: %+v", two.Refused)
	}
	refused.Lost, refused.InForce = true, nil
	if two := o.tenant(refused, one, 2); two.Refused != one.Refused {
		t.Errorf("what is noted is lost: %+v", two.Refused)
	}
	shared := o.tenant(clusters.Ways{Name: "c1", Shared: "a name is claimed"}, one, 2)
	see(t, "shared", shared.Conditions, "Accepted False Invalid")
	if shared.Refused != nil {
		t.Error("after a start, it would count as refused")
	}
}

func TestWhatIsHeldIsNotReady(t *testing.T) {
	o := looked(known(true))
	o.world.Tenants = []clusters.Ways{{Namespace: "ns", Name: "c2", Lost: true}}
	o.held = refs("tombolo-api-c2")
	o.owner = map[istio.Ref]string{o.held[0]: "c2"}
	for name, want := range map[string]string{"c1": objects.ReasonInForce, "c2": objects.ReasonPending} {
		if c := o.ready(map[string]bool{name: true}, false); c.reason != want {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
