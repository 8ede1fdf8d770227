// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/vpn"
)

func newVPNStatusCommand() *cobra.Command {
	var out outputFlag
	var socket string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the tunnels of the end that runs here, who is connected, and whether packets pass",
		Example: `  tombolo vpn status
  tombolo vpn status --admin-socket /run/tombolo/vpn-client/vpn.sock -o json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := askVPN(cmd, vpnSockets(socket, os.Getenv("TOMBOLO_VPN_SOCKET")))
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error { return printVPN(w, st, time.Now()) })
		},
	}
	cmd.Flags().StringVar(&socket, "admin-socket", "", "`PATH` of the admin socket of 'tombolo vpn' (default "+
		vpn.ServerSocket(vpn.DefaultRunDir)+" or "+vpn.ClientSocket(vpn.DefaultRunDir)+"; env TOMBOLO_VPN_SOCKET)")
	out.register(cmd)
	return cmd
}

// vpnSockets are those that are asked, in turn.
func vpnSockets(flag, env string) []string {
	switch {
	case flag != "":
		return []string{flag}
	case env != "":
		return []string{env}
	}
	return []string{vpn.ServerSocket(vpn.DefaultRunDir), vpn.ClientSocket(vpn.DefaultRunDir)}
}

func askVPN(cmd *cobra.Command, sockets []string) (st admin.VPNStatus, err error) {
	for _, socket := range sockets {
		err = askSocket(cmd.Context(), adminWait, at{socket, patient{cmd.ErrOrStderr()}}, "/v1/status", &st)
		if !fault.Has(err, fault.CodeHubAway) && !fault.Has(err, fault.CodeServiceAway) {
			return st, err
		}
	}
	was := fault.From(err)
	return st, fault.New(fault.CodeVPNAway, "no 'tombolo vpn' answers at "+strings.Join(sockets, " or ")).
		Because(was.Unwrap()).Whyf("%s", was.Why).
		Hint("start it, or name its socket with --admin-socket; only its user and root may ask")
}

func printVPN(w io.Writer, st admin.VPNStatus, now time.Time) error {
	draining := ""
	if st.Draining {
		draining = ", draining"
	}
	fmt.Fprintf(w, "vpn %s of cluster %s, %s with OpenVPN %s, running for %s%s, probes and metrics on %s\n", st.End,
		st.Cluster, st.Version, st.OpenVPN, span(now.Sub(st.Since)), draining, st.HealthListen)
	if st.Identity != "" {
		fmt.Fprintf(w, "as %s, until %s\n", st.Identity, moment(st.Expires))
	}
	if st.Unready == "" {
		fmt.Fprintln(w, "ready: packets pass")
	} else {
		fmt.Fprintf(w, "not ready: %s\n", st.Unready)
		if st.Next != "" {
			fmt.Fprintf(w, "  try: %s\n", st.Next)
		}
	}
	for _, r := range st.Ranges {
		as := ""
		if r.As != "" {
			as = " as " + r.As
		}
		fmt.Fprintf(w, "  %s%s\n", r.Range, as)
	}
	for _, r := range st.Routes {
		fmt.Fprintf(w, "  %s, on the server's side\n", r)
	}
	if st.Connect != "" {
		fmt.Fprintf(w, "CONNECT on %s, %d open\n", st.Connect, st.Open)
	}
	for _, t := range st.Tunnels {
		fmt.Fprintf(w, "\nlink %s with %s, table %d\n", t.Link, listed(t.Addresses), t.Table)
		if t.Server != "" {
			by := ""
			switch {
			case t.Proxy != "":
				by = " by the proxy " + t.Proxy
			case t.By != "":
				by = " by " + t.By
			}
			fmt.Fprintf(w, "  server %s%s: %s for %s, %d bytes in, %d out\n", t.Server, by, t.State, span(now.Sub(t.Since)),
				t.In, t.Out)
		}
		if t.Unready != "" {
			fmt.Fprintf(w, "  %s\n", t.Unready)
		}
	}
	for _, p := range st.Peers {
		role := "stands by"
		if p.Active {
			role = "has the ranges"
		}
		answered := "has not answered yet"
		if !p.Answered.IsZero() {
			answered = "answered " + span(now.Sub(p.Answered)) + " ago"
		}
		fmt.Fprintf(w, "  client %s from %s, %s, %s, %d bytes in, %d out\n", p.Name, p.From, role, answered, p.In, p.Out)
	}
	return nil
}

func listed(all []string) string {
	if len(all) == 0 {
		return "no address yet"
	}
	return strings.Join(all, " and ")
}
