// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// AnnotationForce on an Extension, a Shoot or an AccessPolicy, with the value "true", lets a list count although it
// locks out its author or the cluster's own nodes.
const AnnotationForce = "tombolo.dev/force"

// AnnotationAuthor on an Extension, a Shoot or an AccessPolicy has the address of who wrote the list: a list that locks
// it out is refused. The API server tells nobody from where a request came.
const AnnotationAuthor = "tombolo.dev/author-address"

// The rules for a user's list.
const (
	RuleAllow  = "acl-allow"
	RuleDeny   = "acl-deny"
	RuleOthers = "acl-others" // whom a list of denied ranges does not name
)

// Options say how strictly a list is judged.
type Options struct {
	At     string     // the path of the providerConfig. Default: InExtension
	Most   int        // how many ranges a user may list; 0: any number
	Author netip.Addr // of whoever wrote the list; invalid: unknown
	Force  bool       // as AnnotationForce, which is looked at too
}

// Access is what an access list comes to.
type Access struct {
	Names    Names
	List     ACL
	Platform []Range
	Policy   v1alpha1.AccessPolicy // about the cluster TechnicalID in all flows of an edge
}

// Read judges an access list and everything that it depends on. If any problem is not a warning, what was in force
// before should stay so.
func (f Facts) Read(o Options) (Access, []Problem) {
	if o.At == "" {
		o.At = InExtension
	}
	var out Access
	var all problems
	take := func(list []Problem) {
		for _, p := range list {
			all.add(p)
		}
	}
	list, found := ReadACL(o.At, f.Extension.Spec.ProviderConfig, o.Most)
	take(found)
	names, found := f.Names()
	take(found)
	platform, found := f.Platform()
	take(found)
	if !Usable(all.list) {
		return Access{}, all.all()
	}
	out = Access{names, list, platform, accessPolicy(names.TechnicalID, list, platform)}
	take(f.lockouts(o, out))
	if !Usable(all.list) {
		return Access{}, all.all()
	}
	return out, all.all()
}

// Closed is what there is until a first list is accepted: the platform gets in, and nobody else. It is false if the
// platform's ranges or the shoot's names are not known.
func (f Facts) Closed() (Access, bool) {
	names, found := f.Names()
	platform, more := f.Platform()
	if !Usable(found) || !Usable(more) || len(platform) == 0 {
		return Access{}, false
	}
	return Access{Names: names, Platform: platform, Policy: accessPolicy(names.TechnicalID, ACL{}, platform)}, true
}

// Author is who wrote a list, as the first of some annotations notes it; invalid: nobody noted it.
func Author(all ...map[string]string) (netip.Addr, []Problem) {
	for _, annotations := range all {
		text := annotations[AnnotationAuthor]
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Addr{}, []Problem{{Path: "metadata.annotations[" + AnnotationAuthor + "]", Code: fault.CodeAccessList,
				Cause: Invalid, What: "it is no address", Next: "write the address alone, or remove it"}}
		}
		return a.Unmap(), nil
	}
	return netip.Addr{}, nil
}

// accessPolicy is the policy of a list. A list of denied ranges has no platform's: nobody else is refused, and a denied
// range of the platform is found by lockouts.
func accessPolicy(cluster string, list ACL, platform []Range) v1alpha1.AccessPolicy {
	var out v1alpha1.AccessPolicy
	out.APIVersion, out.Kind = v1alpha1.Version, v1alpha1.KindAccessPolicy
	out.Metadata = &v1alpha1.ObjectName{Name: cluster}
	rule := func(name, group, comment string) *v1alpha1.AccessRule {
		out.Rules = append(out.Rules, v1alpha1.AccessRule{Name: name, Group: group, Comment: comment,
			Clusters: []string{cluster}, Flows: policy.EdgeFlows()})
		return &out.Rules[len(out.Rules)-1]
	}
	const from = "providerConfig of the Extension of type acl"
	if list.Deny {
		r := rule(RuleDeny, "", from)
		r.Deny, r.Sources = []string{"*"}, texts(list.Ranges)
		rule(RuleOthers, "", "whom "+RuleDeny+" does not name").Allow = []string{"*"}
		return out
	}
	if len(list.Ranges) > 0 {
		r := rule(RuleAllow, "", from)
		r.Allow, r.Sources = []string{"*"}, texts(list.Ranges)
	}
	for i := 0; i < len(platform); {
		r := rule(platform[i].Rule, GroupPlatform, "")
		r.Allow = []string{"*"}
		var origins []string
		for of := platform[i].Rule; i < len(platform) && platform[i].Rule == of; i++ {
			r.Sources = append(r.Sources, platform[i].Prefix.String())
			origins = append(origins, platform[i].Origin)
		}
		slices.Sort(origins)
		r.Comment = strings.Join(slices.Compact(origins), ", ")
	}
	return out
}

func texts(ps []netip.Prefix) (out []string) {
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// lockouts are the problems of a list that refuses its author or the platform.
func (f Facts) lockouts(o Options, s Access) []Problem {
	ps := problems{object: f.Extension.name()}
	compiled, found := policy.Of(s.Policy.AccessContent)
	for _, p := range found {
		ps.add(Problem{Path: o.At, Cause: Invalid, Warning: p.Warning, What: p.Path + ": " + p.Message})
	}
	if compiled == nil {
		return ps.all()
	}
	var insiders []policy.Insider
	inside := func(who, text string, flows ...string) {
		in, err := policy.InsiderAt(who, s.Names.TechnicalID, text, flows...)
		if err != nil {
			ps.refuse(o.At, Invalid, "", "%s", err)
			return
		}
		insiders = append(insiders, in)
	}
	if o.Author.IsValid() {
		inside("the author of the list, at", o.Author.Unmap().WithZone("").String(), policy.FlowAPI)
	}
	for _, r := range s.Platform {
		inside(r.Origin+":", r.Prefix.String(), policy.EdgeFlows()...)
	}
	forced := o.Force || f.Extension.Metadata.Annotations[AnnotationForce] == "true"
	seen := map[string]bool{}
	for _, l := range policy.NewEdgeRules(compiled).Lockouts(insiders, nil) {
		if seen[l.Who] {
			continue // in another flow
		}
		seen[l.Who] = true
		p := Problem{Path: o.At + ".rule.cidrs", Cause: Forbidden, Code: fault.CodeLockout, Warning: forced,
			What: fmt.Sprintf("%s is locked out: %s", l.Who, l.Why)}
		if !forced {
			p.Next = fmt.Sprintf("change the list, or set the annotation %s: \"true\"", AnnotationForce)
		}
		ps.add(p)
	}
	return ps.all()
}

func (e Extension) name() string {
	if e.Metadata.Name == "" {
		return ""
	}
	return "Extension " + e.Metadata.Namespace + "/" + e.Metadata.Name
}
