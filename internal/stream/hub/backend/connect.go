// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Connect opens a connection to target, host:port, by HTTP CONNECT (RFC 9110 section 9.3.6) over TLS 1.2 or newer.
// Every error is a fault: what a proxy of ours says of the target, dial_timeout, or backend_unreachable.
func (p Proxy) Connect(ctx context.Context, by *net.Dialer, target string) (net.Conn, error) {
	via := &url.URL{Scheme: "http", Host: p.Address} // TLS is in Dial: the file of the CA is the proxy's own
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, by) }
	d := proxy.Dialer{Dial: dial, Choose: func(*url.URL) (*url.URL, error) { return via, nil }, Shown: wire.Clean}
	conn, err := d.Through(ctx, nil, target)
	if err != nil {
		return nil, p.failed(ctx, target, err)
	}
	return conn, nil
}

// Check does the TLS handshake and nothing else.
func (p Proxy) Check(ctx context.Context, by *net.Dialer) error {
	conn, err := p.dial(ctx, by)
	if err != nil {
		return p.away(err)
	}
	return conn.Close()
}

func (p Proxy) dial(ctx context.Context, by *net.Dialer) (net.Conn, error) {
	cfg, err := p.tls()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
	defer cancel()
	raw, err := by.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(splice.Below(raw), cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// tls reads the files once more: they may have been renewed.
func (p Proxy) tls() (*tls.Config, error) {
	pem, err := private.ReadPublic(p.CA, limit.PrivateFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.ServerName, RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fault.Newf(fault.CodeConfig, "%s has no certificate", p.CA)
	}
	if p.Certificate != "" {
		pair, err := private.Pair(p.Certificate, p.Key)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// failed is the fault of a CONNECT. Only a proxy of ours says what became of the dial behind it.
func (p Proxy) failed(ctx context.Context, target string, err error) error {
	var r *proxy.Refusal
	told := fault.Code("")
	if errors.As(err, &r) {
		told = fault.Code(r.Fault)
	}
	end := run.Ended(ctx)
	switch {
	case errors.Is(end, context.Canceled):
		return fault.New(fault.CodeDialCanceled, "the caller gave up")
	case end != nil:
		return fault.New(fault.CodeDialTimeout, "the dial did not end in time").
			Whyf("backend %s, %s, gave no answer about %s", p.Name, p.Address, target).
			Hint("check that the target is up, and that the VPN behind the proxy carries packets")
	case aboutTarget(told):
		return fault.Newf(told, "%s, says backend %s", r.Why, p.Name)
	}
	return p.away(err)
}

// aboutTarget reports whether a code of a proxy is about the target, and not about the proxy.
func aboutTarget(c fault.Code) bool {
	switch c {
	case fault.CodeDialRefused, fault.CodeDialTimeout, fault.CodeDialDNS, fault.CodeDialUnreachable,
		fault.CodePolicyDenied:
		return true
	}
	return false
}

func (p Proxy) away(err error) error {
	return fault.Newf(fault.CodeBackendAway, "backend %s, %s, does not carry the dial", p.Name, p.Address).Because(err).
		Hint("look at the proxy's log; 'tombolo cluster backend CLUSTER agents' moves a cluster to its agents")
}
