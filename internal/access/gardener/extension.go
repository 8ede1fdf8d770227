// SPDX-License-Identifier: Apache-2.0

// Package gardener reads what Gardener's extension of type acl is given, and what a seed and a
// shoot consist of, as rules of an access policy. It holds Gardener's words and forms; it asks no
// API server.
package gardener

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// DefaultMost is how many ranges a shoot's owner may list unless the operator says otherwise, as
// with the extension.
const DefaultMost = 50

// ACL is what the owner of a shoot asks for.
type ACL struct {
	Deny   bool // the ranges are refused, and all others may come; otherwise only they may
	Ranges []netip.Prefix
}

// extension is what is read of an object of kind Extension (extensions.gardener.cloud/v1alpha1).
type extension struct {
	Spec struct {
		ProviderConfig *providerConfig `json:"providerConfig,omitempty"`
	} `json:"spec"`
}

type providerConfig struct {
	Rule *ruleConfig `json:"rule,omitempty"`
}

type ruleConfig struct {
	Action string   `json:"action,omitempty"`
	Type   string   `json:"type,omitempty"`
	CIDRs  []string `json:"cidrs,omitempty"`
}

// The types that the extension knows. All are the client's real address here: behind a load balancer what that says,
// where it is trusted to say so.
func types() []string { return []string{"direct_remote_ip", "remote_ip", "source_ip"} }

// Read reads the providerConfig of an Extension; name stands in problems. most bounds the ranges, 0: no limit. Unlike
// the extension it refuses what would be dropped or mean something else: unknown fields, host bits, IPv4-mapped
// ranges. The action may have any case. Its errors list all problems, with their fields.
func Read(name string, config []byte, most int) (ACL, error) {
	var raw extension
	doc := conf.Decode(name, wrapped(config), &raw)
	if doc.Unread() {
		return ACL{}, doc.Err()
	}
	const at = "spec.providerConfig.rule"
	if raw.Spec.ProviderConfig == nil || raw.Spec.ProviderConfig.Rule == nil {
		doc.Add(at, "it is missing: without a rule nothing says who may come")
		return ACL{}, doc.Err()
	}
	rule := raw.Spec.ProviderConfig.Rule
	out := ACL{Deny: strings.EqualFold(rule.Action, "deny")}
	if !out.Deny && !strings.EqualFold(rule.Action, "allow") {
		doc.Add(at+".action", "%q is not known: write ALLOW or DENY", rule.Action)
	}
	if !slices.Contains(types(), rule.Type) {
		doc.Add(at+".type", "%q is not known: write %s", rule.Type, strings.Join(types(), ", "))
	}
	switch n := len(rule.CIDRs); {
	case n == 0:
		doc.Add(at+".cidrs", "the list is empty: name at least one range")
	case most > 0 && n > most:
		doc.Add(at+".cidrs", "they are %d ranges, at most %d are allowed", n, most)
	}
	for i, text := range rule.CIDRs {
		p, err := parseRange(text)
		if err != nil {
			doc.Add(fmt.Sprintf("%s.cidrs[%d]", at, i), "%s", err)
			continue
		}
		out.Ranges = append(out.Ranges, p)
	}
	if err := doc.Err(); err != nil {
		return ACL{}, err
	}
	return out, nil
}

// wrapped puts a providerConfig where an Extension has it, so that paths are those of the object.
func wrapped(config []byte) []byte {
	if len(config) == 0 {
		config = []byte("null")
	}
	return slices.Concat([]byte(`{"spec":{"providerConfig":`), config, []byte("}}"))
}

// parseRange reads a CIDR whose meaning nobody can mistake.
func parseRange(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%q is an address: write %s", text, netip.PrefixFrom(a, a.BitLen()))
		}
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR, such as 192.0.2.0/24", text)
	}
	switch {
	case p.Addr().Is4In6() && p.Bits() >= 96:
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range in an IPv6 form: write %s", text,
			netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked())
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q has an IPv4 address in an IPv6 form", text)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits behind its length: write %s", text, p.Masked())
	}
	return p, nil
}

// The names of the rules that a list becomes, and the group of the platform's own.
const (
	RuleListed    = "acl"
	RuleOthers    = "acl-others"
	GroupPlatform = "platform"
)

// Rules are those of a shoot, in every flow of an edge: its list, and what the platform needs. The ranges of a deny
// list are refused even where the platform would be let in.
func (a ACL) Rules(cluster string, platform []Range) []policy.Rule {
	rule := func(name string) policy.Rule {
		return policy.Rule{
			Name: name, Cluster: []string{cluster}, Flow: policy.EdgeFlows(), Destination: []string{"*"},
		}
	}
	listed := rule(RuleListed)
	listed.Deny = a.Deny
	for _, p := range a.Ranges {
		listed.Source = append(listed.Source, p.String())
	}
	out := []policy.Rule{listed}
	if a.Deny { // whom the list does not name may come
		return append(out, rule(RuleOthers))
	}
	for _, r := range platform {
		if n := len(out) - 1; out[n].Name == r.Origin {
			out[n].Source = append(out[n].Source, r.Prefix.String())
			continue
		}
		p := rule(r.Origin)
		p.Group, p.Source = GroupPlatform, []string{r.Prefix.String()}
		out = append(out, p)
	}
	return out
}

// ConfigOf is the providerConfig of an object of kind Extension, nil if it is none of type acl.
func ConfigOf(object []byte) json.RawMessage {
	var o struct {
		Kind string `json:"kind"`
		Spec struct {
			Type           string          `json:"type"`
			ProviderConfig json.RawMessage `json:"providerConfig"`
		} `json:"spec"`
	}
	if json.Unmarshal(object, &o) != nil || o.Kind != "Extension" || o.Spec.Type != "acl" {
		return nil
	}
	if o.Spec.ProviderConfig == nil {
		return json.RawMessage("null")
	}
	return o.Spec.ProviderConfig
}
