// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// shape is all that a connection or request has, but its address.
type shape struct {
	http    bool
	port    uint32
	sni     string
	headers map[string]string // names in lower case
}

// live are the policies of some rules whose permissions match a shape: what they decide depends on the address alone.
type live struct {
	deny     bool
	policies []livePolicy
}

type livePolicy struct {
	name       string
	principals []Principal
}

// live evaluates the permissions.
func (r *Rules) live(s shape) (live, error) {
	var out live
	switch r.Action {
	case "", "ALLOW":
	case "DENY":
		out.deny = true
	default:
		return out, fmt.Errorf("its action is %s", r.Action)
	}
	names := r.names
	if names == nil {
		names = slices.Sorted(maps.Keys(r.Policies))
	}
	for _, name := range names {
		p := r.Policies[name]
		for _, permission := range p.Permissions {
			ok, err := permission.match(s)
			if err != nil {
				return out, err
			}
			if !ok {
				continue
			}
			var principals []Principal
			for _, id := range p.Principals {
				id, err := id.of(s)
				if err != nil {
					return out, err
				}
				if !id.never() {
					principals = append(principals, id)
				}
			}
			if len(principals) > 0 {
				out.policies = append(out.policies, livePolicy{name, principals})
			}
			break
		}
	}
	return out, nil
}

// allows is what the rules decide of an address, and by which policy.
func (l live) allows(a netip.Addr) (bool, string, error) {
	for _, p := range l.policies {
		for _, id := range p.principals {
			ok, err := id.match(a)
			if err != nil {
				return false, p.name, err
			}
			if ok {
				return !l.deny, p.name, nil
			}
		}
	}
	return l.deny, "", nil
}

// starts collects where the verdict may change.
func (l live) starts(add func(netip.Prefix)) {
	for _, p := range l.policies {
		for _, id := range p.principals {
			id.starts(add)
		}
	}
}

func (p Permission) match(s shape) (bool, error) {
	switch {
	case p.Any:
		return true, nil
	case p.AndRules != nil:
		for _, q := range p.AndRules.Rules {
			if ok, err := q.match(s); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	case p.OrRules != nil:
		for _, q := range p.OrRules.Rules {
			if ok, err := q.match(s); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	case p.NotRule != nil:
		ok, err := p.NotRule.match(s)
		return !ok, err
	case p.Header != nil:
		return p.Header.match(s), nil
	case p.RequestedServerName != nil:
		return p.RequestedServerName.match(s.sni), nil
	case p.DestinationPort != nil:
		return *p.DestinationPort == s.port, nil
	}
	return false, fmt.Errorf("a permission has no condition that is known")
}

func (h *HeaderMatcher) match(s shape) bool {
	v, ok := s.headers[strings.ToLower(h.Name)]
	if !s.http || !ok {
		return false
	}
	return h.StringMatch == nil || h.StringMatch.match(v)
}

func (m *StringMatcher) match(s string) bool {
	fold := func(p *string) string {
		if m.IgnoreCase {
			return strings.ToLower(*p)
		}
		return *p
	}
	if m.IgnoreCase {
		s = strings.ToLower(s)
	}
	switch {
	case m.Exact != nil:
		return s == fold(m.Exact)
	case m.Prefix != nil:
		return strings.HasPrefix(s, fold(m.Prefix))
	case m.Suffix != nil:
		return strings.HasSuffix(s, fold(m.Suffix))
	case m.Contains != nil:
		return strings.Contains(s, fold(m.Contains))
	}
	return s == ""
}

// of replaces the conditions of a principal that do not depend on the address by their answers.
func (p Principal) of(s shape) (Principal, error) {
	set := func(in *PrincipalSet) (*PrincipalSet, error) {
		out := &PrincipalSet{}
		for _, id := range in.IDs {
			id, err := id.of(s)
			if err != nil {
				return nil, err
			}
			out.IDs = append(out.IDs, id)
		}
		return out, nil
	}
	var err error
	switch {
	case p.AndIDs != nil && conditional(p.AndIDs):
		all := make([]Principal, len(p.AndIDs.IDs))
		for i := len(all) - 1; i >= 0; i-- { // ranges come first, and are many
			if all[i], err = p.AndIDs.IDs[i].of(s); err != nil {
				return p, err
			}
			if all[i].never() {
				return Principal{OrIDs: &PrincipalSet{}}, nil
			}
		}
		p.AndIDs = &PrincipalSet{IDs: all}
	case p.OrIDs != nil && conditional(p.OrIDs):
		p.OrIDs, err = set(p.OrIDs)
	case p.NotID != nil:
		var id Principal
		id, err = p.NotID.of(s)
		p.NotID = &id
	case p.Header != nil:
		if p.Header.match(s) {
			return anyone(), nil
		}
		return Principal{OrIDs: &PrincipalSet{}}, nil
	}
	return p, err
}

// never reports whether a principal, after of, matches nobody.
func (p Principal) never() bool {
	switch {
	case p.AndIDs != nil:
		return slices.ContainsFunc(p.AndIDs.IDs, Principal.never)
	case p.OrIDs != nil:
		return !slices.ContainsFunc(p.OrIDs.IDs, func(id Principal) bool { return !id.never() })
	}
	return p.NotID != nil && p.NotID.Any
}

// conditional reports whether one of several principals is more than a range.
func conditional(s *PrincipalSet) bool {
	for _, id := range s.IDs {
		if id.Header != nil || id.NotID != nil || id.AndIDs != nil || id.OrIDs != nil {
			return true
		}
	}
	return false
}

func (p Principal) match(a netip.Addr) (bool, error) {
	switch {
	case p.Any:
		return true, nil
	case p.AndIDs != nil:
		for _, q := range p.AndIDs.IDs {
			if ok, err := q.match(a); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	case p.OrIDs != nil:
		for _, q := range p.OrIDs.IDs {
			if ok, err := q.match(a); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	case p.NotID != nil:
		ok, err := p.NotID.match(a)
		return !ok, err
	}
	c := p.cidr()
	if c == nil {
		return false, fmt.Errorf("a principal has no condition that is known")
	}
	prefix, err := c.prefix()
	return err == nil && prefix.Contains(a), err
}

// cidr is the range of a principal. The three kinds differ behind a load balancer: what is written here is remote_ip.
func (p Principal) cidr() *CIDR {
	switch {
	case p.RemoteIP != nil:
		return p.RemoteIP
	case p.DirectRemoteIP != nil:
		return p.DirectRemoteIP
	}
	return p.SourceIP
}

func (p Principal) starts(add func(netip.Prefix)) {
	for _, s := range []*PrincipalSet{p.AndIDs, p.OrIDs} {
		if s != nil {
			for _, id := range s.IDs {
				id.starts(add)
			}
		}
	}
	if p.NotID != nil {
		p.NotID.starts(add)
	}
	if c := p.cidr(); c != nil {
		if prefix, err := c.prefix(); err == nil {
			add(prefix)
		}
	}
}
