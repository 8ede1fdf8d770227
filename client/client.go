// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/client/internal/pemfiles"
	"github.com/tombolo-io/tombolo/client/internal/request"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Dialer dials targets in one cluster. Its fields must not change once it is in use. The
// files that they name may change: they are read again then, and the last good ones stay in
// use while they are incomplete. A Dialer is safe for concurrent use, and must not be copied.
type Dialer struct {
	// Hub is the host:port of the hub's main port.
	Hub string
	// Certificate, Key and CA are files in PEM, as 'tombolo egress-config CLUSTER
	// --mode connect-tls' and 'tombolo certificate issue' write them.
	Certificate, Key, CA string

	// TLS, if set, returns the configuration of a handshake with what is at Hub, instead of Certificate, Key and CA: it
	// decides whom to trust, who need not be a hub.
	TLS func() (*tls.Config, error)

	// Socket is the path of a cluster's socket of protocol connect, instead of Hub and its files.
	Socket string

	// Cluster, if set, is the expected cluster: a dial with a certificate for another one
	// fails before it connects.
	Cluster string

	// Metadata appears in the audit records of every dial: at most 8 pairs, with keys of
	// letters, digits and ._-/ up to 64 bytes, and printable values up to 256 bytes. It must
	// not contain secrets, and no decision depends on it. WithMetadata adds to it.
	Metadata map[string]string

	// Header are headers of every dial for what serves it, whose names begin with X-. A hub ignores them.
	Header map[string]string

	// Trace, if set, returns the W3C traceparent and tracestate of a dial from its
	// context, unless WithTrace has set them.
	Trace func(ctx context.Context) (traceparent, tracestate string)

	// Timeout bounds a dial in addition to its context; 0 is 40s.
	Timeout time.Duration

	files   pemfiles.Files
	connect func(ctx context.Context, network, address string) (net.Conn, error) // nil: package net's
}

// Error is a failed dial.
type Error struct {
	// Code is stable and documented in docs/reference/faults.md: policy_denied, no_agent,
	// dial_refused and so on.
	Code string
	// Reason is a text for people.
	Reason string
	// Asked is true if the failure came after the hub was connected: it, and perhaps the target, know of the dial.
	Asked bool
	// Status is the HTTP status of the hub's answer, 0 without one.
	Status int
	// Err is the cause if the failure is on this side of the hub.
	Err error
}

func (e *Error) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout makes the error a net.Error.
func (e *Error) Timeout() bool {
	var timeout interface{ Timeout() bool }
	return e.Code == string(fault.CodeDialTimeout) || errors.As(e.Err, &timeout) && timeout.Timeout()
}

// Temporary makes the error a net.Error; it is always false.
func (e *Error) Temporary() bool { return false }

// WithMetadata adds pairs of metadata to the dials under ctx.
func WithMetadata(ctx context.Context, pairs map[string]string) context.Context {
	return request.WithMetadata(ctx, pairs)
}

// WithHeader adds a header to the dials under ctx, as Dialer.Header does for all.
func WithHeader(ctx context.Context, name, value string) context.Context {
	return request.WithHeader(ctx, name, value)
}

// WithTrace makes the dials under ctx a part of a trace: traceparent and
// tracestate as in W3C Trace Context, the second may be empty.
func WithTrace(ctx context.Context, traceparent, tracestate string) context.Context {
	return request.WithTrace(ctx, traceparent, tracestate)
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(nobody{})
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// DialContext opens a connection to address, host:port, in the cluster; network
// is tcp. It returns when the target is connected. ctx bounds only the dial. The connection
// is a *Conn. Every error is an *Error.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, asked, err := d.dial(ctx, network, address)
	if err != nil {
		e := asError(err)
		e.Asked = asked
		return nil, e
	}
	return conn, nil
}

// dial reports too whether it came so far as to ask the hub.
func (d *Dialer) dial(ctx context.Context, network, address string) (conn *Conn, asked bool, err error) {
	if network != "tcp" {
		return nil, false, fault.Newf(fault.CodeUsage, "network %q is not dialled", network).
			Because(net.UnknownNetworkError(network))
	}
	if err := request.CheckTarget(address); err != nil {
		return nil, false, fault.New(fault.CodeRequest, "the destination cannot be read").Because(err)
	}
	var lines strings.Builder
	said := request.Said{Metadata: d.Metadata, Header: d.Header, Trace: d.Trace}
	err = said.Lines(ctx, func(name, value string) { lines.WriteString(name + ": " + value + "\r\n") })
	if err != nil {
		return nil, false, fault.New(fault.CodeRequest, "the metadata is refused").Because(err)
	}
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = limit.Dial + limit.RequestHeaderTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err = d.open(ctx)
	if err != nil {
		return nil, false, firstCause(ctx, err)
	}
	stop := run.OnDone(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = conn.ask(address, lines.String())
	stop()
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, true, firstCause(ctx, err)
	}
	conn.SetDeadline(time.Time{})
	conn.target = targetAddr(address)
	return conn, true, nil
}

