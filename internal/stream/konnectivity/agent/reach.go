// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"

	"golang.org/x/net/http/httpproxy"
	"google.golang.org/grpc"
	grpckeepalive "google.golang.org/grpc/keepalive"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// reach connects to a server and has it say which it is. TLS agrees on what follows: a session with a server of ours,
// otherwise gRPC, on the same connection, for behind a load balancer the next one may lead elsewhere.
func (a *Agent) reach(ctx context.Context, at place) (u *konnectivity.Upstream, closer func(), err error) {
	token, err := a.token()
	if err != nil {
		return nil, nil, err
	}
	o := konnectivity.UpstreamOptions{Log: a.Log, Observe: observer{a}, AgentID: a.AgentID, Identifiers: a.Identifiers,
		Token: token, Splicer: a.splicer, Budget: a.unread}
	conn, err := a.shake(ctx, at)
	if err != nil {
		return nil, nil, fault.New(fault.CodeHubAway, "the konnectivity server cannot be reached").Because(err).
			Hint("compare --proxy-server-host, --proxy-server-port and the certificates with the server's")
	}
	closer = func() { conn.NetConn().Close() }
	if conn.ConnectionState().NegotiatedProtocol == konnectivity.ALPN {
		u, err = konnectivity.ConnectNative(ctx, conn, o)
	} else {
		var cc *grpc.ClientConn
		if cc, err = a.client(conn, at); err == nil {
			closer = func() { cc.Close(); conn.NetConn().Close() }
			u, err = konnectivity.Connect(ctx, cc, o)
		}
	}
	if err != nil {
		closer()
		return nil, nil, err
	}
	return u, closer, nil
}

// shake makes a connection with TLS.
func (a *Agent) shake(ctx context.Context, at place) (*tls.Conn, error) {
	secure, err := a.files.Client()
	if err != nil {
		return nil, err
	}
	secure.ServerName = at.name
	secure.NextProtos = append([]string(nil), a.ALPN...)
	if a.Native {
		secure.NextProtos = append(secure.NextProtos, konnectivity.ALPN)
	}
	secure.NextProtos = append(secure.NextProtos, "h2")
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
	defer cancel()
	raw, err := a.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	defer run.OnDone(ctx, func() { raw.Close() })()
	conn := tls.Client(carrier.Wrap(raw), secure)
	err = conn.Handshake()
	if err == nil && conn.ConnectionState().NegotiatedProtocol == "" {
		err = errors.New("it has not agreed on a protocol in TLS (ALPN), h2 for example")
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// connect makes a TCP connection, through the proxy that the environment names for the server (HTTPS_PROXY, NO_PROXY).
func (a *Agent) connect(ctx context.Context, at place) (net.Conn, error) {
	_, port, err := net.SplitHostPort(at.address)
	if err != nil {
		return nil, err
	}
	by := proxy.Dialer{Dial: carrier.Dialer().DialContext, Choose: httpproxy.FromEnvironment().ProxyFunc(),
		Shown: func(text string) string { return untrusted.Text(text, limit.FaultText) }}
	return by.Through(ctx, &url.URL{Scheme: "https", Host: net.JoinHostPort(at.name, port)}, at.address)
}

// client is gRPC's on a connection, and on no other: whoever has lost it begins anew.
func (a *Agent) client(conn *tls.Conn, at place) (*grpc.ClientConn, error) {
	keepalive := a.Keepalive
	if !a.keepaliveGiven() {
		keepalive = keepaliveDefault
	}
	var used atomic.Bool
	cc, err := grpc.NewClient("passthrough:///"+at.address, append(konnectivity.Link(),
		grpc.WithTransportCredentials(konnectivity.Made(conn)), grpc.WithAuthority(at.name),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, net.ErrClosed
			}
			return conn, nil
		}),
		grpc.WithKeepaliveParams(grpckeepalive.ClientParameters{Time: keepalive, Timeout: keepaliveTimeout,
			PermitWithoutStream: true}),
		grpc.WithMaxHeaderListSize(limit.RequestHeader), grpc.WithDisableServiceConfig(), grpc.WithNoProxy())...)
	if err != nil {
		return nil, fmt.Errorf("a client of the server: %w", err)
	}
	return cc, nil
}
