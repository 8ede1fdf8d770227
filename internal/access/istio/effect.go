// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// guard is a filter that decides in a chain.
type guard struct {
	object string
	filter string
	own    bool // it is written by the controller
	custom bool // it asks outside
	live   live
	err    error // what it decides is not known
	voids  bool  // with err: others may decide nothing because of it
}

// effects finds the guards of chains in the objects as they stand.
type effects struct {
	f        Facts
	w        Workload
	filters  []attachedFilter
	policies [2][]compiled // for HTTP chains, for TCP chains
	data     *data
}

// attachedFilter is a patch that may put a guard into a chain, or take one out.
type attachedFilter struct {
	object string
	own    bool
	patch  ConfigPatch

	done  bool   // what follows has been read
	name  string // of the filter
	kind  string // its type
	rules *Rules // of an RBAC filter
	err   error
}

// newEffects reads the objects that are for a gateway.
func newEffects(f Facts, w Workload) *effects {
	e := &effects{f: f, w: w}
	var filters []EnvoyFilter
	for _, x := range f.EnvoyFilters {
		if w.attached(x.Metadata, x.Spec) {
			filters = append(filters, x)
		}
	}
	slices.SortStableFunc(filters, func(a, b EnvoyFilter) int { // as pilot applies them
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority),
			-compareBool(a.Metadata.Namespace == w.root(), b.Metadata.Namespace == w.root()),
			strings.Compare(a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp),
			strings.Compare(a.Metadata.key(), b.Metadata.key()))
	})
	for _, x := range filters {
		for i, p := range x.Spec.ConfigPatches {
			if c := p.Match.Context; c != "" && c != "ANY" && c != "GATEWAY" ||
				p.ApplyTo != "NETWORK_FILTER" && p.ApplyTo != "HTTP_FILTER" {
				continue
			}
			a := attachedFilter{object: fmt.Sprintf("EnvoyFilter %s patch %d", x.Metadata.key(), i),
				own: w.owns(x.Metadata), patch: p}
			e.filters = append(e.filters, a)
		}
	}
	for i := range e.policies {
		for _, a := range f.AuthorizationPolicies {
			if w.selects(a) {
				e.policies[i] = append(e.policies[i], compile(a, i == 1))
			}
		}
	}
	return e
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// selects reports whether an AuthorizationPolicy is for the gateway, and enforced.
func (w Workload) selects(a AuthorizationPolicy) bool {
	m := a.Metadata
	if m.Namespace != w.Namespace && m.Namespace != w.root() || a.Spec.Action == "AUDIT" {
		return false
	}
	if dry, err := strconv.ParseBool(m.Annotations["istio.io/dry-run"]); err == nil && dry {
		return false
	}
	refs := a.Spec.TargetRefs
	if len(refs) == 0 && a.Spec.TargetRef != nil {
		refs = []TargetRef{*a.Spec.TargetRef}
	}
	if len(refs) > 0 {
		return w.targeted(m, refs)
	}
	return a.Spec.Selector == nil || subset(a.Spec.Selector.MatchLabels, w.Labels)
}

// read reads the filter of a patch, once.
func (a *attachedFilter) read() {
	raw := a.patch.Patch.Value
	if a.done || len(raw) == 0 {
		return
	}
	a.done = true
	a.name, a.kind, a.rules, a.err = readFilter(raw)
}

