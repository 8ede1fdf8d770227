// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Client calls the admin API of a running hub.
type Client struct {
	where string // for messages
	dial  func(ctx context.Context) (net.Conn, error)
	http  *http.Client
}

// OverSocket makes a client for the hub's admin unix socket.
func OverSocket(path string) *Client {
	return newClient("the admin socket "+path, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

// Await makes the client wait, for at most most, while no process serves the socket;
// it calls note when it starts to wait.
func (c *Client) Await(most time.Duration, note func()) *Client {
	dial := c.dial
	c.dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if most <= 0 || !absent(err) {
			return conn, err
		}
		note()
		within, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		for absent(err) && run.Wait(within, limit.SocketPoll) {
			conn, err = dial(ctx)
		}
		return conn, err
	}
	return c
}

// absent reports whether no process serves a socket: it does not exist yet, or a killed process
// left it.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// OverTLS makes a client for the hub's main port; cfg authenticates an operator and
// the hub. below wraps the connection under TLS (splice.Below), so that a reset stream
// is not taken for one that ended.
func OverTLS(address string, cfg *tls.Config, below func(net.Conn) net.Conn) *Client {
	return OverTLSBy(&net.Dialer{Timeout: limit.Handshake}, address, cfg, below)
}

// OverTLSBy is OverTLS with a dialer.
func OverTLSBy(dialer *net.Dialer, address string, cfg *tls.Config, below func(net.Conn) net.Conn) *Client {
	return newClient("the hub "+address, func(ctx context.Context) (net.Conn, error) {
		cfg := cfg
		if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName = host
		}
		raw, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
		defer cancel()
		conn := tls.Client(below(raw), cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		return conn, nil
	})
}

func newClient(where string, dial func(ctx context.Context) (net.Conn, error)) *Client {
	c := &Client{where: where, dial: dial}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			DisableKeepAlives: true, MaxResponseHeaderBytes: limit.RequestHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Call sends body (nil for none) as JSON and decodes the answer into out.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	res, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	bad := fault.New(fault.CodeHubAway, "the answer of "+c.where+" cannot be read")
	text, err := io.ReadAll(io.LimitReader(res.Body, adminAnswer+1))
	switch {
	case err != nil:
		return bad.Because(err)
	case len(text) > adminAnswer:
		return bad.Whyf("it has more than %d bytes", adminAnswer)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return bad.Because(err)
	}
	return nil
}

// Download writes the answer's body to w and returns its length in bytes. An error of w
// is returned unchanged; every other one is a fault.
func (c *Client) Download(ctx context.Context, path string, w io.Writer) (int64, error) {
	res, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	into := &receiver{Writer: w}
	n, err := io.Copy(into, res.Body)
	if into.err != nil {
		return n, into.err
	}
	if err != nil {
		return n, fault.New(fault.CodeHubAway, "the transfer from "+c.where+" broke off").Because(err)
	}
	return n, nil
}

// receiver remembers whether the writing failed.
type receiver struct {
	io.Writer
	err error
}

func (r *receiver) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	r.err = err
	return n, err
}

func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hub"+path, bytes.NewReader(data))
	if err != nil {
		return nil, fault.New(fault.CodeUsage, "the request cannot be made").Because(err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.away(err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, readFault(res)
	}
	return res, nil
}

func (c *Client) away(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	var asked *url.Error // its URL means nothing to the user
	if errors.As(err, &asked) {
		err = asked.Err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.CodeUnauthorized, c.where+" may not be opened").Because(err).
			Hint("ask as root, or as the user that its process runs as")
	}
	return fault.New(fault.CodeHubAway, "no hub answers at "+c.where).Because(err).
		Hint("start it with 'tombolo hub', or name it with --admin-socket, or with --hub and --operator")
}

func readFault(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, limit.AdminBody))
	var b FaultBody
	if err == nil && json.Unmarshal(text, &b) == nil && b.Code != "" {
		return b.Fault()
	}
	if code := res.Header.Get("Tombolo-Fault"); code != "" {
		return (&FaultBody{Code: code, What: strings.TrimPrefix(string(bytes.TrimSpace(text)), code+": ")}).Fault()
	}
	return fault.New(fault.CodeHubAway, "the answer "+wire.Clean(res.Status)+" is not a hub's")
}

// Stream opens a stream to target in a cluster.
func (c *Client) Stream(ctx context.Context, cluster, target string) (net.Conn, error) {
	return c.StreamWith(ctx, cluster, target, reqmeta.Metadata{})
}

