// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
)

// Redacted replaces a value that may be a secret.
const Redacted = "[redacted]"

// Metadata is the request metadata of a caller, bounded, with likely secrets
// redacted. The zero value is empty.
type Metadata struct{ pairs map[string]string }

// NewMetadata keeps at most limit.AuditPairs pairs, the first in key order.
func NewMetadata(pairs map[string]string) Metadata {
	var m Metadata
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		if len(m.pairs) == limit.AuditPairs {
			break
		}
		if m.pairs == nil {
			m.pairs = make(map[string]string, len(pairs))
		}
		v := clip(pairs[k], limit.AuditValue)
		if secretKey(k) || secretValue(v) {
			v = Redacted
		}
		m.pairs[clip(k, limit.AuditKey)] = v
	}
	return m
}

// MetadataOf is NewMetadata for the pairs of a request.
func MetadataOf(pairs []reqmeta.Pair) Metadata {
	if len(pairs) == 0 {
		return Metadata{}
	}
	all := make(map[string]string, len(pairs))
	for _, p := range pairs {
		all[p.Key] = p.Value
	}
	return NewMetadata(all)
}

// IsZero reports whether there are no pairs.
func (m Metadata) IsZero() bool { return len(m.pairs) == 0 }

// Get returns the value of a key.
func (m Metadata) Get(key string) string { return m.pairs[key] }

// All returns the pairs in key order.
func (m Metadata) All() (pairs [][2]string) {
	for _, k := range slices.Sorted(maps.Keys(m.pairs)) {
		pairs = append(pairs, [2]string{k, m.pairs[k]})
	}
	return pairs
}

// MarshalJSON writes an object.
func (m Metadata) MarshalJSON() ([]byte, error) { return json.Marshal(m.pairs) }

// UnmarshalJSON reads an object with the same bounds.
func (m *Metadata) UnmarshalJSON(text []byte) error {
	var pairs map[string]string
	if err := json.Unmarshal(text, &pairs); err != nil {
		return err
	}
	*m = NewMetadata(pairs)
	return nil
}

// secretKey reports whether a key usually carries a secret. It compares letters and
// digits only: X-Api-Key and apikey are the same.
func secretKey(key string) bool {
	key = strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, key)
	return slices.ContainsFunc([]string{"token", "auth", "secret", "passw", "pwd", "credential", "cookie", "key",
		"session", "signature", "bearer", "jwt"}, func(s string) bool { return strings.Contains(key, s) })
}

// secretValue recognises secrets under any key.
func secretValue(v string) bool {
	v = strings.ToLower(strings.TrimSpace(v))
	return slices.ContainsFunc([]string{"bearer ", "basic ", "tombolo://", "-----begin", "eyj"},
		func(s string) bool { return strings.HasPrefix(v, s) })
}
