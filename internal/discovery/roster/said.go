// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Tier is the rank of a source: a lower one changes nothing that a higher one states.
type Tier uint8

// The tiers, from the lowest.
const (
	TierOlder      Tier = iota + 1 // the older protocol: whoever knows the cluster's id may write
	TierLinked                     // of another cluster that is linked: nothing of it displaces a node of the own one
	TierKubernetes                 // written with a node's credentials, guarded by the API server
	TierNative                     // signed by the member itself
	TierStatic                     // written by the operator of this machine
)

func (t Tier) String() string {
	switch t {
	case TierOlder:
		return "older"
	case TierLinked:
		return "linked"
	case TierKubernetes:
		return "kubernetes"
	case TierNative:
		return "native"
	case TierStatic:
		return "static"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// MarshalText makes the word of it in JSON.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes, for those who ask another process.
func (t *Tier) UnmarshalText(text []byte) error {
	for known := TierOlder; known <= TierStatic; known++ {
		if known.String() == string(text) {
			*t = known
			return nil
		}
	}
	return fmt.Errorf("%q is no tier", short(string(text)))
}

// Source is who said something: a service, a file, an object of Kubernetes.
type Source struct {
	Tier   Tier   `json:"tier"`
	Name   string `json:"name"`
	Cached bool   `json:"cached,omitempty"` // remembered on disk, not heard since the start
}

func (s Source) String() string {
	if s.Cached {
		return s.Tier.String() + "/" + s.Name + " (cached)"
	}
	return s.Tier.String() + "/" + s.Name
}

func compareSources(a, b Source) int {
	cached := 0
	if a.Cached != b.Cached {
		cached = 1
		if b.Cached {
			cached = -1
		}
	}
	return cmp.Or(cmp.Compare(b.Tier, a.Tier), strings.Compare(a.Name, b.Name), cached)
}

// Said is what one source states about one member. Its maker has verified signatures and bounds.
type Said struct {
	Source   Source
	Facts    member.Facts
	Version  uint64    // 0 where the source has none
	Until    time.Time // end of the lease; zero: for as long as the source says it
	Heard    time.Time // when it was first heard, for people
	Proven   bool      // the holder of Facts.Key has signed that it is this member's
	Stale    bool      // the lease is over, while no source could have renewed it
	Held     time.Time // of what is stale: until when it counts
	Removed  bool      // a signed removal; Facts are what was known of the member before it
	Past     time.Time // of a removal that is long ago, when it came: it silences no later statement
	Replaces string    // id of the member, in the same tier, whose place this one has taken
	// EndpointNames are host:port of endpoints: who reads them from a file adds what they mean.
	EndpointNames []string
}

// over reports whether the lease has ended.
func (s *Said) over(now time.Time) bool {
	end := s.end()
	return !end.IsZero() && !now.Before(end)
}

func (s *Said) end() time.Time {
	if s.Stale {
		return s.Held
	}
	return s.Until
}

// Expire gives what still counts at a time, and when the next of it is over (zero: never).
// Merge does not need it: it is for those who keep what was said.
func Expire(now time.Time, said []Said) (left []Said, next time.Time) {
	for _, s := range said {
		if s.over(now) {
			continue
		}
		left = append(left, s)
		if end := s.end(); !end.IsZero() && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return left, next
}

// compareSaid orders what is said by one tier of one member: the first that
// states a fact is the one that counts. What was heard comes before what is only
// remembered, whose lease is that of the cache.
func compareSaid(a, b *Said) int {
	if c := cmp.Or(cmp.Compare(b.Version, a.Version), compareBool(a.Stale, b.Stale), compareCached(a, b),
		compareUntil(b.Until, a.Until),
		strings.Compare(a.Facts.ID, b.Facts.ID), compareSources(a.Source, b.Source)); c != 0 {
		return c
	}
	// one source, twice, in one breath: any order will do that is one
	return strings.Compare(fmt.Sprint(*a), fmt.Sprint(*b))
}

func compareCached(a, b *Said) int {
	switch {
	case a.Source.Cached == b.Source.Cached:
		return 0
	case a.Source.Cached:
		return 1
	}
	return -1
}

// compareUntil orders leases; one without an end is the longest.
func compareUntil(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// sourcesOf lists each source once, the highest tier first.
func sourcesOf(in []Source) []Source {
	slices.SortFunc(in, compareSources)
	return slices.Compact(in)
}
