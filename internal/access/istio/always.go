// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The rule of ranges that are always let in, and its group.
const (
	RuleAlways  = "additional"
	GroupAlways = "platform"
)

// Always are ranges that may use every protected way.
type Always []netip.Prefix

// ReadAlways reads CIDRs and addresses, which somebody checked; it leaves out what is neither.
func ReadAlways(texts []string) (out Always) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		} else if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return out
}

// Texts are the ranges as CIDRs.
func (a Always) Texts() (out []string) {
	for _, p := range a {
		out = append(out, p.Masked().String())
	}
	return out
}

// LetIn lets the ranges into the protected ways of a cluster; from is the index of their policy.
func (a Always) LetIn(c *Cluster, from int) {
	for i := range c.Ways {
		if l := &c.Ways[i].List; l.Protected {
			for _, p := range a {
				l.Allow = append(l.Allow, policy.SourceEntry{Prefix: p, Rule: RuleAlways, Group: GroupAlways, Policy: from})
			}
		}
	}
}
