// SPDX-License-Identifier: Apache-2.0

// Package review judges objects of kind AccessPolicy and EdgeTenant as files of these kinds are judged, and answers
// the API server with the paths of fields. It does not ask the API server itself: who has a claim, its caller says.
package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// most bounds what one answer lists.
const most = 20

// Finding is what is wrong with a field, or odd about it.
type Finding struct{ Path, Message string }

// Verdict is what came of a review.
type Verdict struct {
	Refused  []Finding
	Warnings []string
}

// Platform are ranges that must get into every protected cluster.
type Platform struct {
	insiders []policy.Insider
	rules    *policy.Policy
}

// NewPlatform reads ranges.
func NewPlatform(ranges []string) (Platform, error) {
	if len(ranges) == 0 {
		return Platform{}, nil
	}
	var p Platform
	for _, text := range ranges {
		in, err := policy.InsiderAt("the platform's", "", text, policy.EdgeFlows()...)
		if err != nil {
			return Platform{}, err
		}
		p.insiders = append(p.insiders, in)
	}
	rules, problems := policy.Compile([]policy.Rule{{Name: "platform", Flow: policy.EdgeFlows(), Source: ranges,
		Destination: []string{"*"}}}, nil)
	if rules == nil {
		return Platform{}, fmt.Errorf("%s", problems[0].Message)
	}
	p.rules = rules
	return p, nil
}

// file is an object as a file of its kind has it.
func file(raw []byte) ([]byte, string, error) {
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, "", err
	}
	meta, _ := all["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" { // the API server will make one
		name, _ = meta["generateName"].(string)
		name += "x"
	}
	all["metadata"] = map[string]any{"name": name}
	delete(all, "status")
	out, err := json.Marshal(all)
	return out, name, err
}

// errFile is the answer to a list in a file.
var errFile = errors.New("an object cannot name a file: write ranges")

// Policy judges an AccessPolicy.
func Policy(raw []byte, platform Platform) Verdict {
	data, name, err := file(raw)
	if err != nil {
		return Verdict{Refused: []Finding{{"", err.Error()}}}
	}
	from, force, wrong := author(raw)
	p, findings := policy.Read(name, data, func(string) ([]byte, error) { return nil, errFile })
	var v Verdict
	for _, f := range findings {
		if f.Warning {
			v.warn("%s: %s", f.Path, f.Message)
		} else {
			v.refuse(f.Problem)
		}
	}
	v.problems(wrong)
	if p == nil {
		return v
	}
	v.lockout(p, from, force, platform)
	if platform.rules == nil {
		return v
	}
	for _, l := range policy.NewEdgeRules(p, platform.rules).Lockouts(platform.insiders, nil) {
		v.warn("%s/%s: %s are locked out: rule %s denies %s", l.Cluster, l.Flow, l.Who, l.Rule, l.Source)
	}
	return v
}

// author is who wrote an object, as its annotations note it, and whether it counts whoever is locked out.
func author(raw []byte) (from netip.Addr, force bool, wrong []gardener.Problem) {
	var o struct {
		Metadata gardener.Metadata `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return from, false, []gardener.Problem{{Path: "metadata", What: err.Error()}}
	}
	from, wrong = gardener.Author(o.Metadata.Annotations)
	return from, o.Metadata.Annotations[gardener.AnnotationForce] == "true", wrong
}

// lockout judges whether a policy refuses the API servers that it protects to its author. Other policies are not looked
// at: one may let the author in, which force says.
func (v *Verdict) lockout(p *policy.Policy, from netip.Addr, force bool, platform Platform) {
	if !from.IsValid() {
		return
	}
	in, err := policy.InsiderAt("its author, at", "", from.String(), policy.FlowAPI)
	if err != nil {
		v.refuse(conf.Problem{Path: "metadata.annotations", Message: err.Error()})
		return
	}
	all := []*policy.Policy{p}
	if platform.rules != nil {
		all = append(all, platform.rules)
	}
	for _, l := range policy.NewEdgeRules(all...).Lockouts([]policy.Insider{in}, nil) {
		what := fmt.Sprintf("%s/%s: %s is locked out: %s", l.Cluster, l.Flow, l.Who, l.Why)
		if force {
			v.warn("%s", what)
		} else {
			v.refuse(conf.Problem{Path: "rules", Message: fmt.Sprintf("%s; change the list, or set the annotation %s: \"true\"",
				what, gardener.AnnotationForce)})
		}
	}
}

func (v *Verdict) problems(all []gardener.Problem) {
	for _, p := range all {
		text := p.What
		if p.Next != "" {
			text += "; " + p.Next
		}
		switch {
		case p.Warning:
			v.warn("%s: %s", p.Path, text)
		case len(v.Refused) < most:
			v.Refused = append(v.Refused, Finding{p.Path, text})
		}
	}
}

// Tenant judges an EdgeTenant that takes the place of old; nil: it is new. taken says which other one has a claim; "":
// none. What the old one claimed it may go on claiming: else who claims it too, while nobody was asked, would keep it
// from being edited. Which of the two counts, the readers know.
func Tenant(raw, old []byte, taken func(claim string) string) Verdict {
	data, name, err := file(raw)
	if err != nil {
		return Verdict{Refused: []Finding{{"", err.Error()}}}
	}
	t, doc := tenant.Read(name, data)
	var v Verdict
	for _, p := range doc.Problems() {
		v.refuse(p)
	}
	if t == nil {
		return v
	}
	claims := t.Claims()
	var before v1alpha1.EdgeTenant
	var had []string
	if json.Unmarshal(old, &before) == nil {
		had = Claims(before)
	}
	for _, claim := range append([]string{cluster(t)}, slices.Sorted(maps.Keys(claims))...) {
		if slices.Contains(had, claim) {
			continue
		}
		if by := taken(claim); by != "" {
			path := claims[claim]
			if path == "" {
				path = "metadata.name"
			}
			v.refuse(conf.Problem{Path: path, Message: fmt.Sprintf("%s is claimed by %s", claim, by)})
		}
	}
	return v
}

// Claims lists what belongs to a tenant alone: nothing, if it is invalid.
func Claims(o v1alpha1.EdgeTenant) []string {
	o.TypeMeta = v1alpha1.TypeMeta{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindEdgeTenant}
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	t, _ := tenant.Read("", data)
	if t == nil {
		return nil
	}
	return append(slices.Collect(maps.Keys(t.Claims())), cluster(t))
}

func cluster(t *tenant.Tenant) string { return fmt.Sprintf("cluster %q", t.Name) }

func (v *Verdict) refuse(p conf.Problem) {
	if len(v.Refused) < most {
		v.Refused = append(v.Refused, Finding{p.Path, p.Message})
	}
}

func (v *Verdict) warn(format string, args ...any) {
	if len(v.Warnings) < most {
		v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
	}
}
