// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

func newConnectCommand() *cobra.Command {
	var remote remoteFlags
	var listen, trace string
	var metadata []string
	cmd := &cobra.Command{
		Use:   "connect CLUSTER HOST:PORT",
		Short: "Open a connection into a cluster, on stdin and stdout or on a local port",
		Long: `Open a connection to HOST:PORT through an agent of the cluster and join it to
stdin and stdout, or with --listen open one for each connection to a local
address. HOST is resolved on the agent's side. --metadata and --traceparent appear
in the audit records of the hub and of the agent; nothing is decided upon
them.`,
		Example: `  tombolo connect c1 10.0.0.7:22
  tombolo connect c1 db.svc:5432 --metadata ticket=OPS-1234
  ssh -o ProxyCommand='tombolo connect c1 %h:%p' node1
  tombolo connect c1 grafana.monitoring.svc:80 --listen 127.0.0.1:3000`,
		Args: exactArgs("CLUSTER", "HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			said, err := requestMetadata(metadata, trace)
			if err != nil {
				return err
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if listen != "" {
				open := func(ctx context.Context) (net.Conn, error) { return client.StreamWith(ctx, args[0], args[1], said) }
				return connectListen(ctx, cmd.ErrOrStderr(), open, listen, args)
			}
			conn, err := client.StreamWith(ctx, args[0], args[1], said)
			if err != nil {
				return err
			}
			return connectStdio(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), conn)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "local `ADDRESS` to accept connections on")
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil,
		"`KEY=VALUE` for the audit records; may be repeated, no secrets")
	cmd.Flags().StringVar(&trace, "traceparent", "", "W3C `TRACEPARENT` of which the dial is a part")
	remote.register(cmd)
	return cmd
}

// requestMetadata reads the flags for metadata and trace context.
func requestMetadata(metadata []string, trace string) (r reqmeta.Metadata, err error) {
	for _, text := range metadata {
		p, err := reqmeta.ParsePair(text)
		if err != nil {
			return r, fault.New(fault.CodeUsage, "--metadata cannot be read").Because(err).Hint("write --metadata key=value")
		}
		r.Pairs = append(r.Pairs, p)
	}
	if err := reqmeta.Check(r.Pairs); err != nil {
		return r, fault.New(fault.CodeUsage, "--metadata cannot be read").Because(err).Hint("write --metadata key=value")
	}
	if trace != "" && !reqmeta.IsTraceparent(trace) {
		return r, fault.New(fault.CodeUsage, "--traceparent is not one of W3C Trace Context").
			Hint("write 00-<32 hexadecimal digits>-<16>-<2>, in lower case")
	}
	r.Trace = trace
	return r, nil
}

// connectStdio joins a connection to stdin and stdout until both directions have
// ended. A read of stdin cannot be canceled, so it has its own goroutine, which
// nobody waits for.
func connectStdio(ctx context.Context, in io.Reader, out io.Writer, conn net.Conn) error {
	typed, feed := io.Pipe()
	run.NewGroup(ctx).Do(func(context.Context) {
		_, err := io.Copy(feed, in)
		feed.CloseWithError(err)
	})
	local := stdio{PipeReader: typed, out: out, farEnd: func() {}}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		// Whoever sits there sees that the far side has gone; a pipe may have more to send.
		local.farEnd = func() { feed.Close() }
	}
	return ended(splice.New().Both(ctx, local, splice.Net(conn), splice.Options{}))
}

func ended(r splice.Result) error {
	if r.Code == "" || r.Code == fault.CodeSessionLost && errors.Is(r.Err, context.Canceled) {
		return nil
	}
	return fault.New(r.Code, "the connection broke").Because(r.Err)
}

func connectListen(ctx context.Context, stderr io.Writer, open func(context.Context) (net.Conn, error),
	listen string, args []string) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		code := fault.CodeUsage
		if errors.Is(err, syscall.EADDRINUSE) {
			code = fault.CodeAddressBusy
		}
		return fault.New(code, "cannot listen on "+listen).Because(err).Hint("choose another address with --listen")
	}
	defer run.OnDone(ctx, func() { ln.Close() })()
	fmt.Fprintf(stderr, "listening on %s for %s in %s; Ctrl-C ends\n", ln.Addr(), args[1], args[0])
	g := run.NewGroup(ctx)
	s := splice.New()
	for {
		local, err := ln.Accept()
		if err != nil {
			g.Stop()
			g.Wait()
			if ctx.Err() != nil {
				return nil
			}
			return fault.New(fault.CodeInternal, "accept a connection").Because(err)
		}
		g.Do(func(ctx context.Context) {
			far, err := open(ctx)
			if err != nil {
				fmt.Fprintf(stderr, "%s: %s\n", local.RemoteAddr(), fault.From(err).Explain())
				splice.Net(local).Reset(0)
				return
			}
			s.Both(ctx, splice.Net(local), splice.Net(far), splice.Options{})
		})
	}
}

// stdio joins stdin and stdout to one connection. Its Close ends a read that
// waits for stdin.
type stdio struct {
	*io.PipeReader // what comes from stdin
	out            io.Writer
	farEnd         func() // called when the far side has ended its direction
}

func (s stdio) Write(b []byte) (int, error) { return s.out.Write(b) }

// CloseWrite closes stdout, so that a pipe behind it sees the end.
func (s stdio) CloseWrite() error {
	s.farEnd()
	if c, ok := s.out.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (s stdio) Reset(uint32) error { return s.Close() }
