// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

// Rule is a rule as written. In each list except Destination nil means any; an empty list is an
// error.
type Rule struct {
	Name    string // as in verdicts, logs and audit records
	Comment string
	Group   string   // a label of rules that belong together, such as a platform's own; may be empty
	Deny    bool     // denies; otherwise allows
	Cluster []string // names, each with at most one *
	Caller  []string // unix:<cluster>/<protocol> or SPIFFE URI, each with at most one *
	UID     []uint32 // users at the other end of a unix socket
	Egress  []string // cluster, controlplane, etcd, or another name of an egress selection
	Flow    []string // flows, each with at most one *; nil: FlowDial and FlowRoute
	Source  []string // CIDR, address or @list: the caller's address
	// Destination is CIDR[:ports], address[:ports], name[:ports], *.suffix[:ports], *[:ports] or
	// @list[:ports]. An IPv6 range with ports needs brackets.
	Destination []string
}

// List is a list of ranges that rules name as @Name.
type List struct {
	Name   string
	Ranges []string // CIDR or address
}

// pattern is a text, or the parts around its one *.
type pattern struct {
	head, tail string
	wild       bool
}

func parsePattern(s string) (pattern, error) {
	head, tail, wild := strings.Cut(s, "*")
	switch {
	case s == "":
		return pattern{}, fmt.Errorf("it is empty")
	case strings.Contains(tail, "*"):
		return pattern{}, fmt.Errorf("%q has more than one *", s)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return pattern{}, fmt.Errorf("%q has a space or a control character", s)
	}
	return pattern{head, tail, wild}, nil
}

func (p pattern) matches(s string) bool {
	if !p.wild {
		return s == p.head
	}
	return len(s) >= len(p.head)+len(p.tail) && strings.HasPrefix(s, p.head) && strings.HasSuffix(s, p.tail)
}

// CheckPattern refuses a text that is no pattern for names: a name, or one with a * in it.
func CheckPattern(text string) error {
	_, err := parsePattern(text)
	return err
}

// MatchPattern reports whether a name matches a pattern.
func MatchPattern(text, name string) bool {
	p, err := parsePattern(text)
	return err == nil && p.matches(name)
}

// among reports whether one of the texts matches p.
func (p pattern) among(texts []string) bool { return slices.ContainsFunc(texts, p.matches) }

// patterns are nil for any.
type patterns []pattern

func (ps patterns) match(s string) bool {
	return ps == nil || slices.ContainsFunc(ps, func(p pattern) bool { return p.matches(s) })
}

// ofSockets reports whether all patterns are for callers at unix sockets, which no peer is.
func (ps patterns) ofSockets() bool {
	return ps != nil && !slices.ContainsFunc(ps, func(p pattern) bool { return !strings.HasPrefix(p.head, "unix:") })
}

// ports are empty for all.
type ports []portRange

type portRange struct{ first, last uint16 }

func (ps ports) match(port uint16) bool {
	return len(ps) == 0 || slices.ContainsFunc(ps, func(p portRange) bool { return p.first <= port && port <= p.last })
}

// destination is one entry of a rule's list: exactly one of its first four fields is set.
type destination struct {
	prefix netip.Prefix
	name   string // exact, or a suffix with a leading dot
	list   string
	any    bool
	ports  ports
}

func parseDestination(text string) (d destination, err error) {
	host, tail, err := splitPorts(text)
	if err != nil {
		return d, err
	}
	if d.ports, err = parsePorts(tail); err != nil {
		return d, err
	}
	if list, ok := strings.CutPrefix(host, "@"); ok {
		d.list = list
		return d, nil
	}
	if host == "*" {
		d.any = true
		return d, nil
	}
	if isRange(host) {
		d.prefix, err = parseRange(host)
		return d, err
	}
	name, wild := strings.CutPrefix(host, "*.")
	if name, err = hostname.Parse(name); err != nil {
		return d, fmt.Errorf("%q is neither a CIDR, an address nor a name: %w", host, err)
	}
	if d.name = name; wild {
		d.name = "." + name
	}
	return d, nil
}

// isRange reports whether text looks like a CIDR or an address.
func isRange(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || strings.Contains(text, "/")
}

// parseRange reads a CIDR or an address.
func parseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && !strings.Contains(text, "/") {
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone; zones are not accepted", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil && strings.Contains(text, "/"):
		return p, fmt.Errorf("%q is no CIDR", text)
	case err != nil:
		return p, fmt.Errorf("%q is neither a CIDR nor an address", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4-mapped range; write the IPv4 range", text)
	case p != p.Masked():
		return p, fmt.Errorf("%q has host bits set; did you mean %s?", text, p.Masked())
	}
	return p, nil
}

// splitPorts separates the ports: after the last colon, unless the rest is
// IPv6, which needs brackets to carry ports.
func splitPorts(text string) (host, tail string, err error) {
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
		host, tail, _ := strings.Cut(text, ":")
		if tail == "" {
			return "", "", fmt.Errorf("%q: no ports after the colon", text)
		}
		return host, tail, nil
	}
	return text, "", nil
}

func parsePorts(s string) (ports, error) {
	if s == "" {
		return nil, nil
	}
	var out ports
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
