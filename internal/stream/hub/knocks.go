// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"context"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// knock is one refusal of a peer by its certificate or its token.
type knock struct {
	frontend string // session, connect-tls, join, renew, admin
	code     fault.Code
	cluster  string // of an identity that is ours, if it has one
	identity string // of a certificate that is ours; empty: of a stranger's
}

// more are knocks of one kind that had no record of their own: they are only counted.
type more struct {
	knock // without the identity
	ours  bool
	n     int64
	since time.Time
}

// knocks decides which refusals of peers get a record of their own. Everybody can
// knock, as often as the network carries, and must not push records out of the
// rotated files: in each interval the first are recorded, the rest are counted, and
// the interval ends with one record for each kind of them. Peers with certificates
// of ours and strangers are bounded apart, and so is each cluster: a flood of the one
// hides nothing of the other. A certificate is cheap for who may renew, so its
// identity is what has a bound.
type knocks struct {
	mu     sync.Mutex
	begun  time.Time
	known  telemetry.Ration
	alien  int // records of strangers
	unsaid []more
	at     map[kindOfMore]int // in unsaid
}

type kindOfMore struct {
	knock
	ours bool
}

// take notes a knock. It says whether to record it, and gives the counts of an
// interval that has ended.
func (k *knocks) take(now time.Time, q knock) (record bool, ended []more) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.begun) >= limit.AuditTold {
		ended = k.turn(now)
	}
	switch {
	case q.identity == "":
		record = k.alien < limit.AuditStrangers
		if record {
			k.alien++
		}
	default:
		record, q.cluster = k.known.Take(q.cluster, q.identity)
	}
	if !record {
		k.count(now, q)
	}
	return record, ended
}

func (k *knocks) count(now time.Time, q knock) {
	kind := kindOfMore{q, q.identity != ""}
	kind.identity = ""
	at, met := k.at[kind]
	if !met { // as many as there are codes and frontends, for each cluster
		at = len(k.unsaid)
		k.at[kind] = at
		k.unsaid = append(k.unsaid, more{kind.knock, kind.ours, 0, now})
	}
	k.unsaid[at].n++
}

// turn begins a new interval.
func (k *knocks) turn(now time.Time) (ended []more) {
	ended = k.unsaid
	k.begun, k.alien, k.unsaid, k.at = now, 0, nil, map[kindOfMore]int{}
	k.known = telemetry.Ration{
		Each: limit.AuditKnownEach, Group: limit.AuditKnownCluster, All: limit.AuditKnown,
		Share: limit.AuditKnownShare, Groups: limit.AuditClusters,
	}
	slices.SortFunc(ended, func(a, b more) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.frontend, b.frontend), cmp.Compare(a.code, b.code))
	})
	return ended
}

// recordKnock records that a peer was refused by what it showed: a certificate,
// or a token if chain is empty.
func (h *Hub) recordKnock(frontend string, chain []*x509.Certificate, source string, err error) {
	if h.audit == nil {
		return
	}
	f := fault.From(err)
	p := party{frontend: frontend, source: source}
	if who, ours := h.credentials.Authentic(chain); ours {
		p.cluster, p.caller, p.serial = who.Cluster, who.URI(), trust.Serial(chain[0])
	}
	now := time.Now()
	record, ended := h.knocks.take(now, knock{frontend, f.Code, p.cluster.String(), p.caller})
	h.recordMore(ended)
	if !record {
		return
	}
	s := recordedStream{audit: h.audit, begun: now, record: h.newRecord(p, wire.Peer{})}
	s.record.Kind = audit.KindRefusal
	s.fail(err)
	h.audit.Write(s.record)
}

func (h *Hub) recordMore(ended []more) {
	for _, m := range ended {
		r := h.newRecord(party{frontend: m.frontend}, wire.Peer{})
		r.Kind, r.Count, r.Since, r.Cluster = audit.KindRefusal, m.n, m.since, m.cluster
		who := "strangers"
		if m.ours {
			who = "peers with a certificate of this hub"
		}
		r.End(fault.Newf(m.code, "%d more refusals of %s", m.n, who))
		h.audit.Write(r)
	}
}

// tellKnocks ends the intervals in which nobody knocks any more, nor is refused.
func (h *Hub) tellKnocks(ctx context.Context) error {
	turn := func() { h.tellCounted(time.Now()) }
	defer turn()
	return run.Every(ctx, limit.AuditTold, turn)
}

// tellCounted tells what was counted until now.
func (h *Hub) tellCounted(now time.Time) {
	h.knocks.mu.Lock()
	ended := h.knocks.turn(now)
	h.knocks.mu.Unlock()
	if h.audit != nil {
		h.recordMore(ended)
	}
	h.tellSums(h.refusals.Turn(now))
}
