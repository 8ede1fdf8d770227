// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// compiled are the rules of an AuthorizationPolicy as Istio compiles them for one kind of chains.
type compiled struct {
	action string // DENY, ALLOW or CUSTOM
	object string
	own    bool
	rules  Rules
	err    error // a rule has a condition that is not known here
}

// compile does what Istio's pilot does: at a TCP chain a condition on requests is dropped from a rule that denies,
// which makes it wider, and a rule that allows is dropped as a whole.
func compile(a AuthorizationPolicy, tcp bool) compiled {
	out := compiled{action: a.Spec.Action, object: KindAuthorizationPolicy + " " + a.Metadata.key(),
		own: a.Metadata.Labels[LabelManagedBy] == ManagedBy}
	if out.action == "" {
		out.action = "ALLOW"
	}
	out.rules = Rules{Action: "DENY", Policies: map[string]RBACPolicy{}}
	for i, r := range a.Spec.Rules {
		rule, keep, err := compileRule(r, tcp, out.action == "ALLOW")
		if err != nil {
			out.err = fmt.Errorf("rule %d: %w", i, err)
			continue
		}
		if keep {
			name := fmt.Sprintf("rule %03d", i)
			out.rules.Policies[name] = rule
			out.rules.names = append(out.rules.names, name)
		}
	}
	slices.Sort(out.rules.names)
	return out
}

// condition is one that may not be known at a TCP chain.
type condition struct {
	permission *Permission
	principal  *Principal
	requests   bool // it looks at requests
}

func compileRule(r AuthzRule, tcp, allows bool) (out RBACPolicy, keep bool, err error) {
	var permissions []Permission
	var principals []Principal
	drop := func(c condition) bool { return tcp && c.requests }
	for _, w := range r.When {
		cs, err := when(w)
		if err != nil {
			return out, false, err
		}
		for _, c := range cs {
			switch {
			case drop(c) && allows:
				return out, false, nil
			case drop(c):
			case c.permission != nil:
				permissions = append(permissions, *c.permission)
			default:
				principals = append(principals, *c.principal)
			}
		}
	}
	for _, f := range r.From {
		ids, err := from(f.Source)
		if err != nil {
			return out, false, err
		}
		out.Principals = append(out.Principals, and(append(ids, principals...)))
	}
	if len(r.From) == 0 {
		out.Principals = []Principal{and(principals)}
	}
	for _, t := range r.To {
		cs, err := operation(t.Operation)
		if err != nil {
			return out, false, err
		}
		all := permissions[:len(permissions):len(permissions)]
		for _, c := range cs {
			if drop(c) && allows {
				return out, false, nil
			}
			if !drop(c) {
				all = append(all, *c.permission)
			}
		}
		out.Permissions = append(out.Permissions, every(all))
	}
	if len(r.To) == 0 {
		out.Permissions = []Permission{every(permissions)}
	}
	return out, true, nil
}

func and(ids []Principal) Principal {
	if len(ids) == 0 {
		return anyone()
	}
	return Principal{AndIDs: &PrincipalSet{IDs: ids}}
}

func every(ps []Permission) Permission {
	if len(ps) == 0 {
		return Permission{Any: true}
	}
	return allOf(ps...)
}

