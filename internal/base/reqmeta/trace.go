// SPDX-License-Identifier: Apache-2.0

package reqmeta

import (
	"strings"
)

// traceparent of version 00: 00-<32 hex>-<16 hex>-<2 hex>.
const (
	traceEnd   = 35
	parentEnd  = 52
	flagsEnd   = 55
	zeroTrace  = "00000000000000000000000000000000"
	zeroParent = "0000000000000000"
)

// Trace reads the headers of W3C Trace Context. A malformed traceparent is
// ignored, and tracestate with it; a malformed tracestate is ignored alone. A
// version that we do not know is read as version 00 and written as such
// (section 3.2.4).
func Trace(parents, states []string) (parent, state string) {
	if len(parents) != 1 { // none, or one that cannot be told from another
		return "", ""
	}
	parent = traceparent(strings.Trim(parents[0], " \t"))
	if parent == "" {
		return "", ""
	}
	return parent, tracestate(strings.Join(states, ","))
}

func traceparent(s string) string {
	if len(s) < flagsEnd || s[2] != '-' || s[traceEnd] != '-' || s[parentEnd] != '-' {
		return ""
	}
	version := s[:2]
	switch {
	case !isHex(version) || version == "ff":
		return ""
	case version == "00" && len(s) != flagsEnd, len(s) > flagsEnd && s[flagsEnd] != '-':
		return ""
	}
	trace, parent, flags := s[3:traceEnd], s[traceEnd+1:parentEnd], s[parentEnd+1:flagsEnd]
	if !isHex(trace) || !isHex(parent) || !isHex(flags) || trace == zeroTrace || parent == zeroParent {
		return ""
	}
	return "00-" + trace + "-" + parent + "-" + flags
}

// IsTraceparent reports whether s is a well-formed traceparent of version 00.
func IsTraceparent(s string) bool { return s != "" && traceparent(s) == s }

// TraceID is the trace id of a well-formed traceparent.
func TraceID(parent string) string {
	if !IsTraceparent(parent) {
		return ""
	}
	return parent[3:traceEnd]
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// tracestate returns the members of the list, empty if one is malformed, cut to
// the bound as section 3.3.1.5 says: long members first, then the last ones.
func tracestate(s string) string {
	var members []string
	seen := map[string]bool{}
	size := 0
	for m := range strings.SplitSeq(s, ",") {
		m = strings.Trim(m, " \t")
		if m == "" {
			continue
		}
		key, value, ok := strings.Cut(m, "=")
		if !ok || !isStateKey(key) || !isStateValue(value) || seen[key] || len(members) == traceMembers {
			return ""
		}
		seen[key] = true
		members, size = append(members, m), size+len(m)+1
	}
	for i := len(members) - 1; i >= 0 && size-1 > traceState; i-- {
		if len(members[i]) > traceMember {
			size -= len(members[i]) + 1
			members = append(members[:i], members[i+1:]...)
		}
	}
	for size-1 > traceState {
		last := len(members) - 1
		size -= len(members[last]) + 1
		members = members[:last]
	}
	return strings.Join(members, ",")
}

// isStateKey knows the keys of section 3.3.1.3.1: a simple one, or tenant@system.
func isStateKey(s string) bool {
	tenant, system, both := strings.Cut(s, "@")
	if !both {
		return len(s) <= 256 && s != "" && isLower(s[0]) && isKeyRest(s)
	}
	return tenant != "" && len(tenant) <= 241 && (isLower(tenant[0]) || isDigit(tenant[0])) && isKeyRest(tenant) &&
		system != "" && len(system) <= 14 && isLower(system[0]) && isKeyRest(system)
}

func isKeyRest(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && c != '_' && c != '-' && c != '*' && c != '/' {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isStateValue knows the values of section 3.3.1.3.2.
func isStateValue(s string) bool {
	if s == "" || len(s) > 256 || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == ',' || c == '=' {
			return false
		}
	}
	return true
}
