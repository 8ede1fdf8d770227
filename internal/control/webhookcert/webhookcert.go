// SPDX-License-Identifier: Apache-2.0

// Package webhookcert decides on the certificates of webhooks: a small CA of their own, and one certificate that all
// replicas share. It stores nothing and asks nobody: keys in, keys out.
package webhookcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// The entries of the Secret. ca.crt and ca.key have one block for each CA, the oldest first.
const (
	CACertificates = "ca.crt"
	CAKeys         = "ca.key"
	Certificate    = "tls.crt"
	Key            = "tls.key"
)

const (
	lives   = 4               // of a certificate in the life of a CA
	mostCAs = 8               // in a Secret
	early   = 5 * time.Minute // clocks differ
	most    = time.Hour       // of waiting until everybody knows a new CA
)

// Plan is what certificates should be like.
type Plan struct {
	Life  time.Duration // of a certificate
	Names []string      // of the Service, and others by which the API server knows it; IP addresses too
}

// overlap is how long a new CA is only trusted, before it signs.
func (p Plan) overlap() time.Duration { return min(most, p.Life/6) }

// Check is how often somebody has to look whether there is something to do.
func (p Plan) Check() time.Duration { return min(time.Minute, p.Life/12) }

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Renew returns the entries as they should be now, and why they are changed: "" if they are good. A Secret that cannot
// be read is made anew, like none.
func Renew(have map[string][]byte, p Plan, now time.Time) (map[string][]byte, string, error) {
	cas, err := read(have)
	why := ""
	if err != nil {
		cas, why = nil, "there were none"
		if len(have) > 0 {
			why = fmt.Sprintf("they could not be read: %v", err)
		}
	}
	before := len(cas)
	cas = slices.DeleteFunc(cas, func(a authority) bool { return !now.Before(a.cert.NotAfter) })
	if len(cas) < before {
		why = "a CA has expired"
	}
	if n := len(cas); n == 0 || now.After(renewal(cas[n-1].cert, 1, 2)) {
		fresh, err := newAuthority(p, now)
		if err != nil {
			return nil, "", err
		}
		if cas = append(cas, fresh); why == "" {
			why = "the CA ends soon: a new one is trusted from now on"
		}
	}
	signer := cas[0]
	for _, a := range cas { // the newest that everybody knows
		if !now.Before(a.cert.NotBefore.Add(early + p.overlap())) {
			signer = a
		}
	}
	leaf := leafProblem(have, signer, p, now)
	if leaf == "" && why == "" {
		return have, "", nil
	}
	out := map[string][]byte{Certificate: have[Certificate], Key: have[Key]}
	if leaf != "" {
		if why == "" {
			why = leaf
		}
		if out[Certificate], out[Key], err = sign(signer, p, now); err != nil {
			return nil, "", err
		}
	}
	return out, why, write(out, cas)
}

// renewal is the time after a part of a certificate's life.
func renewal(c *x509.Certificate, part, of time.Duration) time.Time {
	begin := c.NotBefore.Add(early)
	return begin.Add(c.NotAfter.Sub(begin) * part / of)
}

// leafProblem says why the certificate has to be another one.
func leafProblem(have map[string][]byte, signer authority, p Plan, now time.Time) string {
	pair, err := tls.X509KeyPair(have[Certificate], have[Key])
	if err != nil {
		return "there is no certificate"
	}
	switch leaf := pair.Leaf; {
	case leaf.CheckSignatureFrom(signer.cert) != nil:
		return "the CA is a new one"
	case !slices.Equal(namesOf(leaf), namesOf(p.subject())):
		return "the names are others"
	case now.After(renewal(leaf, 2, 3)):
		return "the certificate ends soon"
	}
	return ""
}

// subject is a certificate with the names alone.
func (p Plan) subject() *x509.Certificate {
	out := &x509.Certificate{Subject: pkix.Name{CommonName: p.Names[0]}}
	for _, name := range p.Names {
		if ip := net.ParseIP(name); ip != nil {
			out.IPAddresses = append(out.IPAddresses, ip)
		} else {
			out.DNSNames = append(out.DNSNames, name)
		}
	}
	return out
}

// namesOf are the names and addresses of a certificate.
func namesOf(c *x509.Certificate) []string {
	out := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

func read(have map[string][]byte) ([]authority, error) {
	certs, keys := blocks(have[CACertificates]), blocks(have[CAKeys])
	if len(certs) == 0 || len(certs) != len(keys) || len(certs) > mostCAs {
		return nil, fmt.Errorf("there are %d certificates and %d keys of CAs", len(certs), len(keys))
	}
	out := make([]authority, len(certs))
	for i := range certs {
		var err error
		if out[i].cert, err = x509.ParseCertificate(certs[i]); err != nil {
			return nil, err
		}
		if out[i].key, err = x509.ParseECPrivateKey(keys[i]); err != nil {
			return nil, err
		}
		if !out[i].key.PublicKey.Equal(out[i].cert.PublicKey) {
			return nil, errors.New("a key is not that of its certificate")
		}
	}
	return out, nil
}

func blocks(text []byte) (out [][]byte) {
	for len(out) <= mostCAs {
		block, rest := pem.Decode(text)
		if block == nil {
			return out
		}
		out, text = append(out, block.Bytes), rest
	}
	return out
}

func write(into map[string][]byte, cas []authority) error {
	var certs, keys bytes.Buffer
	for _, a := range cas {
		der, err := x509.MarshalECPrivateKey(a.key)
		if err != nil {
			return err
		}
		certs.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
		keys.Write(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	}
	into[CACertificates], into[CAKeys] = certs.Bytes(), keys.Bytes()
	return nil
}

func newAuthority(p Plan, now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return authority{}, err
	}
	// Each has a name of its own: a verifier finds the right one of several by it.
	form := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("tombolo webhooks %x", serial)},
		NotBefore: now.Add(-early), NotAfter: now.Add(lives * p.Life),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

func sign(by authority, p Plan, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	end := now.Add(p.Life)
	if end.After(by.cert.NotAfter) {
		end = by.cert.NotAfter
	}
	form := p.subject()
	form.SerialNumber, form.NotBefore, form.NotAfter = serial, now.Add(-early), end
	form.KeyUsage, form.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, form, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), nil
}
