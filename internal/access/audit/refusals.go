// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Refusals decides which refusals have a record of their own. Anybody can be refused as often
// as the network carries, and must not push records out of the files: in each interval the first
// ones are written, no source using up the share of a cluster and no cluster that of others; the
// rest is counted, by cluster, listener and code. The zero value is ready to use.
type Refusals struct {
	mu     sync.Mutex
	begun  time.Time
	ration telemetry.Ration
	more   map[unrecorded]*Record
}

type unrecorded struct{ cluster, frontend, code string }

// Take reports whether to write the record of a refusal.
func (r *Refusals) Take(now time.Time, rec Record, source string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.IsZero() {
		r.startLocked(now)
	}
	tell, cluster := r.ration.Take(rec.Cluster, source)
	if tell {
		return true
	}
	k := unrecorded{cluster, rec.Frontend, rec.Code}
	sum := r.more[k]
	if sum == nil && len(r.more) >= refusalKinds {
		k.cluster = ""
		sum = r.more[k]
	}
	if sum == nil {
		sum = &Record{
			Kind: KindRefusal, At: rec.At, Cluster: k.cluster, Frontend: k.frontend, Code: k.code, Since: now,
		}
		if rec.Code == string(fault.CodePolicyDenied) {
			sum.Verdict = Deny
		}
		r.more[k] = sum
	}
	sum.Count++
	return false
}

func (r *Refusals) startLocked(now time.Time) {
	r.begun, r.more = now, map[unrecorded]*Record{}
	r.ration = telemetry.Ration{
		Each: refusalsEach, Group: refusalsCluster, All: refusalsAll, Share: refusalsShare, Groups: refusalClusters,
	}
}

// Turn begins an interval, and gives the sums of the last.
func (r *Refusals) Turn(now time.Time) (out []Record) {
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
