// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// edgeSocketFlag names the admin socket of an edge.
type edgeSocketFlag struct{ path string }

func (f *edgeSocketFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "admin-socket", edge.AdminSocket(edge.DefaultRunDir),
		"`PATH` of the edge's admin socket (env TOMBOLO_EDGE_SOCKET)")
}

// ask asks the edge that runs here.
func (f *edgeSocketFlag) ask(cmd *cobra.Command, path string, out any) error {
	socket := f.path
	if env := os.Getenv("TOMBOLO_EDGE_SOCKET"); env != "" && !cmd.Flags().Changed("admin-socket") {
		socket = env
	}
	err := askSocket(cmd.Context(), adminWait, at{socket, patient{cmd.ErrOrStderr()}}, path, out)
	if !fault.Has(err, fault.CodeHubAway) && !fault.Has(err, fault.CodeServiceAway) {
		return err
	}
	was := fault.From(err)
	return fault.New(fault.CodeEdgeAway, "no 'tombolo edge' answers at "+socket).Because(was.Unwrap()).Whyf("%s", was.Why).
		Hint("start it, or name its socket with --admin-socket; only its user and root may ask")
}

func newEdgeStatusCommand() *cobra.Command {
	var out outputFlag
	var socket edgeSocketFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the edge of this machine does",
		Long: `Show the state of the edge that runs on this machine: its ports, the tenants in force
and the files that are refused, the policy, the upstreams that failed lately, and the
tunnels that are open.`,
		Example: "  tombolo edge status\n  tombolo edge status -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st admin.EdgeStatus
			if err := socket.ask(cmd, "/v1/status", &st); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error { return printEdge(w, st, time.Now()) })
		},
	}
	socket.register(cmd)
	out.register(cmd)
	return cmd
}

func printEdge(w io.Writer, st admin.EdgeStatus, now time.Time) error {
	draining := ""
	if st.Draining {
		draining = ", draining"
	}
	fmt.Fprintf(w, "edge %s, running for %s%s, probes and metrics on %s\n", st.Version, span(now.Sub(st.Since)), draining,
		st.HealthListen)
	for _, l := range st.Listeners {
		fmt.Fprintf(w, "%s listens on %s (%s)\n", l.Name, l.Listen, l.Protocol)
	}
	fmt.Fprintf(w, "%s in force\n", plural(st.Tenants.InForce, "tenant"))
	if st.Policy == nil {
		fmt.Fprintln(w, "no policy is configured: tenants that are not protected are open to everybody")
	} else {
		printPolicy(w, st.Policy)
	}
	fmt.Fprintf(w, "%d of %s open, of %s\n", st.Tunnels.Open, plural(st.Tunnels.Limit, "tunnel"),
		plural(st.Tunnels.Clusters, "cluster"))
	for _, a := range st.Tenants.Away {
		fmt.Fprintf(w, "warning: %s says nothing about tenants, those that are known stay: %s\n", a.Source, a.Reason)
	}
	for _, r := range st.Tenants.Refusals {
		printRefusal(w, &r)
	}
	if more := st.Tenants.Refused - len(st.Tenants.Refusals); more > 0 {
		fmt.Fprintf(w, "warning: %s more, of tenants, refused\n", plural(more, "file"))
	}
	if n := st.Unguarded; n.Ways > 0 {
		fmt.Fprintf(w, "alarm: %s past the rules of clusters, see 'tombolo edge coverage': %s\n", plural(n.Ways, "way"),
			strings.Join(n.Clusters, " "))
	}
	for _, u := range st.Ejected {
		fmt.Fprintf(w, "warning: the upstream %s failed lately, and is tried after all others\n", u)
	}
	if len(st.Tunnels.Most) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CLUSTER\tTUNNELS")
	for _, c := range st.Tunnels.Most {
		fmt.Fprintf(t, "%s\t%d\n", c.Cluster, c.Open)
	}
	if more := st.Tunnels.Clusters - len(st.Tunnels.Most); more > 0 {
		fmt.Fprintf(t, "and %d more\t\n", more)
	}
	return t.Flush()
}
