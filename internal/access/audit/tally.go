// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Tally decides which refusals of known callers get a record, and a line of the log,
// of their own. A caller is refused as fast as it asks, and must not push the
// records of others out of the rotated files: in each interval the first of a kind
// are told one by one, the rest are counted, and the interval ends with one record
// for each kind, with their count. The zero Tally is ready.
//
// At a limit all refusals of one caller with one code are of a kind, and so are those
// of what cannot be read, for which no rate is asked. Of all others only those of the
// same destination and rule are, so that each distinct one has its record. What is
// remembered is bounded: the kind that was not met for longest is told, with its count,
// and forgotten for a new one.
type Tally struct {
	mu               sync.Mutex
	begun            time.Time
	limits, distinct kinds
}

// refused is what refusals of a kind have in common.
type refused struct {
	cluster, frontend, caller, operator, serial string
	local                                       bool // uid and gid are known
	uid, gid                                    uint32
	code                                        string
	asked, rule                                 string // none if they are alike anywhere
}

// kinds are the kinds that are remembered.
type kinds struct {
	of    map[refused]*list.Element
	order list.List // of *kind, the longest not met first
}

type kind struct {
	refused
	at, hub, agent string
	told           int
	more           int64
	since          time.Time // of the first of them
}

// Take notes a refusal. It reports whether to tell of it, and gives the sums of kinds
// that are forgotten and of an interval that has ended, which are to be told as well.
func (t *Tally) Take(now time.Time, r Record) (tell bool, sums []Record) {
	q := refusedOf(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.begun) >= limit.AuditTold {
		sums = t.turn(now)
	}
	from, most := &t.distinct, auditDistinct
	if anywhere(r.Code) {
		from, most = &t.limits, auditCallers
	}
	k, gone := from.meet(q, most)
	if gone != nil && gone.more > 0 {
		sums = append(sums, gone.sum(now))
	}
	k.at, k.hub, k.agent = r.At, r.Hub, r.Agent
	if k.told < limit.AuditAlike {
		k.told++
		return true, sums
	}
	if k.more == 0 {
		k.since = now
	}
	k.more++
	return false, sums
}

// Turn begins a new interval and gives the sums of the last.
func (t *Tally) Turn(now time.Time) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turn(now)
}

func (t *Tally) turn(now time.Time) (sums []Record) {
	for _, from := range []*kinds{&t.limits, &t.distinct} {
		for e := from.order.Front(); e != nil; e = e.Next() {
			if k := e.Value.(*kind); k.more > 0 {
				sums = append(sums, k.sum(now))
			}
		}
		*from = kinds{}
	}
	t.begun = now
	slices.SortStableFunc(sums, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Code, b.Code))
	})
	return sums
}

// meet finds a kind, or makes it. gone is one that had to be forgotten for it.
func (s *kinds) meet(q refused, most int) (k, gone *kind) {
	if e := s.of[q]; e != nil {
		s.order.MoveToBack(e)
		return e.Value.(*kind), nil
	}
	if s.order.Len() >= most {
		gone = s.order.Remove(s.order.Front()).(*kind)
		delete(s.of, gone.refused)
	}
	if s.of == nil {
		s.of = map[refused]*list.Element{}
	}
	k = &kind{refused: q}
	s.of[q] = s.order.PushBack(k)
	return k, gone
}

func refusedOf(r Record) refused {
	q := refused{
		cluster: r.Cluster, frontend: r.Frontend, caller: clip(r.Caller, limit.AuditText),
		operator: clip(r.Operator, limit.AuditText),
		serial:   clip(r.Serial, limit.AuditText), code: clip(r.Code, limit.AuditText),
	}
	if r.Peer != nil { // each process has another pid
		q.local, q.uid, q.gid = true, r.Peer.UID, r.Peer.GID
	}
	if !anywhere(r.Code) {
		q.asked, q.rule = clip(Destination(r.Asked), limit.AuditText), clip(r.Rule, limit.AuditText)
	}
	return q
}

// anywhere reports whether a refusal speaks of how much is asked, or that it cannot be
// read, and not of where it was to go.
func anywhere(code string) bool {
	return fault.ClassOf(fault.Code(code)) == fault.Exhausted || code == string(fault.CodeAudit) ||
		code == string(fault.CodeRequest)
}

func (k *kind) sum(now time.Time) Record {
	r := Record{
		Kind: KindRefusal, Time: now, At: k.at, Hub: k.hub, Agent: k.agent, Cluster: k.cluster, Frontend: k.frontend,
		Caller: k.caller, Operator: k.operator,
		Serial: k.serial, Asked: k.asked, Rule: k.rule, Code: k.code, Count: k.more, Since: k.since,
		Reason: fmt.Sprintf("%d more refusals like those before", k.more),
	}
	if k.code == string(fault.CodePolicyDenied) {
		r.Verdict = Deny
	}
	if k.local {
		r.Peer = &Peer{UID: k.uid, GID: k.gid}
	}
	return r
}
