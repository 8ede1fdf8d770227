// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Filter selects records. An empty field matches all. Cluster, Caller, Agent and
// Rule may contain one * for any text.
type Filter struct {
	Cluster, Caller, Agent, Rule, Code string
	Since, Until                       time.Time // of the record's start; Until is exclusive
	Target                             Target
	Denied                             bool
}

// Match reports whether a record matches. A record of lost records is matched by
// its time only, since their content is unknown.
func (f Filter) Match(r Record) bool {
	switch {
	case !f.Since.IsZero() && r.Time.Before(f.Since), !f.Until.IsZero() && !r.Time.Before(f.Until):
		return false
	case r.Kind == KindLost:
		return true
	}
	return glob(f.Cluster, r.Cluster) && glob(f.Caller, r.Caller) && glob(f.Agent, r.Agent) && glob(f.Rule, r.Rule) &&
		(f.Code == "" || f.Code == r.Code) && (!f.Denied || r.Verdict == Deny) &&
		(f.Target.match(r.Asked) || f.Target.match(r.Resolved))
}

// glob matches s against a pattern with at most one *.
func glob(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	head, tail, any := strings.Cut(pattern, "*")
	if !any {
		return pattern == s
	}
	return len(s) >= len(head)+len(tail) && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail)
}

// Target is a destination to search for: a name, an address or a range, and a port.
type Target struct {
	host   string
	ranges netip.Prefix
	port   string
}

// ParseTarget reads HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT or CIDR.
func ParseTarget(s string) (Target, error) {
	if s == "" {
		return Target{}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Addr().Is4In6() && p.Bits() >= 96 { // records hold the IPv4 form
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return Target{ranges: p.Masked()}, nil
	}
	if p, ok := single(s); ok {
		return Target{ranges: p}, nil
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return Target{host: strings.ToLower(s)}, nil
	}
	host, port := s, ""
	var err error
	if strings.Contains(s, ":") {
		host, port, err = net.SplitHostPort(s)
	}
	if err != nil || strings.HasSuffix(s, ":") || strings.Contains(s, "/") {
		return Target{}, fmt.Errorf("%q is neither HOST, HOST:PORT, an address nor a CIDR", s)
	}
	t := Target{host: strings.ToLower(strings.TrimSuffix(host, ".")), port: port}
	if p, ok := single(host); ok {
		t = Target{ranges: p, port: port}
	}
	return t, nil
}

// single is the range of one address. An address with a zone is in no range: it is
// compared as text with what refused callers asked for.
func single(s string) (netip.Prefix, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), true
}

func (t Target) match(address string) bool {
	if t == (Target{}) {
		return true
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, ""
	}
	if t.port != "" && t.port != port {
		return false
	}
	if t.ranges.IsValid() {
		a, err := netip.ParseAddr(host)
		return err == nil && t.ranges.Contains(a.Unmap())
	}
	return t.host == "" || t.host == strings.ToLower(strings.TrimSuffix(host, "."))
}
