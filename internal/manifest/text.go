// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net"
	"strings"
)

const digits = "0123456789"

// only reports whether s has only characters of set.
func only(s, set string) bool { return strings.Trim(s, set) == "" }

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isLabel accepts an RFC 1123 label, of any length.
func isLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isSubdomain accepts labels of RFC 1123, joined by dots.
func isSubdomain(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabelValue accepts a valid value of a Kubernetes label.
func isLabelValue(s string) bool {
	if s == "" {
		return true
	}
	if len(s) > 63 || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// isSecretKey accepts a key of a Secret or ConfigMap.
func isSecretKey(s string) bool {
	return s != "" && s != "." && !strings.HasPrefix(s, "..") && len(s) <= 253 &&
		only(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
}

// isTag accepts the tag of an image (OCI distribution specification, "Pulling manifests").
func isTag(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// isLabelKey accepts [PREFIX/]NAME, the key of Kubernetes labels, annotations and taints.
func isLabelKey(s string) bool {
	prefix, name, slash := strings.Cut(s, "/")
	if !slash {
		prefix, name = "x", s
	}
	return isSubdomain(prefix) && name != "" && isLabelValue(name)
}

// parseToleration parses a taint in kubectl's form, KEY[=VALUE][:EFFECT], or * for every
// taint.
func parseToleration(s string) (toleration, error) {
	if s == "*" {
		return toleration{Operator: "Exists"}, nil
	}
	rest, effect, hasEffect := strings.Cut(s, ":")
	key, value, hasValue := strings.Cut(rest, "=")
	if !isLabelKey(key) || !isLabelValue(value) {
		return toleration{}, fmt.Errorf("%q is not KEY[=VALUE][:EFFECT] or *", s)
	}
	switch effect {
	case "NoSchedule", "PreferNoSchedule", "NoExecute":
	default:
		if hasEffect {
			return toleration{}, fmt.Errorf("%q: the effect is NoSchedule, PreferNoSchedule or NoExecute", s)
		}
	}
	if !hasValue {
		return toleration{Key: key, Operator: "Exists", Effect: effect}, nil
	}
	return toleration{Key: key, Operator: "Equal", Value: value, Effect: effect}, nil
}

// isNetwork accepts an address and a CIDR. Only the form is checked: the program that reads it reports other problems.
func isNetwork(s string) bool {
	address, bits, network := strings.Cut(s, "/")
	return net.ParseIP(address) != nil && (!network || bits != "" && only(bits, digits))
}