// StreamWith is Stream with request metadata for the audit records.
func (c *Client) StreamWith(ctx context.Context, cluster, target string, said reqmeta.Metadata) (net.Conn, error) {
	req, err := http.NewRequest(http.MethodGet,
		"http://hub/v1/clusters/"+url.PathEscape(cluster)+"/stream?target="+url.QueryEscape(target), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", StreamProtocol)
	said.Write(req.Header.Add)
	return c.open(ctx, req.Write, func(res *http.Response) bool {
		return res.StatusCode == http.StatusSwitchingProtocols && res.Header.Get("Upgrade") == StreamProtocol
	})
}

// HeaderNetwork asks a hub for a stream of datagrams: udp, or icmp for echo requests.
const HeaderNetwork = "Tombolo-Network"

// Connect opens a stream to target in the cluster of the client's certificate, by HTTP CONNECT. With another network
// than tcp it carries datagrams, as package datagram has them.
func (c *Client) Connect(ctx context.Context, network, target string) (net.Conn, error) {
	return c.ConnectWith(ctx, network, target, reqmeta.Metadata{})
}

// ConnectWith is Connect with request metadata for the audit records.
func (c *Client) ConnectWith(ctx context.Context, network, target string, said reqmeta.Metadata) (net.Conn, error) {
	ask := func(w io.Writer) error {
		more := ""
		if network != "tcp" {
			more = HeaderNetwork + ": " + network + "\r\n"
		}
		said.Write(func(name, value string) { more += name + ": " + value + "\r\n" })
		_, err := io.WriteString(w, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n"+more+"\r\n")
		return err
	}
	return c.open(ctx, ask, func(res *http.Response) bool { return res.StatusCode == http.StatusOK })
}

// Ping asks a hub whether it is there and takes the client's certificate, by OPTIONS * (RFC 9110 section 9.3.7).
func (c *Client) Ping(ctx context.Context) error {
	ask := func(w io.Writer) error {
		_, err := io.WriteString(w, "OPTIONS * HTTP/1.1\r\nHost: hub\r\n\r\n")
		return err
	}
	conn, err := c.open(ctx, ask, func(res *http.Response) bool { return res.StatusCode == http.StatusOK })
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

// open asks for a stream on a connection of its own, which becomes the stream if the answer is a good one.
func (c *Client) open(ctx context.Context, ask func(io.Writer) error,
	good func(*http.Response) bool) (net.Conn, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		within, cancel := context.WithTimeout(ctx, limit.Dial+limit.RequestHeaderTime)
		defer cancel()
		ctx = within
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.streamless(ctx, err)
	}
	attended := run.OnDone(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer attended()
	head := &io.LimitedReader{R: conn, N: limit.RequestHeader}
	buf := bufio.NewReader(head)
	var res *http.Response
	if err = ask(conn); err == nil {
		res, err = http.ReadResponse(buf, nil) // as to a GET: of a CONNECT it would not read why it was refused
	}
	if err != nil {
		return nil, errors.Join(c.streamless(ctx, err), conn.Close())
	}
	if !good(res) {
		err := c.streamless(ctx, readFault(res))
		conn.Close()
		return nil, err
	}
	attended()
	if ctx.Err() != nil {
		return nil, errors.Join(c.streamless(ctx, ctx.Err()), conn.Close())
	}
	head.N = math.MaxInt64 // the bound was for the head; buf keeps reading through it
	conn.SetDeadline(time.Time{})
	out := &bufferedConn{Conn: conn}
	if buf.Buffered() > 0 {
		out.buf = buf
	}
	return out, nil
}

// streamless is the fault of a stream that was not opened: the end of ctx first, not its
// consequences.
func (c *Client) streamless(ctx context.Context, err error) error {
	f, end := fault.From(c.away(err)), run.Ended(ctx)
	switch {
	case end == nil || f.Code != fault.CodeHubAway:
		return f
	case errors.Is(end, context.Canceled):
		return fault.New(fault.CodeDialCanceled, "the caller gave up").Because(end)
	default:
		return fault.New(fault.CodeDialTimeout, "the dial did not end in time").Because(end).
			Hint("%s gave no answer about the target: look at the hub's load, and check that the target is up", c.where)
	}
}

// bufferedConn first returns the bytes that were read together with the head. Its buffer
// reads through the LimitedReader that bounded the head, whose bound is lifted after it.
type bufferedConn struct {
	net.Conn
	buf  *bufio.Reader // nil once it is empty: an idle stream keeps no buffer
	done atomic.Bool   // our direction has ended
}

// Read distinguishes an orderly end from a broken stream: a unix socket has no reset, but
// a hub that closes it before we have ended our direction has broken the stream.
func (b *bufferedConn) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if err == io.EOF && !b.done.Load() && socket.HungUp(b.Conn) {
		err = fault.New(fault.CodeStreamReset, "the stream broke").Whyf("the target, its agent or the hub cut it")
	}
	return n, err
}

func (b *bufferedConn) read(p []byte) (int, error) {
	if b.buf == nil {
		return b.Conn.Read(p)
	}
	n, err := b.buf.Read(p)
	if b.buf.Buffered() == 0 {
		b.buf = nil
	}
	return n, err
}

// NetConn is the connection under TLS, as of tls.Conn.
func (b *bufferedConn) NetConn() net.Conn {
	if t, ok := b.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return b.Conn
}

// CloseWrite ends our direction.
func (b *bufferedConn) CloseWrite() error {
	b.done.Store(true)
	if h, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return b.Conn.Close()
}
