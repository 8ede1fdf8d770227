// SPDX-License-Identifier: Apache-2.0

// Package psk decides which of the preshared keys that two nodes have in common a
// node uses for its next handshake with the other one. Both change to a newer
// secret when they learn of it, not at one moment: meanwhile the session that
// there is carries on, and handshakes fail. It holds no keys, and reads no clock.
package psk

import (
	"slices"
	"time"
)

// State is what a node uses with one other. The zero value is nothing yet.
type State[ID comparable] struct {
	Use    ID        // the secret whose key is in force
	Newest ID        // of the common ones when it was last looked
	Since  time.Time // when Use was taken
}

// Facts are what is known of a pair.
type Facts[ID comparable] struct {
	Common []ID // secrets that both are members under, the newest first; not empty
	// Asked is when the first handshake was sent that had no answer yet; zero: none waits.
	Asked time.Time
	// Patient is one of the two: the one whose public key is the larger. It stays with each
	// key for so long that the other one comes round to it. Were both to turn at one pace,
	// they might miss each other forever.
	Patient bool
}

// Next gives what is used from now on. The newest common secret is taken when it
// appears; when a handshake stays without an answer, one after the other is.
func Next[ID comparable](s State[ID], f Facts[ID], now time.Time) State[ID] {
	if len(f.Common) == 0 {
		return s
	}
	newest := f.Common[0]
	at := slices.Index(f.Common, s.Use)
	switch {
	case s.Since.IsZero() || newest != s.Newest || at < 0:
		return State[ID]{Use: newest, Newest: newest, Since: now}
	case f.Asked.IsZero() || len(f.Common) == 1:
		return s
	}
	turn := pskTurn
	if f.Patient { // a whole round of the other one, and what the end of one round cuts off
		turn *= time.Duration(len(f.Common) + 1)
	}
	began := s.Since
	if f.Asked.After(began) {
		began = f.Asked
	}
	if now.Sub(began) < turn {
		return s
	}
	return State[ID]{Use: f.Common[(at+1)%len(f.Common)], Newest: newest, Since: now}
}
