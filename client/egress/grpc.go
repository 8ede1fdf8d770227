// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/internal/request"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// grpc dials by konnectivity's packets. Each dial has a connection to the proxy of its own, with one gRPC stream on it.
func (d *Dialer) grpc(ctx context.Context, address string) (net.Conn, Stage, error) {
	header := http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"tombolo-egress"}}
	said := request.Said{Metadata: d.selector.Metadata, Header: d.selector.Header, Trace: d.selector.Trace}
	if err := said.Lines(ctx, header.Add); err != nil {
		return nil, StageConnect, asError(fault.New(fault.CodeRequest, "the metadata is refused").Because(err))
	}
	dialing, cancel := context.WithTimeout(ctx, cmp.Or(d.selector.Timeout, dialTime))
	defer cancel()
	proxy, err := d.proxy(dialing)
	if err != nil {
		if end := run.Ended(dialing); end != nil && !fault.Has(err, fault.CodeCertInvalid) {
			err = request.GaveUp(dialing, end)
		}
		return nil, StageConnect, asError(err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	t := newTunnel(address, end)
	req, err := http.NewRequestWithContext(life, http.MethodPost, d.way.url()+"/ProxyService/Proxy", t.sender)
	if err != nil {
		end()
		return nil, StageConnect, asError(errors.Join(err, proxy.Close()))
	}
	req.Header = header
	run.NewGroup(life).Do(func(context.Context) {
		t.receive(proxy.RoundTrip(req))
		end()
		proxy.Close()
	})
	select {
	case err = <-t.answer:
		if err == nil {
			return &Conn{tunnel: t}, "", nil
		}
		return nil, StageProxy, refusal(err)
	case <-dialing.Done():
		t.giveUp()
		return nil, StageProxy, refusal(request.GaveUp(dialing, dialing.Err()))
	}
}

// refusal is an error after the proxy was asked.
func refusal(err error) *client.Error {
	var e *client.Error
	if !errors.As(err, &e) {
		e = asError(err)
	}
	e.Asked = true
	return e
}

func (w *way) url() string {
	if w.transport == transportUDS {
		return "http://localhost"
	}
	return "https://" + w.address
}

// proxy connects to the proxy.
func (d *Dialer) proxy(ctx context.Context) (*http.ClientConn, error) {
	w := d.way
	var protocols http.Protocols
	transport := &http.Transport{
		Protocols: &protocols, DisableCompression: true, MaxResponseHeaderBytes: limit.RequestHeader,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: limit.KonnectivityWindow},
	}
	scheme, at := "https", w.address
	if w.transport == transportUDS {
		scheme, at = "http", "localhost:80"
		protocols.SetUnencryptedHTTP2(true)
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.address)
		}
	} else {
		cfg, err := w.config()
		if err != nil {
			return nil, err
		}
		protocols.SetHTTP2(true)
		transport.TLSClientConfig = cfg.Clone() // to which net/http adds
	}
	conn, err := transport.NewClientConn(ctx, scheme, at)
	if err != nil {
		return nil, fault.New(fault.CodeHubAway, "no proxy answers at "+w.address).Because(err)
	}
	return conn, nil
}
