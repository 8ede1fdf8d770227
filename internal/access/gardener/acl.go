// SPDX-License-Identifier: Apache-2.0

// Package gardener reads the access lists of Gardener's shoots, which are Extensions of type acl, and gathers from
// other objects what their rules need: the platform's own ranges, and the names of a shoot. It gives
// an AccessPolicy that package policy compiles. It reads values only, and knows no API server.
package gardener

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Type is spec.type of the Extensions that this package reads.
const Type = "acl"

// DefaultMostRanges is how many ranges a user's list may have, unless an operator says otherwise.
const DefaultMostRanges = 50

// mostBytes bounds a providerConfig: no object of the Kubernetes API is larger than 1.5 MiB.
const mostBytes = 3 << 19

// The paths of a providerConfig.
const (
	InExtension = "spec.providerConfig"                // of an Extension
	InShoot     = "spec.extensions[%d].providerConfig" // of a Shoot
)

// ACL is the rule in a providerConfig.
type ACL struct {
	Deny bool
	// Type is how Gardener's extension would look at a client: direct_remote_ip, remote_ip or source_ip. It changes
	// nothing here: a rule is about the address of the client, which is the one that a trusted load balancer
	// reports, and otherwise that of the connection. (With direct_remote_ip an Envoy behind a load balancer
	// would admit everybody or nobody, and source_ip is an old name of remote_ip.)
	Type   string
	Ranges []netip.Prefix // as written, each once
}

// ReadACL reads a providerConfig; at is its path. most is how many ranges it may have, 0: any number. All problems
// are returned at once. Unknown fields are warnings, for Gardener ignores them.
func ReadACL(at string, raw []byte, most int) (ACL, []Problem) {
	r := reader{most: most}
	out := r.config(at, raw)
	if !Usable(r.list) {
		return ACL{}, r.all()
	}
	return out, r.all()
}

// ShootExtension is an item of a Shoot's spec.extensions.
type ShootExtension struct {
	Type           string          `json:"type"`
	ProviderConfig json.RawMessage `json:"providerConfig,omitempty"`
	Disabled       *bool           `json:"disabled,omitempty"`
}

// Admits reports whether an address is let in by the list alone, without the platform's ranges.
func (l ACL) Admits(a netip.Addr) bool {
	return slices.ContainsFunc(l.Ranges, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }) != l.Deny
}

// Admit judges the access lists of a Shoot, except those that are disabled. It asks the same of a new list as of one
// that is changed. Of Options it takes the maximum, the author and whether the list is forced: which ranges the
// platform has is not known where Shoots are.
func Admit(extensions []ShootExtension, o Options) []Problem {
	var ps problems
	for i, e := range extensions {
		if e.Type != Type || e.Disabled != nil && *e.Disabled {
			continue
		}
		at := fmt.Sprintf(InShoot, i)
		list, found := ReadACL(at, e.ProviderConfig, o.Most)
		for _, p := range found {
			ps.add(p)
		}
		if !o.Author.IsValid() || !Usable(found) || list.Admits(o.Author) {
			continue
		}
		p := Problem{Path: at + ".rule.cidrs", Cause: Forbidden, Code: fault.CodeLockout, Warning: o.Force,
			What: fmt.Sprintf("the author of the list, at %s, is locked out", o.Author)}
		if !o.Force {
			p.Next = fmt.Sprintf("change the list, or set the annotation %s: \"true\"", AnnotationForce)
		}
		ps.add(p)
	}
	return ps.all()
}

type reader struct {
	problems
	most int
}

func (r *reader) config(at string, raw []byte) ACL {
	if len(raw) > mostBytes {
		r.add(Problem{Path: at, Cause: TooMany, Code: fault.CodeLimit, What: "it is longer than 1.5 MiB"})
		return ACL{}
	}
	const next = "write rule: {action: ALLOW, type: remote_ip, cidrs: [...]}"
	if isNull(raw) {
		r.refuse(at+".rule", Required, next, "there is no rule")
		return ACL{}
	}
	if !json.Valid(raw) {
		r.refuse(at, Invalid, "", "it is no JSON")
		return ACL{}
	}
	fields, ok := r.object(at, raw, "rule")
	if !ok {
		return ACL{}
	}
	if isNull(fields["rule"]) {
		r.refuse(at+".rule", Required, next, "there is no rule")
		return ACL{}
	}
	return r.rule(at+".rule", fields["rule"])
}

