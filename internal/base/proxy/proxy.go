// SPDX-License-Identifier: Apache-2.0

// Package proxy makes connections through an HTTP proxy with CONNECT. It does not decide
// which proxy to use for which address.
package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Dial makes a TCP connection.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Choose returns the proxy for a URL, nil for none, like http.ProxyFromEnvironment.
type Choose = func(to *url.URL) (*url.URL, error)

// Refusal is a failure of a proxy. Its text contains neither the proxy's user nor its password.
type Refusal struct {
	Why string
	// Fault is the code that a proxy of ours gives in Tombolo-Fault; empty: none, or it is no answer to CONNECT.
	Fault string
}

func (r *Refusal) Error() string { return r.Why }

// Dialer makes connections, through a proxy if there is one.
type Dialer struct {
	Dial   Dial
	Choose Choose              // nil: no proxy
	Shown  func(string) string // makes a text of the proxy safe to show
}

// Through dials address; the URL to decides which proxy is used.
func (d Dialer) Through(ctx context.Context, to *url.URL, address string) (net.Conn, error) {
	var via *url.URL
	if d.Choose != nil {
		var err error
		if via, err = d.Choose(to); err != nil {
			return nil, &Refusal{Why: "it cannot be chosen: see HTTPS_PROXY and HTTP_PROXY in the environment"}
		}
	}
	if via == nil {
		return d.Dial(ctx, "tcp", address)
	}
	conn, err := d.Dial(ctx, "tcp", net.JoinHostPort(via.Hostname(), portOf(via)))
	if err != nil {
		return nil, err
	}
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
	}
	stop := run.OnDone(ctx, func() { conn.Close() })
	defer stop()
	through, err := d.connect(conn, via.User, address)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return through, nil
}

func portOf(via *url.URL) string {
	switch {
	case via.Port() != "":
		return via.Port()
	case via.Scheme == "https":
		return "443"
	}
	return "80"
}

// connect asks a proxy for a tunnel (RFC 9110 section 9.3.6).
func (d Dialer) connect(conn net.Conn, user *url.Userinfo, address string) (net.Conn, error) {
	header := http.Header{"User-Agent": {"tombolo"}}
	if user != nil {
		password, _ := user.Password()
		header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header}
	if err := ask.Write(conn); err != nil {
		return nil, &Refusal{Why: "it accepted no request"}
	}
	head := &io.LimitedReader{R: conn, N: proxyHead}
	r := bufio.NewReader(head)
	answer, err := http.ReadResponse(r, ask)
	if err != nil {
		return nil, &Refusal{Why: "its answer to CONNECT cannot be read"}
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, &Refusal{
			Why:   fmt.Sprintf("it answers CONNECT %s with %s", address, d.Shown(answer.Status)),
			Fault: answer.Header.Get("Tombolo-Fault"),
		}
	}
	head.N = 1 << 62 // the bound was for the head
	if r.Buffered() > 0 {
		return &tunnel{Conn: conn, r: r}, nil
	}
	return conn, nil
}

// tunnel first returns what was read beyond the proxy's answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// CloseWrite ends our direction.
func (t *tunnel) CloseWrite() error {
	if h, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return t.Conn.Close()
}

// NetConn is the connection under TLS, as of tls.Conn.
func (t *tunnel) NetConn() net.Conn {
	if c, ok := t.Conn.(*tls.Conn); ok {
		return c.NetConn()
	}
	return t.Conn
}
