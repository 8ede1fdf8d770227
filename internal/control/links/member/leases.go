// SPDX-License-Identifier: Apache-2.0

package member

import (
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// leases are when Members were last seen to be renewed, by this program's clock: the time in them is by the clock of
// their node.
type leases map[string]renewal

type renewal struct {
	renewTime string
	seen      time.Time
}

// silence says of which nodes the lease has ended. One without a lease lives for as long as it is there.
func (l *leases) silence(f *share.Facts, members map[string]v1alpha1.MemberObjectSpec, now time.Time) {
	next := leases{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		m, is := members[n.Name]
		if !is || m.RenewTime == "" {
			continue
		}
		last, known := (*l)[n.Name]
		if !known || last.renewTime != m.RenewTime {
			last = renewal{m.RenewTime, now}
		}
		next[n.Name] = last
		n.Silent = now.Sub(last.seen) > time.Duration(m.LeaseSeconds)*time.Second
	}
	*l = next
}