// readFilter reads a filter of Envoy: its rules, if it is one of RBAC.
func readFilter(raw json.RawMessage) (name, kind string, rules *Rules, err error) {
	var head struct {
		Name        string          `json:"name"`
		TypedConfig json.RawMessage `json:"typed_config"`
		Same        json.RawMessage `json:"typedConfig"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", "", nil, err
	}
	if len(head.TypedConfig) == 0 {
		head.TypedConfig = head.Same
	}
	var typed struct {
		Type string `json:"@type"`
	}
	if len(head.TypedConfig) > 0 {
		if err := json.Unmarshal(head.TypedConfig, &typed); err != nil {
			return head.Name, "", nil, err
		}
	}
	if typed.Type != typeNetworkRBAC && typed.Type != typeHTTPRBAC {
		return head.Name, typed.Type, nil, nil
	}
	rbac, err := readRBAC(head.TypedConfig)
	if err == nil && rbac.Rules == nil {
		rbac.Rules = &Rules{Action: "DENY"} // without rules it lets everybody pass
	}
	return head.Name, typed.Type, rbac.Rules, err
}

// hits reports whether a patch applies to a chain; an error: that is not known.
func (a *attachedFilter) hits(c Chain) (bool, error) {
	if a.patch.ApplyTo == "HTTP_FILTER" && !c.http() {
		return false, nil
	}
	l := a.patch.Match.Listener
	if l == nil {
		return true, a.forSome()
	}
	if l.PortNumber != 0 && l.PortNumber != c.Port {
		return false, nil
	}
	if m := l.FilterChain; m != nil {
		if m.Name != "" || m.DestinationPort != 0 || m.SNI != "" && !slices.Contains(c.SNI, m.SNI) {
			return false, nil
		}
		if m.TransportProtocol != "" || m.ApplicationProtocols != "" {
			return true, fmt.Errorf("it looks for a transport or application protocol")
		}
	}
	if l.Name != "" {
		if !strings.HasSuffix(l.Name, fmt.Sprintf("_%d", c.Port)) {
			return false, nil
		}
		return true, fmt.Errorf("it looks for a listener by its name, which depends on the addresses of the gateway")
	}
	return true, a.forSome()
}

func (a *attachedFilter) forSome() error {
	if len(a.patch.Match.Proxy) > 0 {
		return fmt.Errorf("it looks for proxies of some kind")
	}
	return nil
}

// guards are the filters that decide about a shape in a chain.
func (e *effects) guards(c Chain, s shape) []guard {
	if c.Kind == Added {
		return e.inside(c, s)
	}
	var out []guard
	for i := range e.filters {
		a := &e.filters[i]
		hit, unsure := a.hits(c)
		if !hit {
			continue
		}
		a.read()
		g := guard{object: a.object, filter: a.name, own: a.own && isGuard(a.name), err: unsure}
		switch a.patch.Patch.Operation {
		case "INSERT_FIRST", "INSERT_BEFORE":
			switch {
			case a.rules != nil && a.err == nil:
				if g.live, a.err = a.rules.live(s); a.err != nil {
					g.err = a.err
				}
				out = append(out, g)
			case a.err != nil:
				g.err = a.err
				out = append(out, g)
			case ends(a.kind) && !a.own:
				g.err, g.voids = fmt.Errorf("it puts a filter that ends the chain before others"), true
				out = append(out, g)
			}
		case "REMOVE", "REPLACE", "MERGE":
			if n := a.target(); isGuard(n) || n == "" && a.patch.Patch.Operation == "MERGE" || e.ofIstio(n, c) {
				g.err, g.voids = fmt.Errorf("it changes the filter %q", n), true
				out = append(out, g)
			}
		}
	}
	if c.Kind == Automatic {
		return out
	}
	return append(out, e.byPolicies(c, s)...)
}

// ofIstio reports whether a filter is one of those that AuthorizationPolicies become in a chain.
func (e *effects) ofIstio(name string, c Chain) bool {
	kind := 0
	if !c.http() {
		kind = 1
	}
	return len(e.policies[kind]) > 0 && slices.Contains([]string{"envoy.filters.http.rbac", "envoy.filters.network.rbac",
		"envoy.filters.http.ext_authz", "envoy.filters.network.ext_authz"}, name)
}

// target is the name of the filter that a patch is about.
func (a *attachedFilter) target() string {
	l := a.patch.Match.Listener
	if l == nil || l.FilterChain == nil || l.FilterChain.Filter == nil {
		return ""
	}
	if sub := l.FilterChain.Filter.SubFilter; sub != nil {
		return sub.Name
	}
	return l.FilterChain.Filter.Name
}

// ends reports whether a filter of a type is the last one that sees a connection or request.
func ends(kind string) bool {
	for _, part := range []string{".tcp_proxy.", ".http_connection_manager.", ".router.", ".direct_response.", ".echo."} {
		if strings.Contains(kind, part) {
			return true
		}
	}
	return false
}

// inside are the guards within a chain that an EnvoyFilter adds, before the filter that ends it.
func (e *effects) inside(c Chain, s shape) (out []guard) {
	filters, err := addedFilters(e.f.EnvoyFilters[c.filter].Spec.ConfigPatches[c.patch], c.chain)
	if err != nil {
		return []guard{{object: c.Object, err: err}}
	}
	for _, raw := range filters {
		name, kind, rules, err := readFilter(raw)
		switch {
		case err != nil:
			out = append(out, guard{object: c.Object, filter: name, err: err})
		case rules != nil:
			g := guard{object: c.Object, filter: name, own: isGuard(name)}
			g.live, g.err = rules.live(s)
			out = append(out, g)
		case ends(kind):
			return out
		}
	}
	return out
}

// byPolicies are what AuthorizationPolicies make of a chain: one filter with all that deny, one with all that allow,
// and one that asks outside.
func (e *effects) byPolicies(c Chain, s shape) (out []guard) {
	kind := 0
	if !c.http() {
		kind = 1
	}
	allows := guard{object: "all AuthorizationPolicies that allow", live: live{}}
	any := false
	for _, p := range e.policies[kind] {
		g := guard{object: p.object, own: p.own, custom: p.action == "CUSTOM", err: p.err, live: live{deny: true}}
		l, err := p.rules.live(s)
		if err != nil {
			g.err = err
		}
		if p.action == "ALLOW" {
			any = true
			allows.live.policies = append(allows.live.policies, l.policies...)
			if g.err != nil {
				allows.err = g.err
			}
			continue
		}
		g.live = l
		if len(l.policies) > 0 || g.err != nil {
			out = append(out, g)
		}
	}
	if any {
		out = append(out, allows)
	}
	return out
}
