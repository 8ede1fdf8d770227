// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// connect serves HTTP CONNECT, one connection for each dial.
type connect struct {
	dial    func(context.Context, wire.Dial) (carrier.Stream, error)
	splicer *splice.Splicer
	open    func(change int)
	log     *slog.Logger
	ctx     context.Context // ends every connection
}

// serve owns ln. It serves until the context ends.
func (c *connect) serve(ln net.Listener) error {
	g := run.NewGroup(c.ctx)
	srv := listener.HTTP{Header: limit.RequestHeader, Log: c.log,
		Conn: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, konnectivity.CallerOf(conn))
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, done := g.Begin() // it is taken over, and HTTP does not wait for it
			defer done()
			c.ServeHTTP(w, r)
		})}
	err := srv.Serve(c.ctx, ln)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// ServeHTTP implements http.Handler.
func (c *connect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		w.Header().Set("Allow", http.MethodConnect)
		http.Error(w, "this proxy only supports CONNECT passthrough", http.StatusMethodNotAllowed)
		return
	}
	c.open(+1)
	defer c.open(-1)
	// The request's context ends when the caller leaves, until its connection is taken over.
	stream, err := c.ask(r)
	conn, buffered, hijacked := http.NewResponseController(w).Hijack()
	if hijacked != nil {
		if err == nil {
			stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		}
		return
	}
	conn.SetDeadline(time.Now().Add(limit.ReplyWrite))
	if err != nil {
		io.WriteString(conn, refusal(fault.From(err)))
		conn.Close()
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	settle(conn, buffered.Reader, stream)
	if w, ok := stream.(interface {
		Watch(left func() (sends, takes bool))
	}); ok {
		w.Watch(splice.PeerOf(conn).Left)
	}
	c.splicer.Both(c.ctx, splice.Net(conn), stream, splice.Options{})
}

// callerKey is that of a konnectivity.Caller in the context of a request.
type callerKey struct{}

// ask dials what a request asks for, with what its caller says about the dial.
func (c *connect) ask(r *http.Request) (carrier.Stream, error) {
	header := map[string][]string{}
	for _, name := range []string{reqmeta.HeaderMetadata, reqmeta.HeaderTraceparent, reqmeta.HeaderTracestate} {
		header[name] = r.Header.Values(name)
	}
	said, err := reqmeta.Read(header)
	if err != nil {
		return nil, fault.New(fault.CodeRequest, "the metadata of the request is refused").Because(err)
	}
	d := wire.Dial{Network: wire.NetworkTCP, Address: r.Host, Trace: said.Trace, TraceState: said.State,
		Metadata: said.Pairs}
	if caller, ok := r.Context().Value(callerKey{}).(konnectivity.Caller); ok {
		caller.Name(&d)
	}
	return c.dial(r.Context(), d)
}

// settle passes on what the caller says first, and waits for it for a moment: kube-apiserver fails a dial if bytes of
// the target come along with the answer. An error of either end is that of what follows.
func settle(conn net.Conn, early *bufio.Reader, to io.Writer) {
	if n := early.Buffered(); n > 0 {
		if b, err := early.Peek(n); err == nil {
			to.Write(b)
		}
		return
	}
	var first [512]byte
	conn.SetReadDeadline(time.Now().Add(limit.Settle))
	n, _ := conn.Read(first[:])
	conn.SetReadDeadline(time.Time{})
	if n > 0 {
		to.Write(first[:n])
	}
}

// refusal renders a fault. The reason phrase has it too: kube-apiserver shows nothing else.
func refusal(f *fault.Fault) string {
	status := http.StatusBadGateway
	switch f.Code {
	case fault.CodeNoAgent:
		status = http.StatusInternalServerError // as the reference has it
	case fault.CodeDialTimeout:
		status = http.StatusGatewayTimeout
	case fault.CodeDraining:
		status = http.StatusServiceUnavailable
	case fault.CodePolicyDenied:
		status = http.StatusForbidden
	case fault.CodeLimit:
		status = http.StatusTooManyRequests
	case fault.CodeRequest:
		status = http.StatusBadRequest
	}
	text := f.Explain()
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s\n", status, strings.Map(printable, text), len(text)+1, text)
}

// printable replaces what must not stand in a status line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
