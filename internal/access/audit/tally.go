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

// Tally decides which refusals of known callers get a record, and a log line, of
// their own. A caller that is refused in a loop must not push the records of others
// out of the rotated files: in each interval the first refusals of a kind are
// reported one by one, the rest are counted, and the interval ends with one record
// per kind that holds the count. The zero Tally is ready to use.
//
// Refusals of one caller with one code are of one kind if they are about a limit or
// an unreadable request. All others are of one kind only if destination and rule are
// the same too, so that each distinct one has its record. The number of kinds is
// bounded: the least recently seen one is reported, with its count, and dropped.
type Tally struct {
	mu               sync.Mutex
	begun            time.Time
	limits, distinct kinds
}

// refused is the key of a kind: what its refusals have in common.
type refused struct {
	cluster, frontend, caller, operator, serial string
	local                                       bool // uid and gid are set
	uid, gid                                    uint32
	code                                        string
	asked, rule                                 string // empty if the kind spans all destinations
}

// kinds are the remembered kinds, by key and by recency.
type kinds struct {
	of    map[refused]*list.Element
	order list.List // of *kind, least recently seen first
}

type kind struct {
	refused
	at, hub, agent string
	told           int
	more           int64
	since          time.Time // of the first of them
}

// Take counts a refusal. It reports whether to write a record for it, and returns
// the sums, to be written as well, of dropped kinds and of an interval that has ended.
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

// Turn starts a new interval and returns the sums of the last one.
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

// meet finds or creates a kind. gone is the kind that was dropped for it, if any.
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
	if r.Peer != nil { // without the pid, which differs for each process
		q.local, q.uid, q.gid = true, r.Peer.UID, r.Peer.GID
	}
	if !anywhere(r.Code) {
		q.asked, q.rule = clip(Destination(r.Asked), limit.AuditText), clip(r.Rule, limit.AuditText)
	}
	return q
}

// anywhere reports whether a refusal is about the amount or the form of requests, and
// not about their destination.
func anywhere(code string) bool {
	return fault.ClassOf(fault.Code(code)) == fault.Exhausted || code == string(fault.CodeAudit) ||
		code == string(fault.CodeRequest)
}

func (k *kind) sum(now time.Time) Record {
	r := Record{
		Kind: KindRefusal, Time: now, At: k.at, Hub: k.hub, Agent: k.agent, Cluster: k.cluster, Frontend: k.frontend,
		Caller: k.caller, Operator: k.operator,
		Serial: k.serial, Asked: k.asked, Rule: k.rule, Code: k.code, Count: k.more, Since: k.since,
		Reason: fmt.Sprintf("%d more refusals like the previous ones", k.more),
	}
	if k.code == string(fault.CodePolicyDenied) {
		r.Verdict = Deny
	}
	if k.local {
		r.Peer = &Peer{UID: k.uid, GID: k.gid}
	}
	return r
}
