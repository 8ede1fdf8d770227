// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func authority(t testing.TB, domain string) *trust.Authority {
	t.Helper()
	a, err := trust.NewAuthority(domain, noon())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue certifies a new key for an hour.
func issue(t testing.TB, a *trust.Authority, who id.Identity) *x509.Certificate {
	t.Helper()
	c, err := a.Issue(trust.Request{Identity: who, Key: newKey(t).Public(), Life: time.Hour, Hosts: []string{"hub.example", "10.0.0.1", "::1"}}, noon())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func anAgent(t testing.TB) id.Identity {
	return id.Identity{Role: id.RoleAgent, Cluster: cluster(t, "c1"), Name: "a1"}
}

func TestEveryRoleIsIssuedAndVerified(t *testing.T) {
	a := authority(t, "example.org")
	for name, who := range map[string]id.Identity{
		"a hub":        {Role: id.RoleHub, Name: "h1"},
		"an agent":     anAgent(t),
		"a client":     {Role: id.RoleClient, Cluster: cluster(t, "c1"), Name: "apiserver"},
		"a node":       {Role: id.RoleNode, Cluster: cluster(t, "c1"), Name: "n1"},
		"an operator":  {Role: id.RoleOperator, Name: "anna"},
		"a name given": {TrustDomain: "ignored.example", Role: id.RoleOperator, Name: "anna"},
	} {
		t.Run(name, func(t *testing.T) {
			c := issue(t, a, who)
			got, err := trust.Check{Roots: a.Roots(), TrustDomain: "example.org", Now: noon()}.Verify([]*x509.Certificate{c, a.Certificate()})
			who.TrustDomain = "example.org"
			if err != nil || got != who {
				t.Errorf("%v, %v; want %v", got, err, who)
			}
			if isHub := len(c.DNSNames)+len(c.IPAddresses) > 0; isHub != (who.Role == id.RoleHub) {
				t.Errorf("names %v %v in the certificate of %v", c.DNSNames, c.IPAddresses, who)
			}
			if !c.NotBefore.Equal(noon().Add(-limit.ClockTolerance)) || !c.NotAfter.Equal(noon().Add(time.Hour)) {
				t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
			}
			if _, err := c.Verify(x509.VerifyOptions{Roots: a.Roots(), CurrentTime: noon(), KeyUsages: c.ExtKeyUsage}); err != nil {
				t.Errorf("a stock verifier: %v", err)
			}
		})
	}
	t.Run("no certificate outlives its CA", func(t *testing.T) {
		late := a.Certificate().NotAfter.Add(-time.Minute)
		c, err := a.Issue(trust.Request{Identity: anAgent(t), Key: newKey(t).Public(), Life: time.Hour}, late)
		if err != nil || !c.NotAfter.Equal(a.Certificate().NotAfter) {
			t.Errorf("%v, %v", c.NotAfter, err)
		}
	})
	t.Run("serials differ", func(t *testing.T) {
		if x, y := trust.Serial(issue(t, a, anAgent(t))), trust.Serial(issue(t, a, anAgent(t))); x == y || len(x) < 16 {
			t.Errorf("%s and %s", x, y)
		}
	})
	for name, who := range map[string]id.Identity{
		"an agent without a cluster":  {Role: id.RoleAgent, Name: "a"},
		"a hub in a cluster":          {Role: id.RoleHub, Cluster: cluster(t, "c1"), Name: "h"},
		"a name that climbs a path":   {Role: id.RoleOperator, Name: "x/../hub/h"},
		"no name":                     {Role: id.RoleOperator},
		"an operator who is an agent": {Role: id.RoleOperator, Name: "c1/agent/a"},
		"a role that is none":         {Role: "root", Name: "r"},
	} {
		t.Run("nothing is issued to "+name, func(t *testing.T) {
			if _, err := a.Issue(trust.Request{Identity: who, Key: newKey(t).Public(), Life: time.Hour}, noon()); !fault.Has(err, fault.CodeInternal) {
				t.Errorf("%v", err)
			}
		})
	}
}

// forged makes a certificate that Issue would not; edit changes the template.
func forged(t *testing.T, parent *trust.Authority, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	uri := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/cluster/c1/agent/a1"}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "forged"}, NotBefore: noon().Add(-time.Hour), NotAfter: noon().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, URIs: []*url.URL{uri},
	}
	edit(tmpl)
	keyPEM, err := parent.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := trust.ParseKey(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent.Certificate(), newKey(t).Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVerifyRefuses(t *testing.T) {
	a, other := authority(t, "example.org"), authority(t, "example.org")
	foreign := authority(t, "foreign.org")
	good := issue(t, a, anAgent(t))
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	check := trust.Check{Roots: trust.RootsOf(a.Certificate(), foreign.Certificate()), TrustDomain: "example.org", Now: noon()}
	at := func(now time.Time, grace time.Duration) trust.Check {
		c := check
		c.Now, c.Grace = now, grace
		return c
	}
	revoking := check
	revoking.Revoked = func(serial string) bool { return serial == trust.Serial(good) }
	one := func(c *x509.Certificate) []*x509.Certificate { return []*x509.Certificate{c} }
	end := good.NotAfter
	for name, c := range map[string]struct {
		check trust.Check
		chain []*x509.Certificate
		want  fault.Code // empty: accepted
	}{
		"nothing at all":                          {check, nil, fault.CodeCertInvalid},
		"another CA":                              {check, one(issue(t, other, anAgent(t))), fault.CodeCAMismatch},
		"another CA that is sent along":           {check, []*x509.Certificate{issue(t, other, anAgent(t)), other.Certificate()}, fault.CodeCAMismatch},
		"a foreign trust domain under a known CA": {check, one(issue(t, foreign, anAgent(t))), fault.CodeCertInvalid},
		"a good one":                              {check, one(good), ""},
		"the instant of its end":                  {at(end, 0), one(good), ""},
		"after its end":                           {at(end.Add(time.Second), 0), one(good), fault.CodeCertExpired},
		"after its end, within the grace":         {at(end.Add(time.Hour), time.Hour), one(good), ""},
		"after its end, after the grace":          {at(end.Add(time.Hour+1), time.Hour), one(good), fault.CodeCertExpired},
		"by a clock an hour slow":                 {at(noon().Add(-time.Hour), 0), one(good), fault.CodeClockSkew},
		"a slow clock with grace":                 {at(noon().Add(-time.Hour), 24*time.Hour), one(good), fault.CodeClockSkew},
		"by a clock a little slow":                {at(noon().Add(-limit.ClockTolerance), 0), one(good), ""},
		"revoked":                                 {revoking, one(good), fault.CodeCertRevoked},
		"another one is revoked":                  {revoking, one(issue(t, a, anAgent(t))), ""},
		"the CA itself":                           {check, one(a.Certificate()), fault.CodeCertInvalid},
		"two URIs": {check, one(forged(t, a, func(c *x509.Certificate) {
			c.URIs = append(c.URIs, uri("spiffe://example.org/operator/o"))
		})), fault.CodeCertInvalid},
		"no URI":                  {check, one(forged(t, a, func(c *x509.Certificate) { c.URIs = nil })), fault.CodeCertInvalid},
		"a URI that is no SPIFFE": {check, one(forged(t, a, func(c *x509.Certificate) { c.URIs[0] = uri("https://example.org/") })), fault.CodeCertInvalid},
		"a URI with an escape": {check, one(forged(t, a, func(c *x509.Certificate) {
			c.URIs[0] = uri("spiffe://example.org/cluster/c1/agent/%61")
		})), fault.CodeCertInvalid},
		"an agent with a server's usage": {check, one(forged(t, a, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})), fault.CodeCertInvalid},
		"a hub with a client's usage": {check, one(forged(t, a, func(c *x509.Certificate) {
			c.URIs[0] = uri("spiffe://example.org/hub/h1")
		})), fault.CodeCertInvalid},
		"no usage": {check, one(forged(t, a, func(c *x509.Certificate) { c.ExtKeyUsage = nil })), fault.CodeCertInvalid},
		"a leaf that is a CA too": {check, one(forged(t, a, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
		})), fault.CodeCertInvalid},
		"a good one by itself": {check, one(forged(t, a, func(*x509.Certificate) {})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			who, err := c.check.Verify(c.chain)
			if c.want == "" {
				if err != nil || who.Role != id.RoleAgent {
					t.Errorf("%v, %v", who, err)
				}
				return
			}
			if f := fault.From(err); f == nil || f.Code != c.want || f.Why == "" && f.Next == "" || who != (id.Identity{}) {
				t.Errorf("%v, %v; want %s", who, err, c.want)
			}
		})
	}
	t.Run("a certificate signed by a leaf", func(t *testing.T) {
		leafKey := newKey(t)
		leaf, err := a.Issue(trust.Request{Identity: anAgent(t), Key: leafKey.Public(), Life: time.Hour}, noon())
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(9), NotBefore: noon().Add(-time.Hour), NotAfter: noon().Add(time.Hour),
			ExtKeyUsage: leaf.ExtKeyUsage, URIs: []*url.URL{uri("spiffe://example.org/operator/root")}}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, leaf, newKey(t).Public(), leafKey)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := check.Verify([]*x509.Certificate{c, leaf}); err == nil {
			t.Errorf("an agent made itself %v", who)
		}
	})
}

