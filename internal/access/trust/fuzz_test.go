// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// FuzzParseCSR: what is accepted is a P-256 key; everything else is the sender's
// mistake and coded.
func FuzzParseCSR(f *testing.F) {
	csr, err := trust.NewCSR(newKey(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add(bytes.Replace(csr, []byte("CERTIFICATE REQUEST"), []byte("NEW CERTIFICATE REQUEST"), 2))
	f.Add(append(csr, csr...))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := trust.ParseCSR(data)
		if err != nil {
			if !fault.Has(err, fault.CodeRequest) && !fault.Has(err, fault.CodeCertInvalid) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if k, ok := key.(*ecdsa.PublicKey); !ok || k.Curve.Params().Name != "P-256" {
			t.Errorf("a %T is accepted", key)
		}
		if hash, err := trust.KeyHash(key); err != nil || len(hash) != 64 {
			t.Errorf("its hash: %q, %v", hash, err)
		}
	})
}

// FuzzParseCertificates: what is read renders as what reads the same again.
func FuzzParseCertificates(f *testing.F) {
	ca := authority(f, "example.org")
	one := trust.EncodeCertificate(issue(f, ca, anAgent(f)).Raw)
	f.Add(one)
	f.Add(append(one, ca.CertificatePEM()...))
	f.Add([]byte("text before\n" + string(one) + "text behind"))
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, err := trust.ParseCertificates(data)
		if err != nil {
			if !fault.Has(err, fault.CodeCertInvalid) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if n := bytes.Count(data, []byte("-----BEGIN")); len(certs) != n {
			t.Errorf("%d certificates in a text with %d blocks", len(certs), n)
		}
		var text []byte
		for _, c := range certs {
			text = append(text, trust.EncodeCertificate(c.Raw)...)
		}
		again, err := trust.ParseCertificates(text)
		if err != nil || len(again) != len(certs) {
			t.Fatalf("%d certificates became %d, %v", len(certs), len(again), err)
		}
		for i := range certs {
			if !again[i].Equal(certs[i]) {
				t.Errorf("certificate %d became another one", i)
			}
		}
	})
}

// FuzzParseKey: what is read is the same key after it was stored again, and an
// error shows nothing of the text.
func FuzzParseKey(f *testing.F) {
	text, err := trust.EncodeKey(newKey(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.ReplaceAll(text, []byte("PRIVATE KEY"), []byte("EC PRIVATE KEY")))
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := trust.ParseKey(data)
		if err != nil {
			f := fault.From(err)
			if f.Code != fault.CodeCertInvalid || f.Unwrap() != nil {
				t.Errorf("%v", err)
			}
			return
		}
		text, err := trust.EncodeKey(key)
		if err != nil {
			t.Fatalf("a %T cannot be stored: %v", key, err)
		}
		again, err := trust.ParseKey(text)
		if err != nil || !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(again.Public()) {
			t.Errorf("it became another key: %v", err)
		}
	})
}

// FuzzIdentityOfACertificate puts any text into a certificate of our own CA where
// the SPIFFE ID stands: it is refused, or it is the identity to the letter.
func FuzzIdentityOfACertificate(f *testing.F) {
	ca := authority(f, "example.org")
	parent, key := ca.Certificate(), newKey(f)
	caKey, err := ca.KeyPEM()
	if err != nil {
		f.Fatal(err)
	}
	signer, err := trust.ParseKey(caKey)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		"spiffe://example.org/hub/h1", "spiffe://example.org/cluster/c1/agent/a1", "SPIFFE://example.org/hub/h1",
		"spiffe://example.org/hub/h1#", "spiffe://example.org/hub/h1?", "spiffe://EXAMPLE.org/hub/h1",
		"spiffe://example.org/hub/h%31", "spiffe://example.org//hub/h1", "spiffe://a@example.org/hub/h1",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, client bool) {
		usage := x509.ExtKeyUsageServerAuth
		if client {
			usage = x509.ExtKeyUsageClientAuth
		}
		names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(text)}})
		if err != nil {
			return
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: noon().Add(-time.Hour), NotAfter: noon().Add(time.Hour),
			ExtKeyUsage:     []x509.ExtKeyUsage{usage},
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names}},
		}, parent, key.Public(), signer)
		if err != nil {
			return
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			return // the handshake fails for it
		}
		who, err := trust.Check{Roots: ca.Roots(), TrustDomain: "example.org", Now: noon()}.Verify([]*x509.Certificate{leaf})
		if err != nil {
			if f := fault.From(err); f.Code == fault.CodeInternal || f.What == "" {
				t.Errorf("%q: an error without its code: %v", text, err)
			}
			return
		}
		if who.URI() != text || who.TrustDomain != "example.org" {
			t.Errorf("%q is taken for %q", text, who.URI())
		}
	})
}

// FuzzVerify gives arbitrary certificates as a chain: none of them is anybody.
func FuzzVerify(f *testing.F) {
	ca, other := authority(f, "example.org"), authority(f, "example.org")
	f.Add(trust.EncodeCertificate(issue(f, other, anAgent(f)).Raw))
	f.Add(append(trust.EncodeCertificate(issue(f, other, anAgent(f)).Raw), ca.CertificatePEM()...))
	f.Add(ca.CertificatePEM())
	f.Fuzz(func(t *testing.T, data []byte) {
		var chain []*x509.Certificate
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				chain = append(chain, c)
			}
		}
		who, err := trust.Check{Roots: ca.Roots(), Now: noon()}.Verify(chain)
		if err == nil {
			t.Fatalf("%s was not issued", who)
		}
		if f := fault.From(err); f.Code == fault.CodeInternal || f.What == "" || strings.ContainsAny(f.What, "\r\n") {
			t.Errorf("an error without its code: %v", err)
		}
	})
}
