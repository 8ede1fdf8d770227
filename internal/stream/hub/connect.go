// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// connect serves HTTP CONNECT on a connection.
type connect struct {
	*parts
	splicer *splice.Splicer
	heads   sync.Pool // buffers for requests
}

// connectFrontend serves HTTP CONNECT (RFC 9110 section 9.3.6) as
// kube-apiserver speaks it: one connection for each dial.
type connectFrontend struct {
	*connect
	who record.Party
}

// Serve accepts connections, as many at a time as the caller may have.
func (f connectFrontend) Serve(ctx context.Context, ln net.Listener, dial frontend.DialFunc) error {
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	g := run.NewGroup(ctx)
	err := listener.Accept(ctx, ln, func(conn net.Conn) {
		caller := f.clusters.callerOf(f.who) // as it is now
		if full := caller.Connect(); full != nil {
			f.record.RefusedConnection(f.who, conn, carrier.UnixPeer(conn), full)
			answerAtOnce(conn, full)
			return
		}
		g.Do(func(ctx context.Context) {
			defer caller.Disconnect()
			f.serveConnect(ctx, conn, f.who, dial)
		})
	})
	return errors.Join(err, g.Wait())
}

// serveConnect reads one CONNECT, dials, answers and copies.
func (cn *connect) serveConnect(ctx context.Context, conn net.Conn, who record.Party, dial frontend.DialFunc) {
	caller := splice.Net(conn)
	asked, err := cn.readConnect(ctx, conn, caller)
	if err == nil && asked.ping {
		if who.Frontend == policy.FlowRoute { // which asks now and then: neither a dial nor a record
			answerPing(conn)
			return
		}
		err = notServed(http.MethodOptions)
	}
	if err == nil && asked.network != wire.NetworkTCP && who.Frontend != policy.FlowRoute {
		err = fault.New(fault.CodeRequest, "datagrams are carried for routed mode only").
			Hint("use a certificate of the role route")
	}
	if err != nil {
		cn.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc()
		cn.record.RefusedRequest(who, carrier.UnixPeer(conn), err)
		cn.refuseConnect(conn, err)
		return
	}
	stream, err := dialQuietly(ctx, cn.settings.Load().dialTimeout, conn, caller,
		func(ctx context.Context) (carrier.Stream, error) {
			d := asked.dial()
			d.Peer = carrier.UnixPeer(conn)
			if who.Frontend == frontendTLS || who.Frontend == ProtocolConnect { // others come by no egress selection
				d.EgressType = frontend.DefaultEgress
			}
			return dial(ctx, d)
		})
	if err != nil {
		cn.refuseConnect(conn, err)
		return
	}
	if err := established(conn, caller); err != nil {
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		conn.Close()
		return
	}
	cn.spliceStream(ctx, conn, caller, stream)
}

// established answers a CONNECT in one write with the head alone: kube-apiserver
// fails a dial if a byte of the target comes along with it. The caller's buffer has
// room for it as a rule, so that no deadline is needed.
func established(conn net.Conn, caller splice.Conn) error {
	head := []byte("HTTP/1.1 200 Connection Established\r\n\r\n")
	if prompt, ok := caller.(carrier.PromptWriter); ok {
		n, err := prompt.WriteNow(head)
		if err != nil || n == len(head) {
			return err
		}
		head = head[n:]
	}
	conn.SetWriteDeadline(time.Now().Add(limit.ReplyWrite))
	defer conn.SetWriteDeadline(time.Time{})
	_, err := conn.Write(head)
	return err
}

// promptReader is a connection that says what has come without waiting for more.
type promptReader interface {
	ReadNow(b []byte) (n int, err error) // 0, nil: nothing has
}

