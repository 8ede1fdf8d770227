// SPDX-License-Identifier: Apache-2.0

// Package policy decides whether a destination may be dialled. Rules are
// compiled once; a decision is a pure function of a request and names the rule
// that made it. It does not resolve names and does not dial.
package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Problem is one mistake in a list of rules.
type Problem struct {
	Index   int // which rule, from 0
	Message string
}

// Policy is a compiled list of allow rules; everything else is denied. The
// zero value denies all.
type Policy struct{ rules []rule }

type rule struct {
	text   string
	prefix netip.Prefix // valid for a range rule
	name   string       // exact name, or the suffix of a wildcard with its leading dot
	ports  []portRange  // empty: all
}

type portRange struct{ first, last uint16 }

// Request is one question: may this resolved address be dialled for that name?
type Request struct {
	Name string // as asked, normalised by ParseTarget; empty if an address was asked for
	Addr netip.Addr
	Port uint16
	Own  []netip.AddrPort // listeners of the agent itself
}

// Verdict is the answer, with its reason.
type Verdict struct {
	Allow bool
	Rule  string // the text of the rule that allowed, empty if none did
	Why   string // one sentence
}

// Compile reads rules of the forms CIDR[:ports], address[:ports], name[:ports]
// and *.suffix[:ports]. An IPv6 range with ports stands in brackets:
// [fd00::/8]:443. Ports are 443, 80,443 or 8000-8999; none means all.
func Compile(texts []string) (Policy, []Problem) {
	var p Policy
	var problems []Problem
	for i, text := range texts {
		r, err := parseRule(text)
		if err != nil {
			problems = append(problems, Problem{i, err.Error()})
			continue
		}
		p.rules = append(p.rules, r)
	}
	return p, problems
}

// Rules lists the texts of the rules.
func (p Policy) Rules() []string {
	out := make([]string, len(p.rules))
	for i, r := range p.rules {
		out[i] = r.text
	}
	return out
}

// Decide answers a request. Special addresses (loopback, link-local, metadata
// services and the like) and the agent's own listeners need a rule that names
// them; a wide range or a name does not reach them.
func (p Policy) Decide(q Request) Verdict {
	addr := q.Addr.Unmap().WithZone("")
	if !addr.IsValid() || q.Port == 0 {
		return Verdict{Why: "the destination has no address or no port"}
	}
	if len(p.rules) == 0 {
		return Verdict{Why: "no destination is allowed: the agent was started without --allow"}
	}
	special := classify(addr)
	own := slices.ContainsFunc(q.Own, func(o netip.AddrPort) bool { return o.Addr().Unmap() == addr && o.Port() == q.Port })
	for _, r := range p.rules {
		if !r.matches(q.Name, addr, q.Port) {
			continue
		}
		if special.what != "" && !r.names(special.within) || own && !r.namesExactly(addr, q.Port) {
			continue
		}
		return Verdict{Allow: true, Rule: r.text, Why: fmt.Sprintf("allowed by %q", r.text)}
	}
	what := describe(q.Name, addr, q.Port)
	switch {
	case own:
		return Verdict{Why: fmt.Sprintf("%s is the agent's own listener; only a rule with exactly this address and port opens it", what)}
	case special.what != "":
		return Verdict{Why: fmt.Sprintf("%s is %s; only a rule inside %s opens it", what, special.what, special.within)}
	default:
		return Verdict{Why: fmt.Sprintf("%s is in none of the %d allowed ranges", what, len(p.rules))}
	}
}

func describe(name string, addr netip.Addr, port uint16) string {
	at := netip.AddrPortFrom(addr, port).String()
	if name == "" {
		return at
	}
	return fmt.Sprintf("%s (%s)", name, at)
}

func (r rule) matches(name string, addr netip.Addr, port uint16) bool {
	if len(r.ports) > 0 && !slices.ContainsFunc(r.ports, func(p portRange) bool { return p.first <= port && port <= p.last }) {
		return false
	}
	if r.prefix.IsValid() {
		return r.prefix.Contains(addr)
	}
	if suffix, wild := strings.CutPrefix(r.name, "*"); wild {
		return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
	}
	return name != "" && name == r.name
}

// names reports whether the rule lies within a special range, and so means it.
func (r rule) names(special netip.Prefix) bool {
	return r.prefix.IsValid() && r.prefix.Bits() >= special.Bits() && special.Contains(r.prefix.Addr())
}

func (r rule) namesExactly(addr netip.Addr, port uint16) bool {
	return r.prefix.IsValid() && r.prefix.IsSingleIP() && r.prefix.Addr() == addr && slices.Contains(r.ports, portRange{port, port})
}

func parseRule(text string) (rule, error) {
	r := rule{text: text}
	host, ports, err := splitPorts(text)
	if err != nil {
		return r, err
	}
	if r.ports, err = parsePorts(ports); err != nil {
		return r, err
	}
	if strings.Contains(host, "/") {
		p, err := netip.ParsePrefix(host)
		if err != nil {
			return r, fmt.Errorf("%q is no CIDR", host)
		}
		if p.Addr().Is4In6() {
			return r, fmt.Errorf("%q is an IPv4-mapped range; write the IPv4 range", host)
		}
		if p != p.Masked() {
			return r, fmt.Errorf("%q has host bits set; did you mean %s?", host, p.Masked())
		}
		r.prefix = p
		return r, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return r, fmt.Errorf("%q has a zone; zones are not accepted", host)
		}
		a = a.Unmap()
		r.prefix = netip.PrefixFrom(a, a.BitLen())
		return r, nil
	}
	name, wild := strings.CutPrefix(host, "*.")
	name, err = ParseName(name)
	if err != nil {
		return r, fmt.Errorf("%q is neither a CIDR, an address nor a name: %w", host, err)
	}
	if r.name = name; wild {
		r.name = "*." + name
	}
	return r, nil
}

// splitPorts separates the ports: after the last colon, unless the rest is
// IPv6, which needs brackets to carry ports.
func splitPorts(text string) (host, ports string, err error) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		host, tail, ok := strings.Cut(rest, "]")
		if !ok || tail != "" && !strings.HasPrefix(tail, ":") {
			return "", "", fmt.Errorf("%q: brackets are not closed before the ports", text)
		}
		if tail == ":" {
			return "", "", fmt.Errorf("%q: no ports after the colon", text)
		}
		return host, strings.TrimPrefix(tail, ":"), nil
	}
	if strings.Count(text, ":") == 1 {
		host, ports, _ := strings.Cut(text, ":")
		if ports == "" {
			return "", "", fmt.Errorf("%q: no ports after the colon", text)
		}
		return host, ports, nil
	}
	return text, "", nil
}

func parsePorts(s string) ([]portRange, error) {
	if s == "" {
		return nil, nil
	}
	var out []portRange
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || a == 0 || b < a {
			return nil, fmt.Errorf("%q is no port or range of ports (1 to 65535)", part)
		}
		out = append(out, portRange{uint16(a), uint16(b)})
	}
	return out, nil
}
