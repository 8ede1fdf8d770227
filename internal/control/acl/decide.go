// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const (
	codeNotFound   = fault.CodeNotFound
	codeAccessList = fault.CodeAccessList
)

// outcome is what came of one Extension.
type outcome struct {
	extension
	problems []gardener.Problem    // with warnings
	policy   *objects.AccessPolicy // as it should be; nil: as it is
	tenant   *objects.EdgeTenant   // the same
	closed   bool                  // the first list is refused: only the platform gets in
	stored   *objects.AccessPolicy // as it is; nil: there is none of ours
	way      *objects.EdgeTenant   // the same
}

// refused reports whether the list is not in force as it is written.
func (o outcome) refused() bool { return !gardener.Usable(o.problems) }

// planned is what has to be done.
type planned struct {
	outcomes []outcome
	write    []client.Object // a policy before its tenant, so that no cluster is known without its list
	remove   []client.Object // as they are stored; a tenant before its policy
}

// decide says what is written for the Extensions that are there, and removed of those that are gone. Objects of a list
// that cannot be used stay as they are.
func decide(f facts, o options) planned {
	var out planned
	policies, tenants := map[string]*objects.AccessPolicy{}, map[string]*objects.EdgeTenant{}
	for i := range f.Policies {
		policies[f.Policies[i].Name] = &f.Policies[i]
	}
	for i := range f.Tenants {
		tenants[f.Tenants[i].Namespace+"/"+f.Tenants[i].Name] = &f.Tenants[i]
	}
	list := slices.Clone(f.Extensions)
	slices.SortFunc(list, func(a, b extension) int {
		return cmp.Or(strings.Compare(a.Metadata.Namespace, b.Metadata.Namespace),
			strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	kept := map[string]string{} // the name of the Extension that counts, by namespace
	for _, e := range list {
		ns := e.Metadata.Namespace
		one := outcome{extension: e}
		if e.leaves() {
			out.outcomes = append(out.outcomes, one)
			continue
		}
		if other, twice := kept[ns]; twice {
			one.problems = []gardener.Problem{{Cause: gardener.Duplicate, Code: codeAccessList,
				What: "the Extension " + other + " in the same namespace has the list of this cluster",
				Next: "remove one of them"}}
			out.outcomes = append(out.outcomes, one)
			continue
		}
		kept[ns] = e.Metadata.Name
		p, t := policies[ns], tenants[ns+"/"+ns]
		if p != nil && ours(p, ns) {
			one.stored = p
		}
		if t != nil && ours(t, ns) {
			one.way = t
		}
		if !e.migrates() { // a list that moves to another seed stays here until its Extension is gone
			one.read(f, o)
			one.problems = append(one.problems, taken(p, t, ns)...)
		}
		if one.refused() {
			one.policy, one.tenant = nil, nil
			if o.Closes && (p == nil || one.stored != nil && !listed(p)) && (t == nil || one.way != nil) {
				one.close(f, o)
			}
		}
		if want := one.policy; want != nil && !samePolicy(p, want) {
			out.write = append(out.write, want)
		}
		if want := one.tenant; want != nil && !sameTenant(t, want) {
			out.write = append(out.write, want)
		}
		out.outcomes = append(out.outcomes, one)
	}
	ended := func(ns string) bool { return kept[ns] == "" && !f.stays(ns) }
	for i := range f.Tenants {
		t := &f.Tenants[i]
		if ns := t.Labels[LabelNamespace]; ours(t, ns) && (ended(ns) || t.Namespace != ns || t.Name != ns) {
			out.remove = append(out.remove, t)
		}
	}
	for i := range f.Policies {
		p := &f.Policies[i]
		if ns := p.Labels[LabelNamespace]; ours(p, ns) && (ended(ns) || p.Name != ns) {
			out.remove = append(out.remove, p)
		}
	}
	return out
}

// stays reports whether what was written stays although the Extension is gone. Extensions go before API servers do:
// while a shoot is deleted, or moves to another seed, its control plane must not be open until its Cluster is gone too.
func (f facts) stays(ns string) bool {
	c, ok := f.Clusters[ns]
	return ok && (c.Spec.Shoot.Ends() || f.Broken["Cluster "+ns] != "")
}

// listed reports whether a policy has a user's list.
func listed(p *objects.AccessPolicy) bool {
	return slices.ContainsFunc(p.Rules, func(r v1alpha1.AccessRule) bool {
		return r.Group == "" && (r.Name == gardener.RuleAllow || r.Name == gardener.RuleDeny)
	})
}

// leaves reports whether the list ends: the object is being deleted, and not because the shoot moves.
func (e extension) leaves() bool { return e.Metadata.DeletionTimestamp != "" && !e.migrates() }

// ours reports whether an object was written here, for the Extension of a namespace.
func ours(o client.Object, ns string) bool {
	l := o.GetLabels()
	return ns != "" && l[istio.LabelManagedBy] == istio.ManagedBy && l[LabelNamespace] == ns
}

// taken are the problems of names that somebody else has.
func taken(p *objects.AccessPolicy, t *objects.EdgeTenant, ns string) (out []gardener.Problem) {
	add := func(object string) {
		out = append(out, gardener.Problem{Object: object, Cause: gardener.Duplicate, Code: codeAccessList,
			What: "it is somebody else's", Next: "remove or rename it, so that the list can be written there"})
	}
	if p != nil && !ours(p, ns) {
		add("AccessPolicy " + p.Name)
	}
	if t != nil && !ours(t, ns) {
		add("EdgeTenant " + t.Namespace + "/" + t.Name)
	}
	return out
}

// read judges the list with all that it depends on.
func (o *outcome) read(f facts, opt options) {
	ns := o.Metadata.Namespace
	g, problems := f.of(o.extension, opt)
	o.problems = problems
	if o.refused() {
		return
	}
	shoot := g.Cluster.Spec.Shoot.Metadata
	from, problems := gardener.Author(o.Metadata.Annotations, shoot.Annotations)
	o.problems = append(o.problems, problems...)
	access, problems := g.Read(gardener.Options{Most: opt.Most, Author: from,
		Force: shoot.Annotations[gardener.AnnotationForce] == "true"})
	o.problems = append(o.problems, problems...)
	if id := access.Names.TechnicalID; id != "" && id != ns { // else one shoot could write the list of another
		o.problems = append(o.problems, gardener.Problem{Object: "Cluster " + ns, Path: "spec.shoot.status.technicalID",
			Cause: gardener.Invalid, Code: codeAccessList, What: "it is " + id + ", and not the Extension's namespace"})
	}
	if !o.refused() {
		o.want(access)
	}
}

// close lets the platform in, and nobody else, until a first list is accepted; if the platform is not known, nothing is
// written. A list of ranges that cannot be read is no reason to let everybody in.
func (o *outcome) close(f facts, opt options) {
	g, problems := f.of(o.extension, opt)
	if !gardener.Usable(problems) {
		return
	}
	if access, ok := g.Closed(); ok && access.Names.TechnicalID == o.Metadata.Namespace {
		o.want(access)
		o.closed = true
	}
}

// want says what should be there.
func (o *outcome) want(access gardener.Access) {
	ns := o.Metadata.Namespace
	content := access.Policy.AccessContent
	content.Rules = slices.DeleteFunc(content.Rules, func(r v1alpha1.AccessRule) bool {
		return r.Name == gardener.RuleAdditional && r.Group == gardener.GroupPlatform // the controller has them itself
	})
	labels := map[string]string{istio.LabelManagedBy: istio.ManagedBy, LabelNamespace: ns}
	group := objects.GroupVersion().String()
	o.policy = &objects.AccessPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: group, Kind: v1alpha1.KindAccessPolicy},
		ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}, AccessContent: content,
	}
	o.tenant = &objects.EdgeTenant{
		TypeMeta:   metav1.TypeMeta{APIVersion: group, Kind: v1alpha1.KindEdgeTenant},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: ns, Labels: maps.Clone(labels)},
		Spec:       v1alpha1.EdgeTenantSpec{Ways: ways(access.Names)},
	}
}

