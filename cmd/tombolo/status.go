// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func newStatusCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use:     "status [CLUSTER]",
		Short:   "Show who is connected to the hub, since when, and why others left",
		Example: "  tombolo status\n  tombolo status c1 -o json",
		Args:    atMostOne("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			path := "/v1/status"
			if len(args) == 1 {
				path += "?cluster=" + url.QueryEscape(args[0])
			}
			var st admin.Status
			if err := client.Call(cmd.Context(), http.MethodGet, path, nil, &st); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error {
				return printStatus(w, st, len(args) == 1, time.Now())
			})
		},
	}
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

func printStatus(w io.Writer, st admin.Status, detail bool, now time.Time) error {
	draining := ""
	if st.Hub.Draining {
		draining = ", draining"
	}
	fmt.Fprintf(w, "hub %s, running for %s%s, reached at %s\n", st.Hub.Version, span(now.Sub(st.Hub.Since)), draining,
		strings.Join(st.Hub.Advertise, ", "))
	if st.Hub.STUN != nil {
		fmt.Fprintln(w, stunLine(*st.Hub.STUN))
	}
	printMemory(w, st.Hub.Memory)
	printPolicy(w, st.Policy)
	if g := st.Hub.WireGuard; g != nil {
		fmt.Fprintf(w, "wireguard %s: %s on, %d addresses free, endpoints %s\n", g.Range, plural(g.Clusters, "cluster"),
			g.Free, strings.Join(g.Endpoints, ", "))
	}
	if len(st.Clusters) == 0 {
		fmt.Fprintln(w, "no cluster is registered yet: tombolo token create --cluster NAME")
	} else {
		fmt.Fprintln(w)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "CLUSTER\tAGENT\tSTATE\tFOR\tRTT\tCONNECTIONS\tSTREAMS\tIN\tOUT\tLAST DISCONNECT")
		for _, c := range st.Clusters {
			if len(c.Agents) == 0 {
				fmt.Fprintf(tw, "%s\t-\tno agent since the hub started\t\t\t\t\t\t\t\n", c.Name)
			}
			for _, a := range c.Agents {
				fmt.Fprintln(tw, c.Name+"\t"+agentRow(a, now))
			}
		}
		tw.Flush()
	}
	if detail {
		for _, c := range st.Clusters {
			printCluster(w, c)
			printLimits(w, c)
		}
	} else {
		printHits(w, st.Clusters)
	}
	printRevoked(w, st)
	for _, warn := range st.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", warn)
	}
	return nil
}

func printPolicy(w io.Writer, p *admin.PolicyStatus) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "policy of %d rules in %d files%s\n", p.Rules, p.Files, orNothing(", version ", p.Version))
	if p.Refusal != nil {
		printRefusal(w, p.Refusal)
	}
}

func printRefusal(w io.Writer, r *admin.PolicyRefusal) {
	if r.New {
		fmt.Fprintf(w, "warning: %s is not in force since %s: %s\n", r.File, moment(r.At), r.Reason)
		return
	}
	fmt.Fprintf(w, "warning: since %s the last good content of %s stays in force: %s\n", moment(r.At), r.File, r.Reason)
}

func agentRow(a admin.AgentStatus, now time.Time) string {
	state, since, last := "gone", "", "-"
	if a.LastDisconnect != nil {
		since, last = span(now.Sub(a.LastDisconnect.At)), a.LastDisconnect.Reason
	}
	rtt, connections, streams := "-", "-", "-"
	if a.Connected {
		state, since, rtt, streams = "connected", span(now.Sub(a.Since)), millis(a.RTTMillis), fmt.Sprint(a.Streams)
		connections = fmt.Sprint(a.Connections)
		if a.Draining {
			state = "draining"
		}
	}
	return strings.Join([]string{
		a.ID, state, since, rtt, connections, streams, size(a.BytesIn), size(a.BytesOut), last,
	}, "\t")
}

