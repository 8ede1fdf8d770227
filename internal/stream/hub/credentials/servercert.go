// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ServerCertificate holds the hub's own certificate and makes a new one in half-time. Each
// certificate has a TLS configuration of its own, and with it its own keys for
// session tickets: no resumed handshake vouches for a certificate that the hub
// does not show any more.
type ServerCertificate struct {
	renew func(now time.Time) (*tls.Certificate, error)
	clock func() time.Time

	mu    sync.Mutex
	cert  *tls.Certificate
	leaf  *x509.Certificate
	front *tls.Config
}

func (s *ServerCertificate) Get(now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(now)
}

func (s *ServerCertificate) getLocked(now time.Time) (*tls.Certificate, error) {
	if s.cert == nil || now.After(s.leaf.NotBefore.Add(s.leaf.NotAfter.Sub(s.leaf.NotBefore)/2)) ||
		now.Before(s.leaf.NotBefore) {
		cert, err := s.renew(now)
		if err != nil {
			return nil, err
		}
		s.cert, s.leaf, s.front = cert, cert.Leaf, frontTLS(*cert, s.clock)
	}
	return s.cert, nil
}

// Config is the TLS of the main port.
func (s *ServerCertificate) Config(now time.Time) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.getLocked(now)
	return s.front, err
}

// frontTLS asks every peer for a certificate and lets the code behind judge it,
// so that a refusal can be answered with its reason. Possession of the key is
// proved by the handshake all the same. That judgement looks at the state of the
// connection, in which a resumed handshake has the certificate of the first one:
// so a ticket gives nobody more than showing the certificate again would.
func frontTLS(cert tls.Certificate, clock func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{trust.ALPNSession, trust.ALPNJoin, trust.ALPNRelay, "http/1.1"},
		ClientAuth:                  tls.RequestClientCert,
		Certificates:                []tls.Certificate{cert},
		Time:                        clock, // a ticket with a certificate that has run out is not taken
		DynamicRecordSizingDisabled: true,
	}
}

// NewServerCertificate issues certificates for the hub itself; the key stays in memory
// and the CA is sent along for agents that know only its pin.
func NewServerCertificate(ca *trust.Authority, name string, hosts []string, clock func() time.Time) *ServerCertificate {
	return &ServerCertificate{clock: clock, renew: func(now time.Time) (*tls.Certificate, error) {
		key, err := trust.NewKey()
		if err != nil {
			return nil, err
		}
		leaf, err := ca.Issue(trust.Request{
			Identity: id.Identity{Role: id.RoleHub, Name: name}, Key: key.Public(), Life: limit.HubCertificate, Hosts: hosts,
		}, now)
		if err != nil {
			return nil, err
		}
		return &tls.Certificate{Certificate: [][]byte{leaf.Raw, ca.Certificate().Raw}, PrivateKey: key, Leaf: leaf}, nil
	}}
}