// from compiles where a connection comes from.
func from(s AuthzSource) (out []Principal, err error) {
	for _, list := range [][]string{s.Principals, s.NotPrincipals, s.RequestPrincipals, s.NotRequestPrincipals,
		s.Namespaces, s.NotNamespaces, s.ServiceAccounts, s.NotServiceAccounts, s.TrustDomains, s.NotTrustDomains} {
		if len(list) > 0 {
			return nil, fmt.Errorf("it looks at identities of the mesh, which no question has")
		}
	}
	add := func(list []string, direct, negated bool) {
		if len(list) == 0 {
			return
		}
		var id Principal
		if id, err = blocks(list, direct); negated {
			inner := id
			id = Principal{NotID: &inner}
		}
		out = append(out, id)
	}
	for _, l := range []struct {
		list            []string
		direct, negated bool
	}{{s.RemoteIPBlocks, false, false}, {s.NotRemoteIPBlocks, false, true}, {s.IPBlocks, true, false},
		{s.NotIPBlocks, true, true}} {
		if add(l.list, l.direct, l.negated); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// blocks are ranges as Istio writes them.
func blocks(list []string, direct bool) (Principal, error) {
	set := &PrincipalSet{}
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return Principal{}, fmt.Errorf("%q is neither a range nor an address", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		c := &CIDR{p.Addr().String(), uint32(p.Bits())}
		if direct {
			set.IDs = append(set.IDs, Principal{DirectRemoteIP: c})
		} else {
			set.IDs = append(set.IDs, Principal{RemoteIP: c})
		}
	}
	return Principal{OrIDs: set}, nil
}

// when compiles a condition.
func when(w AuthzWhen) ([]condition, error) {
	name, isHeader := strings.CutPrefix(w.Key, "request.headers[")
	var value func(string) (condition, error)
	switch {
	case isHeader && strings.HasSuffix(name, "]"):
		name = strings.ToLower(strings.TrimSuffix(name, "]"))
		value = func(v string) (condition, error) {
			m := &HeaderMatcher{Name: name, StringMatch: matcher(v, false)}
			m.PresentMatch = m.StringMatch == nil
			return condition{principal: &Principal{Header: m}, requests: true}, nil
		}
	case w.Key == "connection.sni":
		value = func(v string) (condition, error) {
			m := matcher(v, false)
			if m == nil {
				p := not(Permission{RequestedServerName: exact("")})
				return condition{permission: &p}, nil
			}
			return condition{permission: &Permission{RequestedServerName: m}}, nil
		}
	case w.Key == "destination.port":
		value = port
	case w.Key == "remote.ip", w.Key == "source.ip":
		value = func(v string) (condition, error) {
			id, err := blocks([]string{v}, w.Key == "source.ip")
			return condition{principal: &id}, err
		}
	default:
		return nil, fmt.Errorf("its condition %s is not known here", w.Key)
	}
	return either(w.Values, w.NotValues, value)
}

// either compiles the values of a condition, and those that are excluded.
func either(values, except []string, value func(string) (condition, error)) (out []condition, err error) {
	for i, list := range [][]string{values, except} {
		var permissions []Permission
		var principals []Principal
		var c condition
		for _, v := range list {
			if c, err = value(v); err != nil {
				return nil, err
			}
			if c.permission != nil {
				permissions = append(permissions, *c.permission)
			} else {
				principals = append(principals, *c.principal)
			}
		}
		if len(list) == 0 {
			continue
		}
		if c.permission != nil {
			p := oneOf(permissions...)
			if i == 1 {
				p = not(p)
			}
			out = append(out, condition{permission: &p, requests: c.requests})
			continue
		}
		id := Principal{OrIDs: &PrincipalSet{IDs: principals}}
		if i == 1 {
			inner := id
			id = Principal{NotID: &inner}
		}
		out = append(out, condition{principal: &id, requests: c.requests})
	}
	return out, nil
}

func port(v string) (condition, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	p := uint32(n)
	return condition{permission: &Permission{DestinationPort: &p}}, err
}

// operation compiles what is asked for.
func operation(o AuthzOperation) (out []condition, err error) {
	for _, list := range [][]string{o.Methods, o.NotMethods, o.Paths, o.NotPaths} {
		if len(list) > 0 {
			return nil, fmt.Errorf("it looks at methods or paths, which no question has")
		}
	}
	ports, err := either(o.Ports, o.NotPorts, port)
	if err != nil {
		return nil, err
	}
	hosts, err := either(o.Hosts, o.NotHosts, func(v string) (condition, error) {
		m := &HeaderMatcher{Name: ":authority", StringMatch: matcher(v, true)}
		m.PresentMatch = m.StringMatch == nil
		return condition{permission: &Permission{Header: m}, requests: true}, nil
	})
	return append(ports, hosts...), err
}

// matcher compiles a value: exact, prefix* or *suffix. It is nil for any.
func matcher(v string, fold bool) *StringMatcher {
	m := &StringMatcher{IgnoreCase: fold}
	if v == "*" {
		return nil
	}
	if rest, ok := strings.CutPrefix(v, "*"); ok {
		m.Suffix = &rest
	} else if rest, ok := strings.CutSuffix(v, "*"); ok {
		m.Prefix = &rest
	} else {
		m.Exact = &v
	}
	return m
}
