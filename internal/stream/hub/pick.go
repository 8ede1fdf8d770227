// SPDX-License-Identifier: Apache-2.0

package hub

import "time"

// candidate is what the choice of a session depends on.
type candidate struct {
	tried    bool      // this dial has failed on it already
	draining bool      // it takes no new streams, or its certificate has ended
	load     int       // live and pending streams, or what the agent reports if that is more
	since    time.Time // begin of the session
}

// pick chooses the least loaded session that takes streams; among equals the
// one that has lived longest, because it has proved itself. ok is false if there is none.
func pick(all []candidate) (index int, ok bool) {
	for i, c := range all {
		if c.tried || c.draining {
			continue
		}
		if !ok || c.load < all[index].load || c.load == all[index].load && c.since.Before(all[index].since) {
			index, ok = i, true
		}
	}
	return index, ok
}
