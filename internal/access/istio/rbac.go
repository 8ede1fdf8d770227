// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The filters of Envoy with role-based access control.
const (
	typeNetworkRBAC = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"
	typeHTTPRBAC    = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
)

// RBAC is the configuration of such a filter, as far as it is known here.
type RBAC struct {
	Type       string `json:"@type"`
	Rules      *Rules `json:"rules,omitempty"`
	StatPrefix string `json:"stat_prefix,omitempty"` // of a network filter
}

// Rules decide: with the action ALLOW a connection passes if a policy matches, with DENY if none does.
type Rules struct {
	Action   string                `json:"action,omitempty"` // empty: ALLOW
	Policies map[string]RBACPolicy `json:"policies,omitempty"`

	names []string // of the policies, sorted; nil: not yet
}

// RBACPolicy matches if one of its permissions and one of its principals do.
type RBACPolicy struct {
	Permissions []Permission `json:"permissions"`
	Principals  []Principal  `json:"principals"`
}

// Permission is a condition on what is asked for: exactly one field is set.
type Permission struct {
	Any                 bool           `json:"any,omitempty"`
	AndRules            *PermissionSet `json:"and_rules,omitempty"`
	OrRules             *PermissionSet `json:"or_rules,omitempty"`
	NotRule             *Permission    `json:"not_rule,omitempty"`
	Header              *HeaderMatcher `json:"header,omitempty"`
	RequestedServerName *StringMatcher `json:"requested_server_name,omitempty"`
	DestinationPort     *uint32        `json:"destination_port,omitempty"`
}

// PermissionSet has several permissions.
type PermissionSet struct {
	Rules []Permission `json:"rules"`
}

// Principal is a condition on who asks: exactly one field is set.
type Principal struct {
	Any            bool           `json:"any,omitempty"`
	AndIDs         *PrincipalSet  `json:"and_ids,omitempty"`
	OrIDs          *PrincipalSet  `json:"or_ids,omitempty"`
	NotID          *Principal     `json:"not_id,omitempty"`
	RemoteIP       *CIDR          `json:"remote_ip,omitempty"`
	DirectRemoteIP *CIDR          `json:"direct_remote_ip,omitempty"`
	SourceIP       *CIDR          `json:"source_ip,omitempty"`
	Header         *HeaderMatcher `json:"header,omitempty"`
}

// PrincipalSet has several principals.
type PrincipalSet struct {
	IDs []Principal `json:"ids"`
}

// CIDR is a range. Without a length it is one of length 0.
type CIDR struct {
	AddressPrefix string `json:"address_prefix"`
	PrefixLen     uint32 `json:"prefix_len"`
}

func (c CIDR) prefix() (netip.Prefix, error) {
	a, err := netip.ParseAddr(c.AddressPrefix)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := a.Prefix(int(min(c.PrefixLen, 129)))
	return p, err
}

// HeaderMatcher is a condition on a header.
type HeaderMatcher struct {
	Name         string         `json:"name"`
	StringMatch  *StringMatcher `json:"string_match,omitempty"`
	PresentMatch bool           `json:"present_match,omitempty"`
}

