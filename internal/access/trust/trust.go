// SPDX-License-Identifier: Apache-2.0

// Package trust makes and checks proof of identity: the hub's CA, the
// certificates it issues, join tokens and the line that carries one. An
// identity comes from a verified certificate only. It does not listen, dial or
// decide what an identity may do.
package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ALPN protocol names (RFC 7301) on the hub's port.
const (
	ALPNSession = "tombolo-session/1" // an agent's session
	ALPNJoin    = "tombolo-join/1"    // enrolment and renewal
	ALPNRelay   = "tombolo-relay/1"   // packets between nodes of a cluster's mesh
)

// Authority is a CA with its key.
type Authority struct {
	cert        *x509.Certificate
	key         crypto.Signer
	trustDomain string
}

// NewKey makes a P-256 key, which every certificate here uses.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// NewAuthority makes a self-signed CA for a trust domain.
func NewAuthority(trustDomain string, now time.Time) (*Authority, error) {
	if err := id.CheckTrustDomain(trustDomain); err != nil {
		return nil, fault.New(fault.CodeConfig, "make the CA").Because(err)
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Tombolo CA " + trustDomain},
		NotBefore:    now.Add(-limit.ClockTolerance), NotAfter: now.Add(limit.Authority),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:     []*url.URL{{Scheme: "spiffe", Host: trustDomain}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, key, trustDomain}, nil
}

// ParseAuthority reads a CA from the PEM of its certificate and PKCS #8 key.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	cert := certs[0]
	if !cert.IsCA || len(cert.URIs) != 1 || !samePublicKey(cert.PublicKey, key.Public()) {
		return nil, fault.New(fault.CodeStateCorrupt, "the stored CA is unusable").
			Whyf("certificate and key do not belong together")
	}
	if err := cert.CheckSignatureFrom(cert); err != nil {
		return nil, fault.New(fault.CodeStateCorrupt, "the stored CA is unusable").Because(err)
	}
	return &Authority{cert, key, cert.URIs[0].Host}, nil
}

// TrustDomain is the SPIFFE trust domain that the CA serves.
func (a *Authority) TrustDomain() string { return a.trustDomain }

// Certificate is the CA's certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// CertificatePEM is the CA's certificate as PEM, for distribution.
func (a *Authority) CertificatePEM() []byte { return EncodeCertificate(a.cert.Raw) }

// KeyPEM is the CA's key as PKCS #8 PEM, which may be written only to the hub's state.
func (a *Authority) KeyPEM() ([]byte, error) { return EncodeKey(a.key) }

// Roots is a pool with only the CA.
func (a *Authority) Roots() *x509.CertPool { return RootsOf(a.cert) }

// RootsOf makes a pool of the given CA certificates.
func RootsOf(certs ...*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// Pin identifies a CA: the unpadded URL-safe base64 of the SHA-256 of its SubjectPublicKeyInfo.
func Pin(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Request asks for a certificate.
type Request struct {
	Identity id.Identity // its trust domain is set by the authority
	Key      crypto.PublicKey
	Life     time.Duration
	Hosts    []string // DNS names and addresses, for a party that is dialled
}

// Issue signs a certificate for both ends of TLS and returns it parsed.
func (a *Authority) Issue(r Request, now time.Time) (*x509.Certificate, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	r.Identity.TrustDomain = a.trustDomain
	if same, err := id.ParseURI(r.Identity.URI()); err != nil || same != r.Identity {
		return nil, fault.Newf(fault.CodeInternal, "%q is no identity to certify", r.Identity.URI())
	}
	uri, err := url.Parse(r.Identity.URI())
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonNameOf(r.Identity)},
		NotBefore:    now.Add(-limit.ClockTolerance), NotAfter: earlier(now.Add(r.Life), a.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
	}
	if usage := usageOf(r.Identity.Role); usage == x509.ExtKeyUsageServerAuth {
		template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
		for _, h := range r.Hosts {
			if ip, err := netip.ParseAddr(h); err == nil {
				template.IPAddresses = append(template.IPAddresses, net.IP(ip.Unmap().AsSlice()))
			} else {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, r.Key, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// commonName is the longest common name (RFC 5280 appendix A.1, ub-common-name); the
// identity is in the URI.
const commonName = 64

// commonNameOf is the name of a party, behind its cluster's for a VPN server.
func commonNameOf(who id.Identity) string {
	name := who.Name
	if who.Role == id.RoleVPNServer {
		name = id.VPNServerPrefix(who.Cluster.String()) + name
	}
	return name[:min(len(name), commonName)]
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// checkKey accepts only P-256: one kind of key, cheap to verify.
func checkKey(key crypto.PublicKey) error {
	if k, ok := key.(*ecdsa.PublicKey); ok && k.Curve == elliptic.P256() {
		return nil
	}
	return fault.New(fault.CodeCertInvalid, "the request's key cannot be certified").Whyf("a P-256 ECDSA key is expected")
}

func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// newSerial makes 127 random bits (RFC 5280 section 4.1.2.2 allows up to 20 octets).
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// Serial renders a certificate's serial number as the hub's lists show it.
func Serial(c *x509.Certificate) string { return hex.EncodeToString(c.SerialNumber.Bytes()) }

// KeyHash identifies a public key: the hex SHA-256 of its SubjectPublicKeyInfo.
func KeyHash(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// EncodeCertificate wraps DER in PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// EncodeKey renders a key as PKCS #8 PEM.
func EncodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseCertificates reads one or more certificates and nothing else.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(bytes.TrimSpace(data)) > 0 {
		block, rest := pem.Decode(data)
		// The library skips a damaged block, and the next one would take its place.
		passed := bytes.TrimSpace(data[:len(data)-len(rest)])
		if block == nil || block.Type != "CERTIFICATE" || bytes.LastIndex(passed, []byte("-----BEGIN")) != 0 {
			return nil, fault.New(fault.CodeCertInvalid, "read a certificate").Whyf("the text is not only PEM certificates")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fault.New(fault.CodeCertInvalid, "read a certificate").Because(err)
		}
		out, data = append(out, c), rest
	}
	if len(out) == 0 {
		return nil, fault.New(fault.CodeCertInvalid, "read a certificate").Whyf("the text is empty")
	}
	return out, nil
}

// ParseKey reads a PKCS #8 key. Its errors never show any of the input.
func ParseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fault.New(fault.CodeCertInvalid, "read a private key").Whyf("the text is not a PEM private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fault.New(fault.CodeCertInvalid, "read a private key").Whyf("the content is damaged")
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fault.New(fault.CodeCertInvalid, "read a private key").Whyf("the key cannot sign")
	}
	return signer, nil
}

// NewCSR makes a certificate request that proves the key.
func NewCSR(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ParseCSR checks a request's signature and returns its key. Names in it are ignored:
// the identity comes from the token or the old certificate.
func ParseCSR(data []byte) (crypto.PublicKey, error) {
	bad := fault.New(fault.CodeRequest, "read the certificate request")
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, bad.Whyf("the text is not a PEM certificate request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, bad.Because(err)
	}
	// The key first: verifying a signature of a huge key is expensive.
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, bad.Because(err)
	}
	return csr.PublicKey, nil
}

// errNoCertificate is a variable for the tests of Verify.
var errNoCertificate = errors.New("the peer sent no certificate")
