// SPDX-License-Identifier: Apache-2.0

// Package hostname reads DNS names. It does not resolve them.
package hostname

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Parse normalises a DNS name: lower case, no final dot. Letters, digits,
// '-' and '_' are accepted (RFC 1123, and what Kubernetes and SRV names use);
// an internationalised name must come in its ASCII form (RFC 5890).
func Parse(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return "", errors.New("a name has 1 to 253 characters")
	}
	// Before the change to lower case, which makes ASCII of some other letters.
	if i := strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
		return "", fmt.Errorf("name %q is not ASCII; write it in its xn-- form", s)
	}
	s = strings.ToLower(s)
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", fmt.Errorf("name %q has an empty, overlong or hyphen-edged label", s)
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("name %q has the character %q", s, c)
			}
		}
	}
	if last := labels[len(labels)-1]; numeric(last) {
		return "", fmt.Errorf("%q is neither an address nor a name: its last label is a number", s)
	}
	return s, nil
}

// numeric follows the WHATWG URL rule "ends in a number": some resolvers read such a host as an
// address.
func numeric(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}
