// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/internal/request"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Dialer dials one network. It is safe for concurrent use.
type Dialer struct {
	selector *Selector
	network  string
	way      *way
	connect  *client.Dialer // of protocolConnect
}

// Dialer gives the dialer of a network, in upper or lower case: cluster, controlplane (or master), or etcd. A network
// that the file does not name is dialled directly, as kube-apiserver does. The error for any other name has the cause
// ErrUnknownNetwork.
func (s *Selector) Dialer(network string) (*Dialer, error) {
	name := networkOf(network)
	if name == "" {
		return nil, &client.Error{Code: string(fault.CodeUsage), Err: ErrUnknownNetwork,
			Reason: fmt.Sprintf("Unknown network %q: known are cluster, controlplane (or master) and etcd",
				untrusted.Text(network, nameShown))}
	}
	d := &Dialer{selector: s, network: name, way: s.ways[name]}
	if d.way == nil {
		d.way = &way{route: route{protocol: protocolDirect}}
	}
	if d.way.protocol == protocolConnect {
		d.connect = &client.Dialer{Metadata: s.Metadata, Header: s.Header, Trace: s.Trace, Timeout: s.Timeout}
		if d.way.transport == transportUDS {
			d.connect.Socket = d.way.address
		} else {
			d.connect.Hub, d.connect.TLS = d.way.address, d.way.config
		}
	}
	return d, nil
}

// DialContext opens a connection to address, host:port; network is tcp. The context bounds only the dial, which returns
// as soon as it ends; the far side is told then. Errors are *client.Error, and those of package net of a direct dial.
//
// The connection has deadlines. By HTTPConnect it has CloseWrite, GRPC knows no end of one direction. A reader that
// stands still does not affect other connections: each has one of its own to the proxy.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	done := func(Stage, error) {}
	if d.selector.Observe != nil {
		ctx, done = d.selector.Observe(ctx, Dial{d.network, d.way.protocol, cmp.Or(d.way.transport, transportTCP), address})
	}
	conn, stage, err := d.dial(ctx, network, address)
	done(stage, err)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) dial(ctx context.Context, network, address string) (net.Conn, Stage, error) {
	switch d.way.protocol {
	case protocolDirect:
		conn, err := (&net.Dialer{Timeout: cmp.Or(d.selector.Timeout, directTime)}).DialContext(ctx, network, address)
		return conn, failed(err, false), err
	case protocolConnect:
		conn, err := d.connect.DialContext(ctx, network, address)
		var e *client.Error
		if errors.As(err, &e) {
			return nil, failed(err, e.Asked), refusedBy(e)
		}
		if d.way.transport == transportUDS {
			conn = forgiving{conn.(*client.Conn)}
		}
		return conn, "", nil
	}
	if network != "tcp" {
		return nil, StageConnect, asError(fault.Newf(fault.CodeUsage, "network %q is not dialled", network).
			Because(net.UnknownNetworkError(network)))
	}
	if err := request.CheckTarget(address); err != nil {
		return nil, StageConnect, asError(fault.New(fault.CodeRequest, "the destination cannot be read").Because(err))
	}
	return d.grpc(ctx, address)
}

// refusedBy gives a refusal by a proxy that is no hub, which has a status alone, the code of a dial.
func refusedBy(e *client.Error) *client.Error {
	if e.Status != 0 && e.Code == string(fault.CodeHubAway) {
		e.Code = string(fault.CodeDialUnreachable)
		if e.Status == http.StatusGatewayTimeout {
			e.Code = string(fault.CodeDialTimeout)
		}
	}
	return e
}

func failed(err error, asked bool) Stage {
	switch {
	case err == nil:
		return ""
	case asked:
		return StageProxy
	}
	return StageConnect
}

// forgiving is a connection by a unix socket: a proxy that is no hub ends both directions at once, which the client of
// a hub takes for a cut.
type forgiving struct{ *client.Conn }

func (c forgiving) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, client.ErrCut) {
		err = io.EOF
	}
	return n, err
}