// StringMatcher is a condition on a text: exactly one of the first four is set.
type StringMatcher struct {
	Exact      *string `json:"exact,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
	Suffix     *string `json:"suffix,omitempty"`
	Contains   *string `json:"contains,omitempty"`
	IgnoreCase bool    `json:"ignore_case,omitempty"`
}

// filter is one filter of Envoy as EnvoyFilters have it.
type filter struct {
	Name        string `json:"name"`
	TypedConfig RBAC   `json:"typed_config"`
}

// raw writes a filter, with its fields sorted as an API server has them, so that what it returns is compared as text.
// What is written here always can be.
func (f filter) raw() json.RawMessage {
	out, err := json.Marshal(f)
	if err != nil {
		return nil
	}
	return out
}

// readRBAC reads the configuration of an RBAC filter. It refuses every field that is not known here: a condition that
// is left out would change what the filter decides.
func readRBAC(raw json.RawMessage) (RBAC, error) {
	out, err := strictRBAC(raw)
	if err == nil {
		return out, nil
	}
	plain, err := snake(raw)
	if err != nil {
		return RBAC{}, err
	}
	return strictRBAC(plain)
}

func strictRBAC(raw json.RawMessage) (out RBAC, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return RBAC{}, fmt.Errorf("its RBAC has a form that is not known: %w", err)
	}
	if out.Rules != nil {
		out.Rules.names = slices.Sorted(maps.Keys(out.Rules.Policies))
	}
	return out, nil
}

// snake rewrites the field names of a message of Envoy to the form of its definition: JSON may have both.
func snake(raw json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is something after the value")
	}
	out, err := snakeFields(v, false)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// snakeFields does so for a value; the keys of a map of policies are names. A field in both forms is an error, as it is
// for Istio: which of them counts is not known.
func snakeFields(v any, names bool) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			key := k
			if !names {
				key = snakeCase(k)
			}
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("the field %s is there in two forms", key)
			}
			e, err := snakeFields(e, !names && key == "policies")
			if err != nil {
				return nil, err
			}
			out[key] = e
		}
		return out, nil
	case []any:
		for i := range v {
			e, err := snakeFields(v[i], false)
			if err != nil {
				return nil, err
			}
			v[i] = e
		}
	}
	return v, nil
}

func snakeCase(s string) string {
	var out strings.Builder
	for _, r := range s {
		if 'A' <= r && r <= 'Z' {
			out.WriteByte('_')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return out.String()
}

func anyone() Principal { return Principal{Any: true} }

func anything() []Permission { return []Permission{{Any: true}} }

func remote(ps []netip.Prefix) *PrincipalSet {
	out := &PrincipalSet{IDs: make([]Principal, 0, len(ps))}
	for _, p := range ps {
		out.IDs = append(out.IDs, Principal{RemoteIP: &CIDR{p.Addr().String(), uint32(p.Bits())}})
	}
	return out
}

// admitted matches whom a list admits: for the action ALLOW.
func admitted(l policy.SourceList) Principal {
	allow, deny := prefixes(l.Allow), prefixes(l.Deny)
	in := anyone()
	if l.Protected {
		if len(allow) == 0 {
			return Principal{NotID: &Principal{Any: true}}
		}
		in = Principal{OrIDs: remote(allow)}
	}
	if len(deny) == 0 {
		return in
	}
	return Principal{AndIDs: &PrincipalSet{IDs: []Principal{in, {NotID: &Principal{OrIDs: remote(deny)}}}}}
}

// refused matches whom a list refuses: for the action DENY. It is empty if it refuses nobody.
func refused(l policy.SourceList) []Principal {
	allow, deny := prefixes(l.Allow), prefixes(l.Deny)
	var out []Principal
	if l.Protected {
		if len(allow) == 0 {
			return []Principal{anyone()}
		}
		out = append(out, Principal{NotID: &Principal{OrIDs: remote(allow)}})
	}
	if len(deny) > 0 {
		out = append(out, Principal{OrIDs: remote(deny)})
	}
	return out
}

func exact(s string) *StringMatcher { return &StringMatcher{Exact: &s} }

func suffix(s string) *StringMatcher { return &StringMatcher{Suffix: &s} }

func header(name string, m *StringMatcher) Permission {
	return Permission{Header: &HeaderMatcher{Name: name, StringMatch: m}}
}

func not(p Permission) Permission { return Permission{NotRule: &p} }

func oneOf(ps ...Permission) Permission {
	if len(ps) == 1 {
		return ps[0]
	}
	return Permission{OrRules: &PermissionSet{Rules: ps}}
}

func allOf(ps ...Permission) Permission {
	if len(ps) == 1 {
		return ps[0]
	}
	return Permission{AndRules: &PermissionSet{Rules: ps}}
}