// orNothing puts before in front of a text, unless the text is empty, as from an older hub.
func orNothing(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

func printCluster(w io.Writer, c admin.ClusterStatus) {
	if c.Policy != "" {
		fmt.Fprintf(w, "\npolicy %s\n  version   %s\n", c.Name, c.Policy)
	}
	for _, a := range c.Agents {
		fmt.Fprintf(w, "\nagent %s\n", a.ID)
		if a.Connected {
			fmt.Fprintf(w, "  peer      %s, %s, %s\n", a.Peer, a.Software, connectionsOf(a.Connections))
			if !a.CertificateEnd.IsZero() { // an agent of konnectivity has one of its own
				fmt.Fprintf(w, "  identity  until %s\n", moment(a.CertificateEnd))
			}
		}
		if l := a.LastLoss; l != nil {
			fmt.Fprintf(w, "  lost      %d of its connections, the last at %s: %s, %s\n", a.ConnectionsLost, moment(l.At),
				l.Cause, l.Reason)
		}
		fmt.Fprintf(w, "  ranges    %s\n", orNone(a.Ranges))
	}
	printRelay(w, c.Relay)
	for _, p := range c.Ports {
		fmt.Fprintf(w, "\nport %s\n  target    %s\n  streams   %d\n", p.Name, p.Target, p.Streams)
	}
	for _, s := range c.Sockets {
		fmt.Fprintf(w, "\nsocket %s\n  path      %s\n", s.Protocol, s.Path)
	}
}

// revokedShown bounds the revoked identities that are printed; -o json has more.
const revokedShown = 10

func printRevoked(w io.Writer, st admin.Status) {
	if len(st.Revoked) == 0 {
		return
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "REVOKED\tNAME\tAT\tSERIAL")
	for _, r := range st.Revoked[:min(len(st.Revoked), revokedShown)] {
		name := r.Name
		if r.Cluster != "" {
			name = r.Cluster + "/" + name
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.Role, name, moment(r.Revoked), cmp.Or(r.Serial, "all"))
	}
	tw.Flush()
	if more := len(st.Revoked) + st.RevokedMore - revokedShown; more > 0 {
		fmt.Fprintf(w, "and %d more: tombolo status -o json\n", more)
	}
}

// printRelay prints the relay between the cluster's nodes, if it is in use.
func printRelay(w io.Writer, r *admin.RelayStatus) {
	if r == nil {
		return
	}
	refused := ""
	if r.Refused > 0 {
		refused = fmt.Sprintf(", %d refused for want of a place", r.Refused)
	}
	fmt.Fprintf(w, "\nrelay\n  nodes     %d connected%s\n  passed    %d packets, %s\n  dropped   %d slow readers, %d "+
		"beyond a rate, %d absent, %d foreign\n",
		r.Nodes, refused, r.Packets, size(r.Bytes), r.Dropped.Queue, r.Dropped.Rate, r.Dropped.Absent, r.Dropped.Foreign)
	if len(r.Connected) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  NODE\tPEER\tSINCE\tPACKETS\tBYTES\tDROPPED\tLOST")
	for _, n := range r.Connected {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%d\t%s\t%d\t%d\n", n.Name, n.Peer, moment(n.Since), n.Packets, size(n.Bytes),
			n.Dropped, n.Lost)
	}
	tw.Flush()
	if more := r.Nodes - len(r.Connected); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

func connectionsOf(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none: this agent reaches nothing (start it with --allow)"
	}
	return strings.Join(s, ", ")
}

func millis(ms float64) string {
	if ms == 0 {
		return "-"
	}
	if ms < 10 {
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}

// moment renders a time with its zone.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// span rounds a duration to two units, as people say it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// size renders bytes in powers of 1000, as network figures are.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f /= 1000
		i++
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f%s", math.Floor(f), units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}

func newPingCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var count int
	cmd := &cobra.Command{
		Use:     "ping CLUSTER",
		Short:   "Measure the round trip from the hub to each agent of a cluster",
		Example: "  tombolo ping c1\n  tombolo ping c1 -c 1 -o json",
		Args:    exactArgs("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			if count < 1 {
				return usage("--count must be at least 1", "tombolo ping CLUSTER -c 4")
			}
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			var failed error
			for i := range count {
				var r admin.PingResult
				path := "/v1/clusters/" + url.PathEscape(args[0]) + "/ping"
				if err := client.Call(cmd.Context(), http.MethodPost, path, nil, &r); err != nil {
					return err
				}
				failed = nil
				err := out.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
					for _, a := range r.Agents {
						if a.Fault != nil {
							fmt.Fprintf(w, "%s: %s\n", a.ID, a.Fault.Fault().Error())
							continue
						}
						fmt.Fprintf(w, "%s: %.2f ms\n", a.ID, a.RTTMillis)
					}
					return nil
				})
				if err != nil {
					return err
				}
				for _, a := range r.Agents {
					if a.Fault != nil {
						failed = a.Fault.Fault()
					}
				}
				if i < count-1 {
					select {
					case <-tick.C:
					case <-cmd.Context().Done():
						return fault.From(cmd.Context().Err())
					}
				}
			}
			return failed
		},
	}
	cmd.Flags().IntVarP(&count, "count", "c", 4, "how many rounds, one each second")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}
