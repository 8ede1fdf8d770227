// SPDX-License-Identifier: Apache-2.0

package system

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// forged is a certificate of another CA with a name of this hub's.
func forged(t *testing.T, who id.Identity, life time.Duration) *tls.Certificate {
	t.Helper()
	ca, err := trust.NewAuthority("tombolo.internal", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: who, Key: key.Public(), Life: life}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair := keyPair(t, key, string(trust.EncodeCertificate(leaf.Raw)))
	return &pair
}

// TestRefusedCertificatesLeaveARecord shows a certificate that has run out, one
// that was revoked, one for another role and one of another CA on each way in.
func TestRefusedCertificatesLeaveARecord(t *testing.T) {
	var c clock
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	h := startHub(t, hubSpec{now: c.now, extra: fmt.Sprintf("audit: {path: %q}\ncertificates: {renewGrace: 1h, clientLife: 240h}\n", file)})
	old := h.enrol(h.token("c1").Join)
	agent, err := id.ParseURI(old.Leaf.URIs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	c.forward(25*time.Hour + time.Hour + time.Minute)
	fresh := h.enrol(h.token("c1").Join)
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	h.revoke("client", client.serial)
	lie, late := forged(t, agent, 99*time.Hour), forged(t, agent, time.Hour)

	want := func(name, frontend string, code fault.Code, caller bool, serial string) {
		t.Helper()
		runtest.Eventually(t, name+" is recorded", func() bool {
			for _, r := range audited(t, file, audit.Filter{}) {
				if r.Kind == audit.KindRefusal && r.Frontend == frontend && r.Code == string(code) && (r.Caller != "") == caller && r.Serial == serial && r.Source != "" {
					return true
				}
			}
			return false
		})
	}
	serial := func(c *tls.Certificate) string { return trust.Serial(c.Leaf) }

	greet(t, h.dialTLS(&old.Certificate, trust.ALPNSession), hello("late"))
	want("an expired certificate for a session", "session", fault.CodeCertExpired, true, serial(&old.Certificate))
	if _, err := connectOver(runtest.Within(t), h.dialTLS(&old.Certificate), "10.0.0.1:80"); err == nil {
		t.Fatal("expired")
	}
	want("an expired certificate for CONNECT", "connect-tls", fault.CodeCertExpired, true, serial(&old.Certificate))
	if _, err := connectOver(runtest.Within(t), h.dialTLS(&client.Certificate), "10.0.0.1:80"); err == nil {
		t.Fatal("revoked")
	}
	want("a revoked certificate", "connect-tls", fault.CodeCertRevoked, true, client.serial)
	if _, err := connectOver(runtest.Within(t), h.dialTLS(&fresh.Certificate), "10.0.0.1:80"); err == nil {
		t.Fatal("an agent is no client")
	}
	want("a certificate for another role", "connect-tls", fault.CodeUnauthorized, true, serial(&fresh.Certificate))
	greet(t, h.dialTLS(lie, trust.ALPNSession), hello("forged"))
	want("a certificate of another CA, without the name that it claims", "session", fault.CodeCAMismatch, false, "")
	greet(t, h.dialTLS(late, trust.ALPNSession), hello("forged"))
	want("one of another CA that has run out", "session", fault.CodeCertExpired, false, "")

	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	guess := admin.JoinRequest{TokenID: "guessed", Secret: "guessed", Cluster: "c1", CSR: string(csr)}
	if _, err := postJoin(runtest.Within(t), h.listen, "/v1/join", guess, anyHub(nil, trust.ALPNJoin)); err == nil {
		t.Fatal("guessed")
	}
	want("a token that is none", "join", fault.CodeTokenUnknown, false, "")
	if _, err := postJoin(runtest.Within(t), h.listen, "/v1/renew", admin.RenewRequest{CSR: "x"}, anyHub(&old.Certificate, trust.ALPNJoin)); err == nil {
		t.Fatal("expired")
	}
	want("an expired certificate for a renewal", "renew", fault.CodeCertExpired, true, serial(&old.Certificate))
}

// TestAFloodOfUnknownPeersDoesNotDrownTheRecords connects more often than is recorded
// one by one, and finds the rest counted at the end.
func TestAFloodOfUnknownPeersDoesNotDrownTheRecords(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	h := startHub(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", file)})
	lie := forged(t, id.Identity{TrustDomain: "tombolo.internal", Role: id.RoleOperator, Name: "root"}, time.Hour)
	const flood = limit.AuditUnauthenticated + 20
	for range flood {
		if _, err := connectOver(runtest.Within(t), h.dialTLS(lie), "10.0.0.1:80"); err == nil {
			t.Fatal("it is forged")
		}
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	var single, counted int64
	for _, r := range audited(t, file, audit.Filter{Code: string(fault.CodeCAMismatch)}) {
		if r.Count > 0 {
			counted += r.Count
		} else {
			single++
		}
	}
	if single+counted != flood || single > 2*limit.AuditUnauthenticated || single < limit.AuditUnauthenticated {
		t.Errorf("%d records, %d counted, of %d", single, counted, flood)
	}
}