// firstCause prefers the end of the context to its consequence, which looks as if the hub
// were away. Errors from the hub or about its certificate stay.
func firstCause(ctx context.Context, err error) error {
	var answered *Error
	var f *fault.Fault
	end := run.Ended(ctx)
	if end == nil || errors.As(err, &answered) || errors.As(err, &f) && f.Code != fault.CodeHubAway {
		return err
	}
	return request.GaveUp(ctx, end)
}

// open connects to the hub.
func (d *Dialer) open(ctx context.Context) (*Conn, error) {
	if d.Socket != "" {
		raw, err := d.raw(ctx, "unix", d.Socket)
		if err != nil {
			return nil, fault.New(fault.CodeHubAway, "no hub answers at "+d.Socket).Because(err)
		}
		return newConn(raw, raw), nil
	}
	secure := d.config
	if d.TLS != nil {
		secure = d.TLS
	}
	cfg, err := secure()
	if err != nil {
		return nil, err
	}
	raw, err := d.raw(ctx, "tcp", d.Hub)
	if err != nil {
		return nil, fault.New(fault.CodeHubAway, "no hub answers at "+d.Hub).Because(err)
	}
	below := &transport{Conn: raw}
	conn := tls.Client(below, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		var f *fault.Fault
		if errors.As(err, &f) {
			return nil, f
		}
		return nil, fault.New(fault.CodeHubAway, "the TLS handshake with "+d.Hub+" failed").Because(err)
	}
	c := newConn(conn, raw)
	c.below = below
	return c, nil
}

func (d *Dialer) raw(ctx context.Context, network, address string) (net.Conn, error) {
	if d.connect != nil {
		return d.connect(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// ask sends CONNECT and reads the answer.
func (c *Conn) ask(target, lines string) error {
	head := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n" + lines + "\r\n"
	if _, err := io.WriteString(c.Conn, head); err != nil {
		return fault.New(fault.CodeHubAway, "the hub took no request").Because(err)
	}
	res, err := http.ReadResponse(c.buf, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fault.New(fault.CodeHubAway, "the hub gave no answer").Because(err)
	}
	if res.StatusCode == http.StatusOK {
		c.head.N = math.MaxInt64
		return nil
	}
	// A refusal of a CONNECT has a body (RFC 9110 section 9.3.6), which net/http does not read.
	length := min(max(res.ContentLength, 0), limit.RequestHeader)
	c.head.N = length
	text, err := io.ReadAll(io.LimitReader(c.buf, length))
	refused := &Error{Code: res.Header.Get("Tombolo-Fault"), Status: res.StatusCode,
		Reason: strings.TrimSpace(string(text))}
	if refused.Code == "" { // its text is anybody's
		refused.Code = string(fault.CodeHubAway)
		refused.Reason = untrusted.Text(strings.TrimSpace(res.Status+" "+refused.Reason), limit.FaultText) +
			", said by what is no hub"
	}
	if err != nil || refused.Reason == "" {
		refused.Reason = res.Status
	}
	return refused
}

// asError turns an error into an *Error with a code.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	f := fault.From(err)
	return &Error{Code: string(f.Code), Reason: f.Explain(), Err: err}
}

// nobody is a context that never ends, for a Dial without one.
type nobody struct{}

func (nobody) Deadline() (time.Time, bool) { return time.Time{}, false }
func (nobody) Done() <-chan struct{}       { return nil }
func (nobody) Err() error                  { return nil }
func (nobody) Value(any) any               { return nil }

var _ net.Error = (*Error)(nil)

func newConn(conn, raw net.Conn) *Conn {
	c := &Conn{Conn: conn, raw: raw, head: &io.LimitedReader{R: conn, N: limit.RequestHeader}}
	c.buf = bufio.NewReader(c.head)
	return c
}
