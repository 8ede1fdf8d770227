// SPDX-License-Identifier: Apache-2.0

// Package reqmeta reads and writes request metadata: what a caller says about a request
// besides its destination, as pairs and W3C Trace Context. All of it is untrusted text, on
// which nothing is decided; this package bounds it. It does not know transports, spans or
// audit records.
package reqmeta

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Names of HTTP headers, in their canonical form.
const (
	HeaderMetadata    = "Tombolo-Metadata" // key=value, percent-encoded; once for each pair
	HeaderTraceparent = "Traceparent"
	HeaderTracestate  = "Tracestate"
)

// Pair is one pair of metadata.
type Pair struct{ Key, Value string }

// Metadata is the request metadata of a caller, bounded. The zero value is empty.
type Metadata struct {
	Trace string // traceparent of version 00, or empty
	State string // tracestate, or empty; never without Trace
	Pairs []Pair
}

// Read takes the metadata from a request's header. Metadata that breaks a bound
// is refused; of a trace context the malformed part is ignored, as W3C Trace
// Context section 4.3 asks.
func Read(header map[string][]string) (Metadata, error) {
	var r Metadata
	r.Trace, r.State = Trace(header[HeaderTraceparent], header[HeaderTracestate])
	for _, text := range header[HeaderMetadata] {
		p, err := parseHeader(text)
		if err != nil {
			return Metadata{}, err
		}
		if len(r.Pairs) == limit.AuditPairs {
			return Metadata{}, fmt.Errorf("there are more than %d pairs of metadata", limit.AuditPairs)
		}
		r.Pairs = append(r.Pairs, p)
	}
	return r, Check(r.Pairs)
}

// Write calls add for each header line that Read understands.
func (r Metadata) Write(add func(name, value string)) {
	if r.Trace != "" {
		add(HeaderTraceparent, r.Trace)
		if r.State != "" {
			add(HeaderTracestate, r.State)
		}
	}
	for _, p := range r.Pairs {
		add(HeaderMetadata, p.Key+"="+url.PathEscape(p.Value))
	}
}

// ParsePair parses key=value.
func ParsePair(text string) (Pair, error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return Pair{}, fmt.Errorf("metadata must be key=value, and has no =")
	}
	return Pair{key, value}, nil
}

func parseHeader(text string) (Pair, error) {
	p, err := ParsePair(strings.Trim(text, " \t"))
	if err != nil {
		return Pair{}, err
	}
	if p.Value, err = url.PathUnescape(p.Value); err != nil {
		return Pair{}, fmt.Errorf("the value of metadata %s has a %% that is not followed by two hexadecimal digits",
			untrusted.Text(p.Key, limit.AuditKey))
	}
	return p, nil
}

// Check returns an error if the pairs break a bound. It quotes no value.
func Check(pairs []Pair) error {
	if len(pairs) > limit.AuditPairs {
		return fmt.Errorf("there are more than %d pairs of metadata", limit.AuditPairs)
	}
	seen := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		switch {
		case !isKey(p.Key):
			return fmt.Errorf("the key %q of metadata is not 1 to %d of letters, digits and . _ - /",
				untrusted.Text(p.Key, limit.AuditKey), limit.AuditKey)
		case len(p.Value) > limit.AuditValue:
			return fmt.Errorf("the value of metadata %s has %d bytes, and at most %d are taken", p.Key, len(p.Value),
				limit.AuditValue)
		case !untrusted.Printable(p.Value):
			return fmt.Errorf("the value of metadata %s is no printable UTF-8", p.Key)
		case seen[p.Key]:
			return fmt.Errorf("the key %s of metadata comes twice", p.Key)
		}
		seen[p.Key] = true
	}
	return nil
}

// Bounded returns the pairs up to the first that breaks a bound, for pairs that a peer
// passes on and should have checked.
func Bounded(pairs []Pair) []Pair {
	for i := range pairs {
		if Check(pairs[:i+1]) != nil {
			return pairs[:i]
		}
	}
	return pairs
}

func isKey(s string) bool {
	return s != "" && len(s) <= limit.AuditKey && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r))
	})
}
