// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestARemovedClusterLeavesNothing but that its certificates do not count.
func TestARemovedClusterLeavesNothing(t *testing.T) {
	j, now := newJoiner(t), noonOf()
	who, err := j.join("n1", "one", now.Add(10*time.Hour)) // by a clock that was ahead
	if err != nil {
		t.Fatal(err)
	}
	c2, err := id.ParseCluster("c2")
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := trust.NewToken(c2, time.Hour, 1, now)
	cert := Certificate{Serial: "ab", Identity: "spiffe://example.org/cluster/c1/client/x", Issued: now, Expires: now.Add(time.Hour)}
	if err := errors.Join(j.store.PutToken(kept, now), j.store.PutCertificate(cert, now), j.store.AddSocket(j.cluster, "connect", now)); err != nil {
		t.Fatal(err)
	}
	gone, err := j.store.RemoveCluster(j.cluster, now.Add(300*time.Millisecond))
	if err != nil || gone.Nodes != 1 || gone.Agents != 0 || gone.Tokens != 1 || len(gone.Clients) != 1 {
		t.Fatalf("%+v, %v", gone, err)
	}
	if !gone.Refuses(now) || !gone.Refuses(now.Add(10*time.Hour)) || gone.Refuses(now.Add(10*time.Hour+time.Second)) {
		t.Errorf("%+v", gone.Removed)
	}
	clusters, err1 := j.store.Clusters()
	holders, err2 := j.store.Holders()
	tokens, err3 := j.store.Tokens()
	certs, err4 := j.store.Certificates()
	if err := errors.Join(err1, err2, err3, err4); err != nil || len(clusters) != 1 || len(holders) != 0 || len(certs) != 0 ||
		len(tokens) != 1 || tokens[0].ID != kept.ID {
		t.Errorf("%v, %v, %v, %v, %v", clusters, holders, tokens, certs, err)
	}
	wantFault(t, j.store.RenewHolder(Holder{Identity: who, KeyHash: "two"}, now), fault.CodeCertRevoked)
	_, err = j.join("n1", "one", now)
	wantFault(t, err, fault.CodeTokenUnknown)

	token, _ := trust.NewToken(j.cluster, time.Hour, 1, now)
	wantFault(t, j.store.PutToken(token, now.Add(10*time.Hour)), fault.CodeClusterInUse)
	if err := j.store.PutToken(token, now.Add(10*time.Hour+time.Second)); err != nil {
		t.Error(err)
	}
	if all, err := j.store.RemovedClusters(); err != nil || len(all) != 1 || !all[0].Refuses(now) {
		t.Errorf("registered anew it is forgotten that it was removed: %+v, %v", all, err)
	}
	// Another removal, when no certificate of that time can live any more.
	if _, err := j.store.RemoveCluster(c2, now.Add(limit.Authority+11*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if all, err := j.store.RemovedClusters(); err != nil || len(all) != 1 || all[0].Name != "c2" {
		t.Errorf("%+v, %v", all, err)
	}
}