func TestKeysAndRequests(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t, "example.org")
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey, "P-384": p384, "Ed25519": edKey} {
		t.Run(name+" is not certified", func(t *testing.T) {
			csr, err := trust.NewCSR(key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := trust.ParseCSR(csr); !fault.Has(err, fault.CodeCertInvalid) {
				t.Errorf("request: %v", err)
			}
			if _, err := a.Issue(trust.Request{Identity: anAgent(t), Key: key.Public(), Life: time.Hour}, noon()); !fault.Has(err, fault.CodeCertInvalid) {
				t.Errorf("issue: %v", err)
			}
		})
	}
	key := newKey(t)
	csr, err := trust.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trust.ParseCSR(csr); err != nil || !key.PublicKey.Equal(got) {
		t.Errorf("a good request: %v", err)
	}
	block, _ := pem.Decode(csr)
	block.Bytes[len(block.Bytes)-1] ^= 1 // of the signature
	for name, data := range map[string][]byte{
		"nothing":                        nil,
		"text":                           []byte("hello"),
		"a certificate":                  a.CertificatePEM(),
		"two requests":                   append(bytes.Clone(csr), csr...),
		"a request with something after": append(bytes.Clone(csr), 'x'),
		"half a request":                 csr[:len(csr)/2],
		"a wrong signature":              pem.EncodeToMemory(block),
		"an empty block":                 pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"}),
	} {
		t.Run("a request that is "+name, func(t *testing.T) {
			if _, err := trust.ParseCSR(data); !fault.Has(err, fault.CodeRequest) {
				t.Errorf("%v", err)
			}
		})
	}
	h1, err1 := trust.KeyHash(key.Public())
	h2, err2 := trust.KeyHash(newKey(t).Public())
	if err1 != nil || err2 != nil || h1 == h2 || len(h1) != 64 {
		t.Errorf("hashes %s and %s: %v %v", h1, h2, err1, err2)
	}
	if _, err := trust.KeyHash("no key"); err == nil {
		t.Error("the hash of no key")
	}
}
