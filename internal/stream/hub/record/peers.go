// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// peerRefusal is one refusal of a peer by its certificate or its token.
type peerRefusal struct {
	frontend string // session, connect-tls, join, renew, admin
	code     fault.Code
	cluster  string // of an identity that is ours, if it has one
	identity string // of a certificate that is ours; empty: unknown
}

// summary counts refusals of one kind that had no record of their own.
type summary struct {
	peerRefusal // without the identity
	ours        bool
	n           int64
	since       time.Time
}

// peerRefusals decides which refusals of peers get a record of their own. Anybody can be
// refused as often as the network carries, and must not push records out of the rotated
// files: in each interval the first are recorded, the rest are counted, and the interval ends
// with one record for each kind of them. Peers with certificates of ours and unknown peers are
// bounded apart, and so is each cluster: a flood of one hides nothing of another. Certificates
// are cheap for an agent or node that may renew, so the bound is on the identity.
type peerRefusals struct {
	mu      sync.Mutex
	begun   time.Time
	known   telemetry.Ration
	unknown int // records of unknown peers
	counted []summary
	at      map[summaryKey]int // in counted
}

type summaryKey struct {
	peerRefusal
	ours bool
}

// take notes a refusal. It says whether to record it, and gives the counts of an
// interval that has ended.
func (k *peerRefusals) take(now time.Time, q peerRefusal) (record bool, ended []summary) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.begun) >= limit.AuditTold {
		ended = k.turnLocked(now)
	}
	switch {
	case q.identity == "":
		record = k.unknown < limit.AuditUnauthenticated
		if record {
			k.unknown++
		}
	default:
		record, q.cluster = k.known.Take(q.cluster, q.identity)
	}
	if !record {
		k.countLocked(now, q)
	}
	return record, ended
}

func (k *peerRefusals) countLocked(now time.Time, q peerRefusal) {
	kind := summaryKey{q, q.identity != ""}
	kind.identity = ""
	at, met := k.at[kind]
	if !met { // as many as there are codes and frontends, for each cluster
		at = len(k.counted)
		k.at[kind] = at
		k.counted = append(k.counted, summary{kind.peerRefusal, kind.ours, 0, now})
	}
	k.counted[at].n++
}

// Turn begins a new interval and gives what was counted in the last.
func (k *peerRefusals) Turn(now time.Time) []summary {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.turnLocked(now)
}

func (k *peerRefusals) turnLocked(now time.Time) (ended []summary) {
	ended = k.counted
	k.begun, k.unknown, k.counted, k.at = now, 0, nil, map[summaryKey]int{}
	k.known = telemetry.Ration{
		Each: auditKnownEach, Group: auditKnownCluster, All: auditKnown,
		Share: auditKnownShare, Groups: auditClusters,
	}
	slices.SortFunc(ended, func(a, b summary) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.frontend, b.frontend), cmp.Compare(a.code, b.code))
	})
	return ended
}

// RefusedPeer records that a peer was refused by what it showed: a certificate, or a token if chain
// is empty.
func (r *Recorder) RefusedPeer(frontend string, chain []*x509.Certificate, source string, err error) {
	if r.Audit == nil {
		return
	}
	f := fault.From(err)
	p := Party{Frontend: frontend, Source: source}
	if who, ours := r.Authentic(chain); ours {
		p.Cluster, p.Caller, p.Serial = who.Cluster, who.URI(), trust.Serial(chain[0])
	}
	now := time.Now()
	record, ended := r.peers.take(now, peerRefusal{frontend, f.Code, p.Cluster.String(), p.Caller})
	r.writeSummaries(ended)
	if !record {
		return
	}
	s := Dial{audit: r.Audit, begun: now, record: r.newRecord(p, wire.Peer{})}
	s.record.Kind = audit.KindRefusal
	s.fail(err)
	r.Audit.Write(s.record)
}

func (r *Recorder) writeSummaries(ended []summary) {
	for _, m := range ended {
		rec := r.newRecord(Party{Frontend: m.frontend}, wire.Peer{})
		rec.Kind, rec.Count, rec.Since, rec.Cluster = audit.KindRefusal, m.n, m.since, m.cluster
		who := "unknown peers"
		if m.ours {
			who = "peers with a certificate of this hub"
		}
		rec.End(fault.Newf(m.code, "%d more refusals of %s", m.n, who))
		r.Audit.Write(rec)
	}
}
