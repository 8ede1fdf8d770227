// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Check says what a peer's certificate must satisfy.
type Check struct {
	Roots       *x509.CertPool
	TrustDomain string // empty: any in the roots' certificates
	Now         time.Time
	Grace       time.Duration // how long an expired certificate is still accepted
	Revoked     func(serial string) bool
}

// Verify returns the identity of the peer from the certificates of a finished TLS
// handshake, in which the peer has proved its key. Every error is a fault.
func (c Check) Verify(chain []*x509.Certificate) (id.Identity, error) {
	if len(chain) == 0 {
		return id.Identity{}, fault.New(fault.CodeCertInvalid, "the peer cannot be identified").Because(errNoCertificate)
	}
	leaf, at := chain[0], c.Now
	if at.After(leaf.NotAfter) && !at.After(leaf.NotAfter.Add(c.Grace)) {
		at = leaf.NotAfter
	}
	between := x509.NewCertPool()
	for _, extra := range chain[1:] {
		between.AddCert(extra)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: c.Roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return id.Identity{}, c.explain(leaf, err)
	}
	who, err := nameOf(leaf)
	if err != nil {
		return id.Identity{}, err
	}
	if c.TrustDomain != "" && who.TrustDomain != c.TrustDomain {
		return id.Identity{}, fault.New(fault.CodeCertInvalid, "the peer cannot be identified").
			Whyf("its trust domain is %s, not %s", who.TrustDomain, c.TrustDomain)
	}
	if want := usageOf(who.Role); !hasUsage(leaf, want) {
		return id.Identity{}, fault.New(fault.CodeCertInvalid, "the peer cannot be identified").
			Whyf("its certificate is not meant for its role")
	}
	if c.Revoked != nil && c.Revoked(Serial(leaf)) {
		return id.Identity{}, fault.Newf(fault.CodeCertRevoked, "the certificate of %s was revoked", who).
			Hint("issue a new one; 'tombolo certificate list' shows what is valid")
	}
	return who, nil
}

func usageOf(r id.Role) x509.ExtKeyUsage {
	if r == id.RoleHub || r == id.RoleDiscovery || r == id.RoleVPNServer {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

func hasUsage(c *x509.Certificate, want x509.ExtKeyUsage) bool {
	for _, u := range c.ExtKeyUsage {
		if u == want {
			return true
		}
	}
	return false
}

// explain turns the library's error into a fault. A certificate outside its validity is
// either expired or judged by a wrong clock.
func (c Check) explain(leaf *x509.Certificate, err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		if c.Now.Before(leaf.NotBefore) {
			return fault.New(fault.CodeClockSkew, "the peer's certificate is not valid yet by this machine's clock").
				Whyf("it is valid from %s, the time here is %s", leaf.NotBefore.UTC().Format(time.RFC3339), c.Now.UTC().
					Format(time.RFC3339)).
				Hint("compare the clocks of both machines ('date -u') and enable time synchronisation")
		}
		return fault.New(fault.CodeCertExpired, "the peer's certificate has expired").
			Whyf("it expired at %s, the time here is %s", leaf.NotAfter.UTC().Format(time.RFC3339), c.Now.UTC().
				Format(time.RFC3339)).
			Hint("if the clocks are right ('date -u'), join again with a new token: tombolo token create")
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fault.New(fault.CodeCAMismatch, "the peer's certificate was issued by another CA").
			Whyf("%v", err).
			Hint("check the address; if the hub was set up again, " +
				"remove identity.json from the state directory and join again")
	}
	return fault.New(fault.CodeCertInvalid, "the peer's certificate was refused").Because(err)
}

// HubClientConfig is the TLS configuration with which an agent dials a hub whose CA it
// knows. Host names do not matter: the certificate's identity must have the role of a
// hub. A resumed session is checked again, because VerifyConnection runs on resumption
// too.
func HubClientConfig(check func() Check, cert *tls.Certificate, alpn string) *tls.Config {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{alpn},
		InsecureSkipVerify: true, // replaced by VerifyConnection below
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := check().Verify(s.PeerCertificates)
			if err != nil {
				return err
			}
			if who.Role != id.RoleHub {
				return fault.New(fault.CodeCAMismatch, "the peer is not a hub").Whyf("it is %s", who)
			}
			return nil
		},
		DynamicRecordSizingDisabled: true,
	}
	if cert != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return cfg
}

// ServerName is the name in an address, host:port, which a client tells its hub: an edge in
// front of several routes by it. Empty: the address has none.
func ServerName(address string) string {
	host, _, err := net.SplitHostPort(address)
	if _, number := netip.ParseAddr(host); err != nil || number == nil {
		return ""
	}
	return host
}

// PinnedConfig is the TLS configuration of a first contact, when only the pin of the
// hub's CA is known: the hub sends its CA, which must match the pin.
func PinnedConfig(pin string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{ALPNJoin},
		InsecureSkipVerify: true, // replaced by VerifyConnection below
		VerifyConnection: func(s tls.ConnectionState) error {
			ca, err := PinnedCA(s.PeerCertificates, pin)
			if err != nil {
				return err
			}
			who, err := Check{Roots: RootsOf(ca), Now: now()}.Verify(s.PeerCertificates)
			if err == nil && who.Role != id.RoleHub {
				err = fault.New(fault.CodeCAMismatch, "the peer is not a hub").Whyf("it is %s", who)
			}
			return err
		},
	}
}

// PinnedCA finds the CA that matches the pin in a hub's certificate chain.
func PinnedCA(chain []*x509.Certificate, pin string) (*x509.Certificate, error) {
	for _, c := range chain {
		if c.IsCA && Pin(c) == pin {
			return c, nil
		}
	}
	return nil, fault.New(fault.CodeCAMismatch, "this is not the hub that made the join line").
		Whyf("no certificate that it sent matches the CA pin in the line").
		Hint("check the address, or make a new line on the right hub: tombolo token create")
}
