// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// bounds are what a service takes of a member, never more than the protocol does.
type bounds struct {
	ttl    time.Duration
	sealed int
}

// boundsOf reads them; 0 says nothing.
func boundsOf(w *discovery.Welcome) bounds {
	b := bounds{limit.DiscoveryTTL, limit.DiscoverySealed}
	if n := w.GetTtlMax(); n > 0 {
		b.ttl = min(b.ttl, time.Duration(n)*time.Second)
	}
	if n := w.GetSealedMax(); n > 0 {
		b.sealed = int(min(uint32(b.sealed), n))
	}
	return b
}

// fit makes of an entry what the service takes, or says why nothing is put there.
// That changes with what the service or the member says alone: it is not tried again.
func (b bounds) fit(c *subscription, as seal.MemberKey, e *discovery.Entry) (*discovery.Entry, *fault.Fault) {
	what := fault.Newf(fault.CodeLimit, "this member is not announced at the discovery service %s", c.service.Name)
	switch {
	case b.ttl < shortestLease:
		return nil, what.Whyf("it grants leases of %v, and %v is the shortest that is asked for", b.ttl, shortestLease).
			Hint("see to that service; what it says of others is taken")
	case len(e.GetSealed()) > b.sealed:
		return nil, what.Whyf("the member has %d bytes sealed, and the service takes %d", len(e.GetSealed()), b.sealed).
			Hint("announce fewer endpoints and ranges, or another service; what this one says of others is taken")
	case time.Duration(e.GetTtl())*time.Second > b.ttl:
		return c.keys.Relet(as, e, b.ttl), nil
	}
	return e, nil
}

// shown is a text of a service as it may be shown and logged.
func shown(s string) string { return untrusted.Text(s, reasonBytes) }
