// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

// outcome is what came of a pass.
type outcome struct {
	judged
	gateways []istio.Workload
	coverage *coverage
	named    []map[string]bool    // clusters by policy
	ends     map[string][]string  // connections that an edit ends, by cluster
	owner    map[istio.Ref]string // the cluster that an object is for; "": several
	pending  []istio.Ref          // not yet written or removed
	failed   map[istio.Ref]string // why
	now      time.Time
}

// owners says for which cluster each object is.
func owners(plans ...istio.Planned) map[istio.Ref]string {
	out := map[istio.Ref]string{}
	add := func(kind string, m istio.Meta) {
		out[istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}] = m.Labels[istio.LabelCluster]
	}
	for _, p := range plans {
		for _, o := range p.EnvoyFilters {
			add(istio.KindEnvoyFilter, o.Metadata)
		}
		for _, o := range p.AuthorizationPolicies {
			add(istio.KindAuthorizationPolicy, o.Metadata)
		}
		for _, o := range p.ConfigMaps {
			add(istio.KindConfigMap, o.Metadata)
		}
		for _, i := range p.Injected {
			if of := i.Clusters(); len(of) == 1 {
				out[i.Ref()] = of[0]
			}
		}
	}
	return out
}

// condition is a condition without its times.
type condition struct {
	kind    string
	status  metav1.ConditionStatus
	reason  string
	message string
}

func (c condition) set(all *[]metav1.Condition, generation int64, now time.Time) {
	meta.SetStatusCondition(all, metav1.Condition{Type: c.kind, Status: c.status, Reason: c.reason,
		Message: cut(c.message, 4096), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)})
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "..."
}

// policy is the status of a policy: that of the i-th of the world.
func (o *outcome) policy(i int, old objects.AccessPolicyStatus, generation int64) objects.AccessPolicyStatus {
	rules := o.world.Policies[i]
	out := objects.AccessPolicyStatus{
		ObservedGeneration: generation, Conditions: slices.Clone(old.Conditions), Enforcement: o.enforcement(),
	}
	names := o.named[i]
	for _, c := range o.facts.Clusters {
		if names[c.Name] {
			o.access(c, &out)
		}
	}
	out.EditEnds = o.edits(names)
	var covered condition
	covered, out.Covered, out.Uncovered, out.MoreUncovered = o.covered(names)
	accepted := condition{objects.ConditionAccepted, metav1.ConditionTrue, objects.ReasonValid, partly(rules)}
	if len(rules.Refused) > 0 {
		p := rules.Refused[0]
		accepted = condition{objects.ConditionAccepted, metav1.ConditionFalse, objects.ReasonInvalid,
			p.Path + ": " + p.Message}
		out.Refused = &objects.Refusal{Generation: generation, Time: metav1.NewTime(o.now.Truncate(time.Second)),
			Path: p.Path, Why: cut(p.Message, 4096)}
		if !rules.Lost && len(rules.Content.Rules) > 0 {
			out.Refused.InForce = &rules.Content
		}
		if r := old.Refused; r != nil && r.Generation == generation && r.Why == out.Refused.Why {
			out.Refused.Time = r.Time
		}
	}
	for _, c := range []condition{accepted, o.ready(names, len(rules.Refused) > 0), covered} {
		c.set(&out.Conditions, generation, o.now)
	}
	return out
}

func partly(r clusters.Rules) string {
	if len(r.Partly) == 0 {
		return "its rules are in force"
	}
	p := r.Partly[0]
	return fmt.Sprintf("%d of its rules are in force in part: what a list of sources cannot say is not allowed. "+
		"Rule %s: %s", len(r.Partly), p.Rule, p.Message)
}