// dialQuietly dials and makes sure that the client is silent until it is answered:
// bytes before that end the dial, because taking them for the target's would let a
// request be smuggled past the answer. After a fast dial a look is enough; a dial
// that takes longer is watched, so that early bytes end it at once.
func dialQuietly(
	ctx context.Context, timeout time.Duration, conn net.Conn, caller splice.Conn,
	dial func(context.Context) (carrier.Stream, error),
) (carrier.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout) // that of Dial as well
	defer cancel()
	early, watched := false, make(chan struct{})
	unwatched := dialUnwatched
	now, ok := caller.(promptReader)
	if !ok {
		unwatched = 0
	}
	watch := time.AfterFunc(unwatched, func() {
		defer close(watched)
		var b [1]byte
		if n, _ := conn.Read(b[:]); n > 0 { // an end is no byte: the client may only want to read
			early = true
			cancel()
		}
	})
	stream, err := dial(ctx)
	if !watch.Stop() {
		conn.SetReadDeadline(time.Unix(1, 0))
		<-watched
		conn.SetReadDeadline(time.Time{})
	}
	if ok && !early { // who was to watch may have come too late to look
		n, _ := now.ReadNow(make([]byte, 1))
		early = n > 0
	}
	if early {
		if err == nil {
			stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		}
		return nil, earlyData()
	}
	return stream, err
}

func earlyData() error {
	return fault.New(fault.CodeEarlyData, "bytes came before the answer to the CONNECT").
		Hint("wait for the 200 before sending")
}

// spliceStream copies between conn, whose end is caller, and a stream until both have ended.
func (cn *connect) spliceStream(ctx context.Context, conn net.Conn, caller splice.Conn, stream carrier.Stream) {
	if w, ok := stream.(interface {
		Watch(left func() (sends, takes bool))
	}); ok {
		w.Watch(splice.PeerOf(conn).Left)
	}
	cn.splicer.Both(ctx, caller, stream, splice.Options{Idle: cn.settings.Load().idleTimeout})
}

// readConnect reads the request's head, bounded in size and time, or until ctx ends.
// Anything but exactly one well-formed CONNECT is refused.
func (cn *connect) readConnect(ctx context.Context, conn net.Conn, caller splice.Conn) (asked asking, err error) {
	from := &headReader{ctx: ctx, conn: conn}
	from.now, _ = caller.(promptReader)
	defer from.end()
	bounded := &io.LimitedReader{R: from, N: limit.RequestHeader}
	buf, ok := cn.heads.Get().(*bufio.Reader)
	if !ok {
		buf = bufio.NewReaderSize(nil, 4<<10)
	}
	defer cn.heads.Put(buf)
	defer buf.Reset(nil)
	buf.Reset(bounded)
	bad := func(why string, args ...any) *fault.Fault {
		return fault.New(fault.CodeRequest, "the CONNECT request is malformed").Whyf(why, args...)
	}
	req, err := http.ReadRequest(buf)
	var timeout net.Error
	switch {
	case err == nil:
	case bounded.N <= 0:
		return asking{}, fault.New(fault.CodeHeaderTooLarge, "the request header is too large").
			Whyf("at most %d bytes are read", limit.RequestHeader)
	case errors.Is(from.err, io.EOF):
		return asking{}, bad("the connection ended within the header")
	case errors.As(from.err, &timeout) && timeout.Timeout():
		return asking{}, bad("the header did not arrive within %v", limit.RequestHeaderTime)
	default:
		// The parser quotes what it could not read, all of it.
		return asking{}, bad("%s", clip(err.Error(), 200)).Hint("send: CONNECT host:port HTTP/1.1")
	}
	ping := req.Method == http.MethodOptions && req.RequestURI == "*" // RFC 9110 section 9.3.7
	switch {
	case req.Method != http.MethodConnect && !ping:
		return asking{}, notServed(req.Method)
	case req.ProtoMajor != 1 || req.ProtoMinor != 1:
		return asking{}, bad("it is HTTP/%d.%d; HTTP/1.1 is expected", req.ProtoMajor, req.ProtoMinor)
	case req.ContentLength > 0 || len(req.TransferEncoding) > 0:
		return asking{}, bad("a CONNECT has no body")
	case buf.Buffered() > 0:
		return asking{}, earlyData()
	}
	for name := range req.Header { // RFC 9112 section 5.1: no space before the colon
		if !httpguts.ValidHeaderFieldName(name) {
			return asking{}, bad("%q is no name of a header", clip(name, 64))
		}
	}
	if ping {
		return asking{ping: true}, nil
	}
	if _, err := policy.ParseTarget(req.RequestURI); err != nil {
		return asking{}, bad("%s", clip(err.Error(), 200)).Hint("send: CONNECT host:port HTTP/1.1")
	}
	return readRequest(req.RequestURI, req.Header)
}