func (r *reader) rule(at string, raw json.RawMessage) (out ACL) {
	fields, ok := r.object(at, raw, "action", "type", "cidrs")
	if !ok {
		return out
	}
	switch action := r.text(at+".action", fields["action"], "write ALLOW or DENY"); strings.ToUpper(action) {
	case "ALLOW", "":
	case "DENY":
		out.Deny = true
	default:
		r.refuse(at+".action", NotSupported, "write ALLOW or DENY", "%.100q is no action", action)
	}
	types := []string{"direct_remote_ip", "remote_ip", "source_ip"}
	known := "write " + strings.Join(types, ", ")
	out.Type = strings.ToLower(r.text(at+".type", fields["type"], known))
	if out.Type != "" && !slices.Contains(types, out.Type) {
		r.refuse(at+".type", NotSupported, known, "%.100q is no type", out.Type)
	}
	out.Ranges = r.ranges(at+".cidrs", fields["cidrs"])
	return out
}

func (r *reader) ranges(at string, raw json.RawMessage) (out []netip.Prefix) {
	var all []json.RawMessage
	if !isNull(raw) && json.Unmarshal(raw, &all) != nil {
		r.refuse(at, WrongType, "write a list of CIDRs", "it is no list")
		return nil
	}
	if len(all) == 0 {
		r.refuse(at, Required, "list at least one CIDR", "there are no ranges")
		return nil
	}
	if r.most > 0 && len(all) > r.most {
		r.add(Problem{Path: at, Cause: TooMany, Code: fault.CodeLimit,
			What: "there are " + count(len(all)) + " ranges, at most " + count(r.most) + " are accepted",
			Next: "join ranges, or ask the operator for more"})
	}
	first := map[netip.Prefix]int{}
	for i, item := range all {
		path := at + "[" + count(i) + "]"
		var text *string
		if json.Unmarshal(item, &text) != nil || text == nil {
			r.refuse(path, WrongType, "write a CIDR in quotes", "it is no text")
			continue
		}
		p, ok := r.readRange(path, *text)
		if !ok {
			continue
		}
		if at, twice := first[p]; twice {
			r.warn(path, Duplicate, "%s is listed twice, also at [%d]", p, at)
			continue
		}
		first[p] = i
		if out = append(out, p); p.Bits() == 0 {
			r.warn(path, Invalid, "%s is every address of its family", p)
		}
	}
	return out
}

// text reads a field that has to be there; empty: it is reported.
func (r *reader) text(path string, raw json.RawMessage, next string) (out string) {
	switch {
	case isNull(raw):
		r.refuse(path, Required, next, "it is missing")
	case json.Unmarshal(raw, &out) != nil:
		r.refuse(path, WrongType, next, "it is no text")
	case out == "":
		r.refuse(path, Required, next, "it is empty")
	}
	return out
}

// object reads the known fields of an object. As Gardener's decoder does it takes a name in other letter case, and
// says so; a field that is there twice is refused, for readers differ on which one counts.
func (r *reader) object(at string, raw json.RawMessage, known ...string) (map[string]json.RawMessage, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		r.refuse(at, WrongType, "", "it is no object")
		return nil, false
	}
	out := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			r.refuse(at, Invalid, "", "it is no JSON")
			return nil, false
		}
		name, _ := key.(string)
		path := at + "." + cut(name)
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if i < 0 {
			r.warn(path, NotSupported, "there is no such field, and it is ignored%s", conf.Meant(name, known...))
			continue
		}
		if _, twice := out[known[i]]; twice {
			r.refuse(path, Duplicate, "leave one of them", "the field is there twice")
			continue
		}
		if out[known[i]] = value; name != known[i] {
			r.warn(path, NotSupported, "it is taken for %s: write it so", known[i])
		}
	}
	return out, true
}

func isNull(raw json.RawMessage) bool {
	text := bytes.TrimSpace(raw)
	return len(text) == 0 || string(text) == "null"
}
