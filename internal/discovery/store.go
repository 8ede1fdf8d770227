// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Protocol is the one that a cluster belongs to; the two never mix.
type Protocol uint8

// The protocols.
const (
	Sidero Protocol = 1 // a cluster is a string of its own choice
	Native Protocol = 2 // a cluster is the hash of a key, 32 bytes
)

// Cluster names a cluster of a service.
type Cluster struct {
	Protocol Protocol
	ID       string // opaque bytes
}

// Place names a member of a cluster.
type Place struct {
	Cluster
	Member string // opaque bytes
}

// Listing is a member as watchers see it. Nobody changes what it points to.
type Listing struct {
	ID    string
	Lease roster.Lease
}

// size is about how many bytes a listing has as a message.
func (l Listing) size() int {
	n := len(l.ID) + len(l.Lease.Data)
	for _, e := range l.Lease.Endpoints {
		n += len(e.Blob)
	}
	return n
}

// Store decides what becomes of updates and puts them onto its board. After
// Update has returned without an error, the board shows the update, and what
// the store promises to keep is kept.
type Store interface {
	Update(ctx context.Context, p Place, u roster.Update) error
	// Delete takes a member away at once, where the protocol lets anyone do so.
	Delete(ctx context.Context, p Place) error
	// Run keeps the store: expiry, snapshots, watches. It returns when ctx ends.
	Run(ctx context.Context) error
	// State is the state of the store, for people and metrics.
	State() StoreState
}

// StoreState is how a store is.
type StoreState struct {
	Kind     string    // memory or etcd
	Settled  bool      // what is not on the board is not there
	Degraded string    // why what is kept is not safe, or not new; empty: it is
	Closed   bool      // it takes no updates
	Settles  time.Time // when it will be Settled by itself; zero: it is, or that is not known
	Since    time.Time // of Degraded
	Saved    time.Time // the last snapshot, or the last answer of etcd
}

// Stale is the refusal of an update that says what was said before, or less.
func Stale(known, version uint64) error {
	return fault.New(fault.CodeEntryStale, "the entry is not taken").
		Whyf("its version is %d, and version %d is known", version, known).
		Hint("send it again with a version above %d", known)
}

// Removable refuses to take away what only its member may.
func Removable(l roster.Lease) error {
	if l.Version == 0 {
		return nil
	}
	return fault.New(fault.CodeEntryInvalid, "the member is not removed").
		Whyf("its entry is signed, and so must its removal be").
		Hint("let the member remove itself, or let its lease run out")
}
