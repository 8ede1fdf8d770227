// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	tunnel "github.com/tombolo-io/tombolo/internal/base/proxy"
)

// Protocol is what a service speaks.
type Protocol string

// The protocols of a configuration.
const (
	ProtocolAuto   Protocol = "auto"
	ProtocolNative Protocol = "native"
	ProtocolSidero Protocol = "sidero" // the older one
)

// Service is a discovery service as the configuration names it, checked.
type Service struct {
	Name     string // unique; of its facts
	Protocol Protocol
	Roots    *x509.CertPool // nil: those of the system
	Pin      []byte         // SHA-256 of a public key in the chain; empty: none
	Proxy    func(*url.URL) (*url.URL, error)
	place    place
	given    v1alpha1.MeshService // as the configuration has it
	proxy    tunnel.Setting       // of Proxy
}

// equal reports whether two configurations have the same service, what its files hold
// included.
func (s Service) equal(o Service) bool {
	return s.given == o.given && s.place == o.place && s.proxy.Same(o.proxy) && (s.Roots == nil) == (o.Roots == nil) &&
		(s.Roots == nil || s.Roots.Equal(o.Roots))
}

// place is where a service is.
type place struct {
	secure  bool
	host    string
	address string // host:port
}

func (p place) String() string {
	return (&url.URL{Scheme: map[bool]string{true: "https", false: "http"}[p.secure], Host: p.address}).String()
}

// URL is where the service is.
func (s Service) URL() string { return s.place.String() }

// Address is where the service is as host:port.
func (s Service) Address() string { return s.place.address }

// parsePlace reads https://host[:port] or http://host[:port].
func parsePlace(text string) (place, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "" || u.Hostname() == "", u.Opaque != "":
		return place{}, errors.New("https://host or https://host:port is expected")
	case u.Scheme != "https" && u.Scheme != "http":
		return place{}, fmt.Errorf("the scheme %q is neither https nor http", shown(u.Scheme))
	case u.User != nil:
		return place{}, errors.New("a discovery service takes no user")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return place{}, errors.New("there is something after the host and port")
	}
	p := place{secure: u.Scheme == "https", host: u.Hostname()}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[p.secure]
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 || strings.Trim(port, "0123456789") != "" {
		return place{}, fmt.Errorf("%q is no port", shown(port))
	}
	p.address = net.JoinHostPort(p.host, port)
	return p, nil
}

// follow is where a service of the older protocol sends us: host:port, or a URL.
// It never leads from https to http, nor on for ever.
func follow(from place, endpoint string, hops int) (place, error) {
	refuse := func(why string) (place, error) {
		return place{}, fault.Newf(fault.CodeServiceAway, "the discovery service %s sends us elsewhere", from.address).
			Whyf("%s", why).Hint("see to that service, or name another one")
	}
	if hops >= mostRedirects {
		return refuse(fmt.Sprintf("more than %d times, at last to %q", mostRedirects, shown(endpoint)))
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = map[bool]string{true: "https://", false: "http://"}[from.secure] + endpoint
	}
	to, err := parsePlace(endpoint)
	switch {
	case err != nil:
		return refuse(fmt.Sprintf("%q cannot be followed: %v", shown(endpoint), err))
	case from.secure && !to.secure:
		return refuse(fmt.Sprintf("%q is not encrypted, and this connection is", shown(endpoint)))
	}
	return to, nil
}

// ping is how often a silent connection is tried: services of the older protocol
// count with max(10 s, lease/10) and may refuse more.
func ping(p Protocol) time.Duration {
	if p == ProtocolSidero {
		return max(shortestPing, limit.DiscoveryTTL/10)
	}
	return pingInterval
}

// options are how a connection to a place is made.
func (s Service) options(to place, dial dialer, ping time.Duration, connErrors *connErrors) []grpc.DialOption {
	secure := insecure.NewCredentials()
	if to.secure {
		secure = credentials.NewTLS(s.tls(to.host))
	}
	through := func(ctx context.Context, address string) (net.Conn, error) { return s.dial(ctx, dial, to, address) }
	return []grpc.DialOption{
		grpc.WithTransportCredentials(handshakes{secure, connErrors}),
		grpc.WithContextDialer(connErrors.dialer(through)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit.DiscoveryList)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: ping, Timeout: helloTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	}
}

// tls checks the service's certificate by the roots, or by a pin alone: a public
// key of the chain, that of the service itself or of the CA that signed for it.
func (s Service) tls(host string) *tls.Config {
	cfg := &tls.Config{ServerName: host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	if s.Roots == nil && len(s.Pin) == 0 {
		cfg.InsecureSkipVerify = true // VerifyConnection does it, and says what is missing
		cfg.VerifyConnection = func(c tls.ConnectionState) error { return bySystem(host, c.PeerCertificates) }
	}
	if len(s.Pin) > 0 {
		cfg.InsecureSkipVerify = true // VerifyConnection does it
		cfg.VerifyConnection = func(c tls.ConnectionState) error { return pinned(s.Pin, host, c.PeerCertificates) }
	}
	return cfg
}

// bySystem checks a chain by the CAs of the system, as crypto/tls does. Most services have a
// CA of their own.
func bySystem(host string, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the service shows no certificate")
	}
	o := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fault.New(fault.CodeCAMismatch, "no CA of the system has signed the service's certificate").
			Whyf("the pin of its own CA is missing: set it with --pin, or pin in sources.services " +
				"('tombolo discovery status' on its machine shows it)")
	}
	return err
}

func pinned(pin []byte, host string, chain []*x509.Certificate) error {
	refuse := func(why string) error {
		return fault.New(fault.CodeCAMismatch, "the discovery service is not the one that is pinned").Whyf("%s", why).
			Hint("compare the pin in the configuration with the service's certificate")
	}
	for i, cert := range chain {
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if subtle.ConstantTimeCompare(sum[:], pin) != 1 {
			continue
		}
		if i == 0 {
			return nil
		}
		o := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		o.Roots.AddCert(cert)
		for _, c := range chain[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := chain[0].Verify(o); err != nil {
			return refuse("the pinned CA did not sign for it: " + err.Error())
		}
		return nil
	}
	return refuse("no key of its chain has that hash")
}

// parsePin reads a pin as trust.Pin writes it.
func parsePin(text string) ([]byte, error) {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return nil, errors.New("a pin has 43 characters, as 'tombolo discovery status' shows it")
	}
	return sum, nil
}
