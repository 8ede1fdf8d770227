// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func newWatchCommand() *cobra.Command {
	var f lookupFlags
	var format string
	cmd := &cobra.Command{
		Use: "watch", Short: "Print what happens to the members of a cluster, as it happens", Args: exactArgs(),
		Long: `Print a line for each known member, "listed", and then a line for each
that joins, changes or leaves, and for each conflict; with -o json a line of JSON
each. It asks the same sources as 'tombolo discovery members'.

A source that cannot be reached is reported on stderr, once and when that changes, and
so is a 'tombolo discovery announce' that does not answer. A slow reader gets a line
"lost", and the list begins again: members that are not in it are gone. It ends with
exit code 3 when the 'tombolo discovery announce' that it follows ends.`,
		Example: `  tombolo discovery watch
  tombolo discovery watch --config /etc/tombolo/mesh.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usage(fmt.Sprintf("--output %q is neither text nor json", format), "--output text")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // its end in order
			defer stop()
			cmd.SetContext(ctx)
			a, err := f.ask()
			if err != nil {
				return err
			}
			each := func(l announce.Line) error { return printLine(cmd.OutOrStdout(), format, l) }
			if a.socket != "" {
				g := run.NewGroup(ctx)
				g.Do(func(ctx context.Context) {
					overhear(ctx, func(ctx context.Context) error {
						var st announce.Status
						return askSocket(ctx, adminWait, at{socket: a.socket}, "/v1/status", &st)
					}, func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) })
				})
				begun, err := follow(cmd.Context(), a.at(cmd), each)
				g.Stop()
				_ = g.Wait() // it has no errors
				if begun || !f.fallBack(cmd, a, err) {
					return err
				}
			}
			return f.look(cmd, func(ctx context.Context, l *discoveryclient.Client) error {
				l.AwaitSettled(ctx, f.wait)
				g := run.NewGroup(ctx)
				defer func() { g.Stop(); g.Wait() }()
				g.Do(func(ctx context.Context) { tellSources(ctx, cmd.ErrOrStderr(), l) })
				lines := &announce.Lines{Each: each}
				for ctx.Err() == nil {
					err := announce.Tell(ctx, nil, l, func(line []byte, _ bool) error {
						_, err := lines.Write(line)
						return err
					})
					if err != nil && ctx.Err() == nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, or json with a line for each event")
	offer(cmd, "output", "text", "json")
	return cmd
}

func printLine(w io.Writer, format string, l announce.Line) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(l)
	}
	line := string(l.What)
	switch {
	case l.Fault != nil:
		line += ": " + l.Fault.What + "; " + l.Fault.Next
	case l.Conflict != nil:
		line += " " + conflict(*l.Conflict)
	case l.Member != nil:
		line += " " + word(l.Member.Node, l.Member.ID)
		for _, f := range l.Fields {
			line += " " + string(f)
		}
		line += " (" + sources(l.Member.Sources[roster.FieldID]) + ")"
	case l.What == announce.Listed:
		line += ": these are known"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