func (o *outcome) enforcement() string {
	var out []string
	for _, g := range o.gateways {
		out = append(out, g.Enforcement)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// named are, for each policy, the clusters to whose lists it contributes.
func named(j judged) []map[string]bool {
	out := make([]map[string]bool, len(j.world.Policies))
	for i, p := range j.world.Policies {
		out[i] = map[string]bool{}
		for _, r := range p.Content.Rules {
			for _, name := range r.Clusters {
				out[i][name] = true
			}
		}
	}
	for _, c := range j.facts.Clusters {
		for _, w := range c.Ways {
			for _, entries := range [][]policy.SourceEntry{w.List.Allow, w.List.Deny} {
				for _, e := range entries {
					out[e.Policy][c.Name] = true
				}
			}
		}
	}
	return out
}

// access adds the effective lists of a cluster.
func (o *outcome) access(c istio.Cluster, out *objects.AccessPolicyStatus) {
	var all []objects.EffectiveAccess
	for _, w := range c.Ways {
		one := objects.EffectiveAccess{Cluster: c.Name, Flow: w.Flow, Protected: w.List.Protected}
		for action, entries := range map[string][]policy.SourceEntry{"allow": w.List.Allow, "deny": w.List.Deny} {
			for _, e := range entries {
				one.Entries = append(one.Entries, objects.EffectiveEntry{Range: policy.Range(e.Prefix), Action: action,
					Rule: e.Rule, Group: e.Group, Source: o.world.Policies[e.Policy].Source})
			}
		}
		slices.SortStableFunc(one.Entries, func(a, b objects.EffectiveEntry) int {
			return strings.Compare(b.Action, a.Action)
		})
		if n := len(one.Entries); n > objects.MostEffective {
			one.Entries, one.MoreEntries = one.Entries[:objects.MostEffective], int32(n-objects.MostEffective)
		}
		same := func(a objects.EffectiveAccess) bool {
			return a.Flow == one.Flow && slices.Equal(a.Entries, one.Entries)
		}
		if w.Listed() && !slices.ContainsFunc(all, same) {
			all = append(all, one)
		}
	}
	for _, a := range all {
		if len(out.Access) == objects.MostAccess {
			out.MoreAccess++
			continue
		}
		out.Access = append(out.Access, a)
	}
}

// edits are the connections that an edit of the lists of some clusters ends.
func (o *outcome) edits(names map[string]bool) (out []string) {
	for name := range names {
		out = append(out, o.ends[name]...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if more := len(out) - objects.MostEdits + 1; more > 1 {
		out = append(out[:objects.MostEdits-1], fmt.Sprintf("and %d more", more))
	}
	return out
}

// covered says whether every way into some clusters has one guard, how many of them have, and which have not.
func (o *outcome) covered(names map[string]bool) (c condition, ratio string, some []objects.UncoveredWay, more int32) {
	ways, known := 0, true
	for _, c := range o.want.Covered {
		if names[c.Cluster] {
			ways++
		}
	}
	doubled := true
	gaps := 0
	for _, c := range o.facts.Clusters {
		if !names[c.Name] {
			continue
		}
		wrong, judged := o.coverage.of(c.Name)
		known = known && judged
		for _, u := range wrong {
			gaps++
			doubled = doubled && u.Kind == istio.Doubled
			if len(some) < objects.MostUncovered {
				some = append(some, objects.UncoveredWay{Cluster: u.Cluster, Flow: u.Flow, Object: u.Way,
					Reason: cut(string(u.Kind)+": "+u.Why, 1024)})
			} else {
				more++
			}
		}
	}
	ratio = fmt.Sprintf("%d/%d", max(ways-gaps, 0), ways)
	c = condition{kind: objects.ConditionCovered, status: metav1.ConditionUnknown}
	switch {
	case len(o.gateways) == 0:
		c.reason, c.message = objects.ReasonNoGateway, "no gateway is configured"
	case gaps > 0:
		c.status, c.reason = metav1.ConditionFalse, objects.ReasonUnguarded
		if doubled {
			c.reason = objects.ReasonAmbiguous
		}
		c.message = fmt.Sprintf("%d ways are not guarded as the policy says: %s/%s by the %s: %s", gaps, some[0].Cluster,
			some[0].Flow, some[0].Object, some[0].Reason)
	case !known:
		c.reason, c.message = objects.ReasonPending, "the ways are being looked at"
	case len(o.problems) > 0:
		c.reason, c.message = objects.ReasonUnclear, o.problems[0].String()
	case ways == 0:
		c.reason, c.message = objects.ReasonNoGateway, "no gateway leads to its clusters"
	default:
		c.status, c.reason, c.message = metav1.ConditionTrue, objects.ReasonInForce, "every way has exactly one guard"
		if len(o.hidden) > 0 {
			c.message += "; but " + o.hidden[0]
		}
	}
	return c, ratio, some, more
}

// ready says whether everything for some clusters is written.
func (o *outcome) ready(names map[string]bool, refused bool) condition {
	c := condition{kind: objects.ConditionReady, status: metav1.ConditionFalse}
	concerns := func(r istio.Ref) bool { return o.owner[r] == "" || names[o.owner[r]] }
	for _, r := range o.foreign {
		if concerns(r) {
			c.reason, c.message = objects.ReasonUnwritten, r.String()+" is somebody else's: remove or rename it"
			return c
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(o.large), compareRefs) {
		if concerns(r) {
			c.reason = objects.ReasonUnwritten
			c.message = fmt.Sprintf("%s would have %d KiB, and the most is %d: %s; list fewer or wider ones", r, o.large[r]>>10,
				istio.MostBytes>>10, o.longest(o.owner[r]))
			return c
		}
	}
	for _, r := range o.pending { // in a stable order
		if why := o.failed[r]; why != "" && concerns(r) {
			c.reason, c.message = objects.ReasonUnwritten, r.String()+": "+why
			return c
		}
	}
	held := o.world.Held()
	switch {
	case len(held) > 0:
		c.reason = objects.ReasonPending
		c.message = "nothing is changed, because what was in force is not known of " +
			strings.Join(held[:min(len(held), 8)], ", ")
	case refused:
		c.reason, c.message = objects.ReasonInvalid, "what was in force before stays"
	case slices.ContainsFunc(o.held, concerns):
		lost := o.world.Lost()
		c.reason = objects.ReasonPending
		c.message = "objects stay as they are, because what was in force is not known of " +
			strings.Join(lost[:min(len(lost), 8)], ", ")
	case slices.ContainsFunc(o.pending, concerns):
		c.reason, c.message = objects.ReasonPending, "objects are being written"
	default:
		c.status, c.reason, c.message = metav1.ConditionTrue, objects.ReasonInForce, "the gateways have its lists"
	}
	return c
}

func compareRefs(a, b istio.Ref) int { return strings.Compare(a.String(), b.String()) }

// longest says which rule has the most ranges in the lists of a cluster; "": of any.
func (o *outcome) longest(cluster string) string {
	type of struct {
		policy int
		rule   string
	}
	counts := map[of]int{}
	for _, c := range o.facts.Clusters {
		if cluster != "" && c.Name != cluster {
			continue
		}
		for _, w := range c.Ways {
			one := map[of]int{}
			for _, e := range slices.Concat(w.List.Allow, w.List.Deny) {
				one[of{e.Policy, e.Rule}]++
			}
			for k, n := range one {
				counts[k] = max(counts[k], n)
			}
		}
	}
	most := of{-1, ""}
	for k, n := range counts {
		if m := counts[most]; n > m || n == m && (k.policy < most.policy || k.policy == most.policy && k.rule < most.rule) {
			most = k
		}
	}
	if most.policy < 0 || most.policy >= len(o.world.Policies) {
		return "there are too many names"
	}
	p := o.world.Policies[most.policy]
	at := slices.IndexFunc(p.Content.Rules, func(r v1alpha1.AccessRule) bool { return r.Name == most.rule })
	if at < 0 {
		return fmt.Sprintf("%s has %d of its ranges", p.Source, counts[most])
	}
	return fmt.Sprintf("%s rules[%d].sources has %d of its ranges", p.Source, at, counts[most])
}

// tenant is the status of a tenant: that of the i-th of the world.
func (o *outcome) tenant(t clusters.Ways, old objects.EdgeTenantStatus, generation int64) objects.EdgeTenantStatus {
	out := objects.EdgeTenantStatus{ObservedGeneration: generation, Conditions: slices.Clone(old.Conditions)}
	accepted := condition{objects.ConditionAccepted, metav1.ConditionTrue, objects.ReasonValid, "its ways are known"}
	switch {
	case t.Refused != "":
		accepted.status, accepted.reason, accepted.message = metav1.ConditionFalse, objects.ReasonInvalid, t.Refused
	case t.Shared != "":
		accepted.status, accepted.reason = metav1.ConditionFalse, objects.ReasonInvalid
		accepted.message = t.Shared + ", and it is not known who had it first: both are in force; remove it from one of them"
	}
	switch {
	case t.Lost: // what is noted is all that is known
		out.Refused = old.Refused
	case t.Refused != "":
		out.Refused = &objects.TenantRefusal{Generation: generation, Time: metav1.NewTime(o.now.Truncate(time.Second)),
			Why: cut(t.Refused, 4096), InForce: t.InForce}
		if r := old.Refused; r != nil && r.Generation == generation && r.Why == out.Refused.Why {
			out.Refused.Time = r.Time
		}
	}
	names := map[string]bool{t.Name: true}
	for _, c := range []condition{accepted, o.ready(names, t.Refused != ""), o.guarded(t.Name)} {
		c.set(&out.Conditions, generation, o.now)
	}
	return out
}

// guarded says whether every way into one cluster has one guard. Without a list it needs none.
func (o *outcome) guarded(name string) condition {
	i := slices.IndexFunc(o.facts.Clusters, func(c istio.Cluster) bool { return c.Name == name })
	if i < 0 || !slices.ContainsFunc(o.facts.Clusters[i].Ways, istio.Way.Listed) {
		return condition{objects.ConditionCovered, metav1.ConditionUnknown, objects.ReasonNoList,
			"there is no list: nothing is guarded"}
	}
	c, _, _, _ := o.covered(map[string]bool{name: true})
	return c
}