// ways are those into a shoot. Each destination of the VPN stands for its own service, so that way needs no upstream.
// The tenant is not protected: the list closes the cluster, and without the list it is as open as without an Extension.
func ways(n gardener.Names) []v1alpha1.EdgeWay {
	api := []string{net.JoinHostPort("kube-apiserver."+n.TechnicalID+".svc.cluster.local", "443")}
	out := []v1alpha1.EdgeWay{
		{Flow: policy.FlowAPI, Names: n.API, Upstreams: api},
		{Flow: policy.FlowVPN, Destinations: n.VPN},
		{Flow: policy.FlowProxy, Destinations: n.Proxy, Upstreams: api},
	}
	if len(n.Ingress) > 0 {
		out = append(out, v1alpha1.EdgeWay{Flow: policy.FlowIngress, Names: n.Ingress,
			Upstreams: []string{"nginx-ingress-controller.garden.svc.cluster.local:443"}})
	}
	return out
}

func samePolicy(is, want *objects.AccessPolicy) bool {
	return is != nil && is.DeletionTimestamp == nil && ours(is, want.Labels[LabelNamespace]) &&
		equality.Semantic.DeepEqual(is.AccessContent, want.AccessContent)
}

func sameTenant(is, want *objects.EdgeTenant) bool {
	return is != nil && is.DeletionTimestamp == nil && ours(is, want.Labels[LabelNamespace]) &&
		equality.Semantic.DeepEqual(is.Spec, want.Spec)
}
