// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// refusals decides which refusals have a record of their own. Anybody can be refused as often
// as the network carries, and must not push records out of the files: in each interval the first
// ones are written, no source using up the share of a cluster and no cluster that of others; the
// rest is counted, by cluster, listener and code.
type refusals struct {
	mu     sync.Mutex
	begun  time.Time
	ration telemetry.Ration
	more   map[refusal]*audit.Record
}

type refusal struct{ cluster, frontend, code string }

// take reports whether to write the record of a refusal.
func (r *refusals) take(now time.Time, rec audit.Record, source netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.IsZero() {
		r.startLocked(now)
	}
	tell, cluster := r.ration.Take(rec.Cluster, source.String())
	if tell {
		return true
	}
	k := refusal{cluster, rec.Frontend, rec.Code}
	sum := r.more[k]
	if sum == nil && len(r.more) >= refusalsCounted {
		k.cluster = ""
		sum = r.more[k]
	}
	if sum == nil {
		sum = &audit.Record{
			Kind: audit.KindRefusal, At: rec.At, Cluster: k.cluster, Frontend: k.frontend, Code: k.code, Since: now,
		}
		if rec.Code == string(fault.CodePolicyDenied) {
			sum.Verdict = audit.Deny
		}
		r.more[k] = sum
	}
	sum.Count++
	return false
}

func (r *refusals) startLocked(now time.Time) {
	r.begun, r.more = now, map[refusal]*audit.Record{}
	r.ration = telemetry.Ration{
		Each: recordsEach, Group: recordsCluster, All: recordsAll, Share: recordsShare, Groups: recordsClusters,
	}
}

// turn begins an interval, and gives the sums of the last.
func (r *refusals) turn(now time.Time) (out []audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sum := range r.more {
		sum.Time = now
		sum.Reason = fmt.Sprintf("%d more refusals", sum.Count)
		out = append(out, *sum)
	}
	r.startLocked(now)
	return out
}