func notServed(method string) *fault.Fault {
	return fault.Newf(fault.CodeMethod, "method %s is not served here", clip(method, 32)).
		Whyf("this socket speaks CONNECT only")
}

// answerPing says that the hub is there, and takes the caller's certificate.
func answerPing(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(limit.ReplyWrite))
	const answer = "HTTP/1.1 200 OK\r\nAllow: CONNECT, OPTIONS\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(conn, answer); err == nil {
		lingerClose(conn)
	}
}

// headReader reads a request's head. What is there already, as it is mostly, needs
// neither a deadline nor somebody who ends the wait for it.
type headReader struct {
	ctx     context.Context
	conn    net.Conn
	now     promptReader // nil: there is no reading without waiting
	release func()       // not nil: it waits
	// err is how the connection ended: the parser of a cut request speaks of the
	// text that it has, not of what cut it.
	err error
}

func (r *headReader) Read(p []byte) (n int, err error) {
	if r.now != nil && r.release == nil {
		if n, r.err = r.now.ReadNow(p); n > 0 || r.err != nil {
			return n, r.err
		}
	}
	if r.release == nil {
		r.conn.SetReadDeadline(time.Now().Add(limit.RequestHeaderTime))
		r.release = run.OnDone(r.ctx, func() { r.conn.Close() })
	}
	n, r.err = r.conn.Read(p)
	return n, r.err
}

func (r *headReader) end() {
	if r.release != nil {
		r.release()
		r.conn.SetReadDeadline(time.Time{})
	}
}

// refuseConnect answers with status, code and reason, and closes.
func (cn *connect) refuseConnect(conn net.Conn, err error) {
	defer conn.Close()
	f := fault.From(err)
	if f.Code == fault.CodeDialCanceled {
		return
	}
	conn.SetDeadline(time.Now().Add(limit.ReplyWrite))
	if _, err := io.WriteString(conn, refusal(f)); err != nil {
		return
	}
	lingerClose(conn)
}

// answerAtOnce refuses without waiting for a request, for a bound that is
// reached: what fits into the socket's buffer is written, and nothing is waited for.
func answerAtOnce(conn net.Conn, f *fault.Fault) {
	conn.SetDeadline(time.Now().Add(atOnce))
	io.WriteString(conn, refusal(f))
	conn.Close()
}

// refusal renders a fault as an HTTP/1.1 response.
func refusal(f *fault.Fault) string {
	status := statusOf(f)
	body := f.Explain() + "\n"
	var b strings.Builder
	// The fault stands in the reason phrase too: of a refusal kube-apiserver
	// hands only the status line on, so kubectl's user reads this or nothing.
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, clip(f.Explain(), 400))
	fmt.Fprintf(&b, "Tombolo-Fault: %s\r\n", f.Code)
	if status == http.StatusMethodNotAllowed {
		b.WriteString("Allow: CONNECT\r\n")
	}
	if f.Again > 0 {
		b.WriteString("Retry-After: " + retryAfter(f) + "\r\n")
	}
	b.WriteString("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n")
	b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	return b.String()
}

// retryAfter is in whole seconds (RFC 9110 section 10.2.3), and never too soon.
func retryAfter(f *fault.Fault) string { return itoa(int(math.Ceil(f.Again.Seconds()))) }

func statusOf(f *fault.Fault) int {
	switch f.Code {
	case fault.CodeMethod:
		return http.StatusMethodNotAllowed
	case fault.CodeHeaderTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	}
	return admin.HTTPStatus(fault.ClassOf(f.Code))
}

// lingerClose lets the answer arrive: closing with unread bytes in the receive
// buffer would make the kernel send RST, which can overtake it. What the peer
// still sends is read for a moment, and bounded.
func lingerClose(conn net.Conn) {
	if h, ok := conn.(interface{ CloseWrite() error }); ok {
		if h.CloseWrite() != nil {
			return
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(io.Discard, conn, 2*limit.RequestHeader)
	}
}
