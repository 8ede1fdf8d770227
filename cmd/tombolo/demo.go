// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var rootless, mesh bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine what Tombolo does, in less than a minute",
		Long: `Builds a control plane and two clusters behind NAT, both with the same address
range, in network namespaces of this machine; runs a hub, an edge in front of it and
two agents in them; shows who is connected, fetches from both clusters through the
hub, shows that a direct dial fails, that a metadata address is refused, and that the
edge refuses a source that no rule allows, how long recovery from a killed agent takes, and the throughput
next to that of the direct link.

It needs root for the namespaces, changes nothing outside of them, and removes
everything when it ends, also on Ctrl-C. With --rootless it runs on 127.0.0.x:
dials, refusals and recovery only.

With --mesh it shows the mesh instead: three nodes behind three kinds of NAT become
one network; a path is cut while packets flow, they continue through the relay,
and return to the direct path; and nothing is found in clear on the wires.`,
		Example: "  sudo tombolo demo\n  tombolo demo --rootless\n  sudo tombolo demo --mesh",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fault.New(fault.CodeDemo, "this program, which the demo runs again and again, cannot be found").Because(err).
					Hint("start it by its full path")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			// `tombolo demo | head` must clean up after itself: the demo sees
			// that its output is gone, instead of being killed by the signal.
			signal.Ignore(syscall.SIGPIPE)
			defer signal.Reset(syscall.SIGPIPE)
			return demo.Run(ctx, demo.Options{
				Program: program, Rootless: rootless, Mesh: mesh,
				Screen: demoScreen(cmd.OutOrStdout()), Errors: cmd.ErrOrStderr(),
			})
		},
	}
	cmd.Flags().BoolVar(&rootless, "rootless", false, "play on 127.0.0.x instead of in network namespaces")
	cmd.Flags().BoolVar(&mesh, "mesh", false, "show nodes behind NAT that become one network")
	return cmd
}

// demoScreen finds out what the output can do: colour and overwriting only on
// a terminal, no colour where NO_COLOR is set (no-color.org).
func demoScreen(out io.Writer) *demo.Screen {
	screen := &demo.Screen{Out: out}
	file := fileOf(out)
	if file == nil || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return screen
	}
	screen.Live = true
	screen.Color = os.Getenv("NO_COLOR") == ""
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		screen.Width = width
	}
	return screen
}
