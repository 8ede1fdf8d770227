// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// dial makes a TCP connection to a hub, through a proxy if there is one for it, with
// the mesh's mark on the socket.
func (a *Attach) dial(ctx context.Context, address string) (net.Conn, error) {
	d := carrier.Dialer()
	if a.cfg.Mark != 0 {
		d.Resolver = socket.Resolver(a.cfg.Mark)
	}
	usual := d.Control
	d.Control = func(network, to string, c syscall.RawConn) error {
		a.control(network, to, c)
		return usual(network, to, c)
	}
	through := proxy.Dialer{Dial: d.DialContext, Choose: a.cfg.Proxy, Shown: strconv.QuoteToASCII}
	conn, err := through.Through(ctx, &url.URL{Scheme: "https", Host: address}, address)
	var refused *proxy.Refusal
	if errors.As(err, &refused) {
		return nil, fault.Newf(fault.CodeHubAway, "the proxy does not lead to the hub %s", address).Whyf("%s", refused.Why).
			Hint("correct mesh.proxy or mesh.proxyFile in the configuration, or HTTPS_PROXY")
	}
	return conn, err
}

// dialRelay is dial for a relay, which writes many packets at once.
func (a *Attach) dialRelay(ctx context.Context, address string) (net.Conn, error) {
	conn, err := a.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return carrier.Wrap(conn), nil
}

// Measure gives what measures how long a connection to a hub takes to come about, by the
// proxy if there is one.
func (a *Attach) Measure(address string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		conn, err := a.dial(ctx, address)
		if err != nil {
			return 0, err
		}
		return time.Since(began), conn.Close()
	}
}

// control marks a socket. Where that is not permitted the connection is made all the
// same: it is lost only if a range of a peer contains the hub, which topology refuses.
func (a *Attach) control(network, to string, c syscall.RawConn) {
	mark := a.o.Control
	if mark == nil {
		mark = func(_, _ string, c syscall.RawConn) error { return socket.Mark(c, a.cfg.Mark) }
		if a.cfg.Mark == 0 {
			return
		}
	}
	err := mark(network, to, c)
	if err == nil {
		return
	}
	f := fault.New(fault.CodeUnsupported, "connections to hubs bear no mark").Because(err).Hint("it takes CAP_NET_ADMIN")
	a.unmarked.Do(func() {
		a.log.Warn("connections to hubs bear no mark", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mark = f
}
