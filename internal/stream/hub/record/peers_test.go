// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestAFloodOfRefusedPeersIsBounded has unknown peers refused a hundred thousand times, and
// agents with certificates that ran out among them.
func TestAFloodOfRefusedPeersIsBounded(t *testing.T) {
	var k peerRefusals
	now := time.Unix(1_000_000, 0)
	unknown := peerRefusal{frontend: "session", code: fault.CodeCAMismatch}
	records, counted := map[bool]int{}, map[bool]int64{}
	tally := func(q peerRefusal, record bool, ended []summary) {
		if record {
			records[q.identity != ""]++
		}
		for _, m := range ended {
			counted[m.ours] += m.n
			if m.identity != "" || m.since.IsZero() {
				t.Fatalf("%+v", m)
			}
		}
	}
	const flood, known, each = 100_000, 40, 10
	for n := range flood {
		record, ended := k.take(now, unknown)
		tally(unknown, record, ended)
		if n%1000 == 0 {
			now = now.Add(time.Second)
		}
	}
	for n := range known * each {
		q := peerRefusal{"connect-tls", fault.CodeCertExpired, fmt.Sprint("c", n%known%4), fmt.Sprint("spiffe://d/client/", n%known)}
		record, ended := k.take(now, q)
		tally(q, record, ended)
		if n < known && !record {
			t.Errorf("the flood of unknown peers hides %s", q.identity)
		}
	}
	now = now.Add(limit.AuditTold)
	last := peerRefusal{"renew", fault.CodeCertRevoked, "c1", "new"}
	record, ended := k.take(now, last)
	if !record {
		t.Error("a new interval begins with records")
	}
	tally(last, record, ended)
	if records[false] != 2*limit.AuditUnauthenticated || counted[false] != int64(flood-records[false]) {
		t.Errorf("unknown peers: %d records, %d counted", records[false], counted[false])
	}
	if records[true] > auditKnown+1 || counted[true] != int64(known*each+1-records[true]) {
		t.Errorf("ours: %d records, %d counted", records[true], counted[true])
	}
}

func TestOneIdentityHidesNoOther(t *testing.T) {
	var k peerRefusals
	now := time.Unix(1_000_000, 0)
	n := 0
	for range 10 * auditKnown {
		if record, _ := k.take(now, peerRefusal{"session", fault.CodeCertRevoked, "c1", "loud"}); record {
			n++
		}
	}
	if n != auditKnownEach {
		t.Errorf("%d records of one identity", n)
	}
	if record, _ := k.take(now, peerRefusal{"session", fault.CodeCertRevoked, "c1", "other"}); !record {
		t.Error("another one is hidden")
	}
	ended := k.Turn(now)
	if len(ended) != 1 || ended[0].n != int64(10*auditKnown-n) || len(k.Turn(now)) != 0 {
		t.Errorf("%+v", ended)
	}
}

// TestOneClusterHidesNoOther has clusters with many agents, as somebody with a join
// token may make them, peerRefusal all the time: what another cluster's agent is refused is
// recorded none the less, and the sums name the clusters.
func TestOneClusterHidesNoOther(t *testing.T) {
	var k peerRefusals
	now := time.Unix(1_000_000, 0)
	const loud, agents, each = 10, 50, 20
	records := map[string]int{}
	for cluster := range loud {
		for n := range agents * each {
			q := peerRefusal{"session", fault.CodeCertRevoked, fmt.Sprint("loud", cluster), fmt.Sprint("spiffe://d/agent/", cluster, "/", n%agents)}
			if record, _ := k.take(now, q); record {
				records[q.cluster]++
			}
		}
	}
	all := 0
	for cluster, n := range records {
		if all += n; n > auditKnownCluster || n < auditKnownShare {
			t.Errorf("%d records of %s", n, cluster)
		}
	}
	if all > auditKnown+loud*auditKnownShare {
		t.Errorf("%d records of all", all)
	}
	for _, agent := range []string{"a", "b"} {
		if record, _ := k.take(now, peerRefusal{"session", fault.CodeCertRevoked, "quiet", agent}); !record {
			t.Errorf("agent %s of another cluster is hidden", agent)
		}
	}
	counted := map[string]int64{}
	for _, m := range k.Turn(now) {
		counted[m.cluster] += m.n
	}
	for cluster, n := range records {
		if counted[cluster] != int64(agents*each-n) {
			t.Errorf("%s: %d counted, %d recorded", cluster, counted[cluster], n)
		}
	}
}
