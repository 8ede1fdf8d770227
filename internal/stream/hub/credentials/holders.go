// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/x509"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// holders knows the agents and nodes whose older certificates no longer count, and the
// clusters of which none does.
type holders struct {
	mu      sync.RWMutex
	refuse  map[string]state.Holder // by identity
	removed map[string]state.Removed
}

// reload takes over what the state knows of a name. It reads the state under the lock, so
// that of two concurrent changes the later one stands here too.
func (n *holders) reload(s *state.Store, identity string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	rec, err := s.Holder(identity)
	if err == nil {
		n.putLocked(rec)
	}
	return err
}

func (n *holders) put(rec state.Holder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.putLocked(rec)
}

func (n *holders) putLocked(rec state.Holder) {
	if rec.Before.IsZero() && rec.Revoked.IsZero() {
		return
	}
	if n.refuse == nil {
		n.refuse = map[string]state.Holder{}
	}
	n.refuse[rec.Identity] = rec
}

// remove notes that a cluster was removed, with all of its names.
func (n *holders) remove(c state.Removed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.removed == nil {
		n.removed = map[string]state.Removed{}
	}
	n.removed[c.Name] = c
	maps.DeleteFunc(n.refuse, func(identity string, _ state.Holder) bool {
		who, err := id.ParseURI(identity)
		return err == nil && who.Cluster.String() == c.Name
	})
}

// refusal says why a certificate that was issued at that time counts no more; nil if it does.
func (n *holders) refusal(who id.Identity, issued time.Time) *fault.Fault {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if rec, ok := n.refuse[who.URI()]; ok && rec.Refuses(issued) {
		return state.RevokedHolder(who.URI())
	}
	if c, ok := n.removed[who.Cluster.String()]; ok && c.Refuses(issued) {
		return state.RemovedCluster(c.Name)
	}
	return nil
}

// all lists them in no particular order.
func (n *holders) all() []state.Holder {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Collect(maps.Values(n.refuse))
}

// IssuedAt is when a certificate of ours was issued, in whole seconds: its begin is
// set back (trust.Authority).
func IssuedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(limit.ClockTolerance) }
