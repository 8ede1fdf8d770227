// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"net/netip"
	"slices"
	"strings"
)

// meaning is what a refusal of an invalid Service means.
type meaning int

const (
	another     meaning = iota // something else was wrong
	namesRange                 // it names the range that the address should be in
	saysNothing                // of Kubernetes 1.33 and newer: the address is in no range, and none is named
	noFamily                   // the cluster has no addresses of that version of IP
)

const (
	// mostAnswer bounds a refusal: that of a Service with one wrong field has some hundred bytes.
	mostAnswer = 16 << 10
	// mostNamedRanges bounds the ranges of a refusal: Kubernetes before 1.33 has one of each family.
	mostNamedRanges = 4
)

// parseAnswer reads the refusal of a Service with an address that no Service can have. API servers before 1.33 name the
// range, whichever words stand before it (they changed in 1.20, 1.21 and 1.24):
//
//	Service "x" is invalid: spec.clusterIPs: Invalid value: ["0.0.0.0"]: failed to allocate IP 0.0.0.0: the provided
//	IP (0.0.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/12
//
// Newer ones say "the provided network does not match the current range", or, in a dry run, name one of several ranges
// at random. They have ServiceCIDRs.
func parseAnswer(text string) ([]netip.Prefix, meaning) {
	const named = "The range of valid IPs is "
	text = text[:min(len(text), mostAnswer)]
	var out []netip.Prefix
	for rest := text; len(out) < mostNamedRanges; {
		_, after, found := strings.Cut(rest, named)
		if !found {
			break
		}
		rest = after
		end := strings.IndexFunc(after, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF:./", r) })
		if end < 0 {
			end = len(after)
		}
		if p, why := parseRange(strings.TrimRight(after[:end], ".:")); why == "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	switch {
	case len(out) > 0:
		return out, namesRange
	case strings.Contains(text, "the provided network does not match the current range"):
		return nil, saysNothing
	case strings.Contains(text, "not configured on this cluster"):
		return nil, noFamily
	}
	return nil, another
}
