// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
)

// dialer makes connections; the tests have another one than net.Dialer.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dial reaches a service, through a proxy if there is one for it.
func (s Service) dial(ctx context.Context, dial dialer, to place, address string) (net.Conn, error) {
	var via *url.URL
	if s.Proxy != nil {
		u, err := url.Parse(to.String())
		if err == nil {
			via, err = s.Proxy(u)
		}
		if err != nil {
			return nil, proxyFault("it cannot be chosen: see HTTPS_PROXY and HTTP_PROXY in the environment")
		}
	}
	if via == nil {
		return dial(ctx, "tcp", address)
	}
	port := via.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[via.Scheme]
		if port == "" {
			port = "80"
		}
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
	}
	stop := run.OnDone(ctx, func() { conn.Close() })
	defer stop()
	through, err := connectThrough(conn, via.User, address)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return through, nil
}

// connectThrough asks a proxy for a tunnel (RFC 9110 section 9.3.6).
func connectThrough(conn net.Conn, user *url.Userinfo, address string) (net.Conn, error) {
	header := http.Header{"User-Agent": {"tombolo"}}
	if user != nil {
		password, _ := user.Password()
		header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header}
	if err := ask.Write(conn); err != nil {
		return nil, proxyFault("it took no request")
	}
	head := &io.LimitedReader{R: conn, N: limit.FinderProxyHead}
	r := bufio.NewReader(head)
	answer, err := http.ReadResponse(r, ask)
	if err != nil {
		return nil, proxyFault("its answer to CONNECT cannot be read")
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, proxyFault(fmt.Sprintf("it answers CONNECT %s with %s", address, shown(answer.Status)))
	}
	head.N = 1 << 62 // the bound was for the head
	if r.Buffered() > 0 {
		return &tunnel{Conn: conn, r: r}, nil
	}
	return conn, nil
}

// tunnel gives what was read beyond the proxy's answer first.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// proxyFault names neither the proxy's user nor its password.
func proxyFault(why string) *fault.Fault {
	return fault.New(fault.CodeServiceAway, "the proxy does not lead to the discovery service").Whyf("%s", why).
		Hint("correct the proxy of the service in the configuration, or HTTPS_PROXY")
}

// parseProxy reads the URL of a proxy. Its error shows none of it: there may be a
// password within.
func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("http://host:port or https://host:port is expected, with user:password@ before the host if need be")
	}
	return u, nil
}
