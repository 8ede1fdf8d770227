// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"reflect"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// renews reports whether a word is nothing but a longer lease of what a member has said
// before, and remembers the services that stated that. With several secrets it never is, as a new
// version shows under which of them a member is. A member that no service states any longer comes
// back with it, and a lease that may end before the next merge cannot wait.
func (w *signedWord) renews(now time.Time, known *signedWord) bool {
	same := now.Before(known.until) && len(known.sources) > 0 && now.Add(limit.DiscoveryRenewals).Before(w.until) &&
		w.cluster == known.cluster && len(known.others) == 0 && !w.entry.GetRemoved() && !known.entry.GetRemoved() &&
		w.replaces == known.replaces && w.proven == known.proven &&
		!slices.ContainsFunc(known.sources, func(h heardFrom) bool { return h.cached }) &&
		reflect.DeepEqual(w.facts, known.facts)
	if !same {
		return false
	}
	w.renewed = slices.Clone(known.renewed) // who has not repeated the one before yet may have missed it
	for _, h := range known.sources {
		if !slices.Contains(w.renewed, h.name) {
			w.renewed = append(w.renewed, h.name)
		}
	}
	return true
}
