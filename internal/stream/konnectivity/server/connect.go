// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
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
	wrote   func(took time.Duration) // to a caller
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
			if carry := c.accept(w, r); carry != nil {
				g.Do(func(context.Context) { carry() }) // without the buffers of HTTP, which end with this function
			}
		})}
	err := srv.Serve(c.ctx, ln)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// accept answers a CONNECT. carry, if there is one, carries its bytes until the connection ends.
func (c *connect) accept(w http.ResponseWriter, r *http.Request) (carry func()) {
	if r.Method != http.MethodConnect {
		w.Header().Set("Allow", http.MethodConnect)
		http.Error(w, "this proxy only supports CONNECT passthrough", http.StatusMethodNotAllowed)
		return nil
	}
	c.open(+1)
	defer func() {
		if carry == nil {
			c.open(-1)
		}
	}()
	// The request's context ends when the caller leaves, until its connection is taken over.
	stream, err := c.ask(r)
	conn, buffered, hijacked := http.NewResponseController(w).Hijack()
	if hijacked != nil {
		if err == nil {
			stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		}
		return nil
	}
	conn.SetDeadline(time.Now().Add(limit.ReplyWrite))
	if err != nil {
		io.WriteString(conn, refusal(fault.From(err)))
		conn.Close()
		return nil
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		conn.Close()
		return nil
	}
	conn.SetDeadline(time.Time{})
	early, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		early = nil // of what is there already there is no error
	}
	early = bytes.Clone(early)
	return func() {
		defer c.open(-1)
		settle(conn, early, stream)
		left := splice.PeerOf(conn).Left
		if w, ok := stream.(interface {
			Watch(left func() (sends, takes bool))
		}); ok {
			w.Watch(left)
		}
		c.splicer.Both(c.ctx, splice.Net(conn), timed{stream, c.wrote, left}, splice.Options{})
	}
}

// timed is a target that says how long each write to its caller takes, and is told when its caller has left.
type timed struct {
	carrier.Stream
	wrote func(took time.Duration)
	left  func() (sends, takes bool)
}

// CloseWrite implements carrier.Stream. A caller that has closed its connection does not wait for an answer.
func (t timed) CloseWrite() error {
	err := t.Stream.CloseWrite()
	if _, takes := t.left(); takes {
		if s, ok := t.Stream.(konnectivity.Excused); ok {
			time.AfterFunc(lastWords, s.Excuse)
		}
	}
	return err
}

// lastWords is how long the target has for what a caller has sent before it closed its connection: the reference's
// agent drops what it has not passed on when it is told.
const lastWords = time.Second

// CopyTo implements carrier.Stream.
func (t timed) CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error) {
	w := timedWriter{dst, t.wrote}
	if prompt, ok := dst.(carrier.PromptWriter); ok {
		return t.Stream.CopyTo(timedPrompt{w, prompt}, moved)
	}
	return t.Stream.CopyTo(w, moved)
}

// timedPrompt is a timedWriter that takes bytes from the goroutine that received them.
type timedPrompt struct {
	timedWriter
	prompt carrier.PromptWriter
}

// WriteNow implements carrier.PromptWriter.
func (w timedPrompt) WriteNow(b []byte) (int, error) {
	begin := time.Now()
	n, err := w.prompt.WriteNow(b)
	w.wrote(time.Since(begin))
	return n, err
}

type timedWriter struct {
	to    io.Writer
	wrote func(took time.Duration)
}

func (w timedWriter) Write(b []byte) (int, error) {
	begin := time.Now()
	defer func() { w.wrote(time.Since(begin)) }()
	return w.to.Write(b)
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
func settle(conn net.Conn, early []byte, to io.Writer) {
	if len(early) > 0 {
		to.Write(early)
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
