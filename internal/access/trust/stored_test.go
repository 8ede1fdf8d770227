// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func TestAnAuthorityIsTheSameAfterStorage(t *testing.T) {
	a := authority(t, "example.org")
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	b, err := trust.ParseAuthority(a.CertificatePEM(), key)
	if err != nil || b.TrustDomain() != "example.org" || trust.Pin(b.Certificate()) != trust.Pin(a.Certificate()) {
		t.Fatalf("%v", err)
	}
	leaf := issue(t, b, anAgent(t))
	if _, err := (trust.Check{Roots: a.Roots(), Now: noon()}).Verify([]*x509.Certificate{leaf}); err != nil {
		t.Errorf("what the second issued, the first does not know: %v", err)
	}
	if _, err := trust.NewAuthority("Not A Domain", noon()); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("a bad trust domain: %v", err)
	}
}

func TestDamagedAuthoritiesAreRefused(t *testing.T) {
	a, other := authority(t, "example.org"), authority(t, "example.org")
	key, err1 := a.KeyPEM()
	otherKey, err2 := other.KeyPEM()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	longer := bytes.Clone(a.Certificate().Raw) // a life that the CA did not sign
	end := a.Certificate().NotAfter
	if n := bytes.Count(longer, []byte(end.Format("060102"))); n != 1 {
		t.Fatalf("the end of the CA's life is found %d times", n)
	}
	longer = bytes.Replace(longer, []byte(end.Format("060102")), []byte(end.AddDate(10, 0, 0).Format("060102")), 1)
	for name, c := range map[string]struct{ cert, key []byte }{
		"no certificate":              {nil, key},
		"no key":                      {a.CertificatePEM(), nil},
		"certificate and key swapped": {key, a.CertificatePEM()},
		"the key of another":          {a.CertificatePEM(), otherKey},
		"a leaf":                      {trust.EncodeCertificate(issue(t, a, anAgent(t)).Raw), key},
		"a certificate that was cut":  {a.CertificatePEM()[:200], key},
		"a key that was cut":          {a.CertificatePEM(), key[:len(key)/2]},
		"a certificate that was changed after it was signed": {trust.EncodeCertificate(longer), key},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := trust.ParseAuthority(c.cert, c.key); !fault.Has(err, fault.CodeCertInvalid) && !fault.Has(err, fault.CodeStateCorrupt) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestStoredKeysAndCertificates(t *testing.T) {
	key := newKey(t)
	text, err := trust.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trust.ParseKey(text); err != nil || !key.PublicKey.Equal(got.Public()) {
		t.Errorf("%v", err)
	}
	if _, err := trust.EncodeKey("no key"); err == nil {
		t.Error("no key was encoded")
	}
	exchange, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(exchange)
	if err != nil {
		t.Fatal(err)
	}
	secret := "c2VjcmV0c2VjcmV0"
	for name, data := range map[string][]byte{
		"nothing":              nil,
		"text":                 []byte(secret),
		"another kind of PEM":  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("secretsecret")}),
		"damaged content":      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secretsecret")}),
		"a key for no signing": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		t.Run("a key that is "+name, func(t *testing.T) {
			_, err := trust.ParseKey(data)
			if !fault.Has(err, fault.CodeCertInvalid) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "secretsecret") {
				t.Errorf("%v", err)
			}
		})
	}

	a := authority(t, "example.org")
	two := append(a.CertificatePEM(), authority(t, "b.org").CertificatePEM()...)
	if got, err := trust.ParseCertificates(append(two, "\n \n"...)); err != nil || len(got) != 2 {
		t.Errorf("two certificates: %d, %v", len(got), err)
	}
	for name, data := range map[string][]byte{
		"nothing":                nil,
		"white space":            []byte(" \n"),
		"text":                   []byte("hello"),
		"a key":                  text,
		"one with text after it": append(a.CertificatePEM(), "hello"...),
		"damaged content":        trust.EncodeCertificate([]byte("x")),
	} {
		t.Run("certificates that are "+name, func(t *testing.T) {
			if _, err := trust.ParseCertificates(data); !fault.Has(err, fault.CodeCertInvalid) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestPins(t *testing.T) {
	a, b := authority(t, "example.org"), authority(t, "example.org")
	pin := trust.Pin(a.Certificate())
	if len(pin) != 43 || pin == trust.Pin(b.Certificate()) {
		t.Errorf("pins %s and %s", pin, trust.Pin(b.Certificate()))
	}
	hub := issue(t, a, id.Identity{Role: id.RoleHub, Name: "h"})
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		pin   string
		ok    bool
	}{
		"the CA behind the leaf":  {[]*x509.Certificate{hub, a.Certificate()}, pin, true},
		"the CA among others":     {[]*x509.Certificate{hub, b.Certificate(), a.Certificate()}, pin, true},
		"another CA":              {[]*x509.Certificate{hub, b.Certificate()}, pin, false},
		"no CA":                   {[]*x509.Certificate{hub}, pin, false},
		"the pin of a leaf":       {[]*x509.Certificate{hub, a.Certificate()}, trust.Pin(hub), false},
		"no certificates, no pin": {nil, "", false},
		"no pin":                  {[]*x509.Certificate{hub, a.Certificate()}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			ca, err := trust.PinnedCA(c.chain, c.pin)
			if c.ok && (err != nil || !ca.Equal(a.Certificate())) || !c.ok && !fault.Has(err, fault.CodeCAMismatch) {
				t.Errorf("%v", err)
			}
		})
	}
	if later := noon().Add(time.Hour); !a.Certificate().NotAfter.After(later) {
		t.Error("the CA lives too short")
	}
}
