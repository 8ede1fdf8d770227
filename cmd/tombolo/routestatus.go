// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/route"
)

// routeSocketFlag names the admin socket of a 'tombolo route'.
type routeSocketFlag struct{ path string }

func (f *routeSocketFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "admin-socket", route.AdminSocket(route.DefaultRunDir),
		"`PATH` of the admin socket of 'tombolo route' (env TOMBOLO_ROUTE_SOCKET)")
}

// ask asks the one that runs here.
func (f *routeSocketFlag) ask(cmd *cobra.Command, path string, out any) error {
	socket := f.path
	if env := os.Getenv("TOMBOLO_ROUTE_SOCKET"); env != "" && !cmd.Flags().Changed("admin-socket") {
		socket = env
	}
	err := askSocket(cmd.Context(), adminWait, at{socket, patient{cmd.ErrOrStderr()}}, path, out)
	if !fault.Has(err, fault.CodeHubAway) && !fault.Has(err, fault.CodeServiceAway) {
		return err
	}
	was := fault.From(err)
	return fault.New(fault.CodeRouteAway, "no 'tombolo route' answers at "+socket).Because(was.Unwrap()).
		Whyf("%s", was.Why).
		Hint("start it, or name its socket with --admin-socket; only its user and root may ask")
}

func newRouteStatusCommand() *cobra.Command {
	var out outputFlag
	var socket routeSocketFlag
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show which clusters are reached here, by which ranges and through which hubs",
		Example: "  tombolo route status\n  tombolo route status -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st admin.RouteStatus
			if err := socket.ask(cmd, "/v1/status", &st); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error { return printRoute(w, st, time.Now()) })
		},
	}
	socket.register(cmd)
	out.register(cmd)
	return cmd
}

func printRoute(w io.Writer, st admin.RouteStatus, now time.Time) error {
	draining := ""
	if st.Draining {
		draining = ", draining"
	}
	fmt.Fprintf(w, "route %s, running for %s%s, probes and metrics on %s\n", st.Version, span(now.Sub(st.Since)), draining,
		st.HealthListen)
	fmt.Fprintf(w, "link %s with %s, table %d, rule %d\n", st.Link, strings.Join(st.Addresses, " and "), st.Table, st.Rule)
	if len(st.Resolver) > 0 {
		fmt.Fprintf(w, "names are resolved at %s\n", strings.Join(st.Resolver, " and "))
	}
	fmt.Fprintf(w, "%d of %s open\n", st.Open, plural(st.Limit, "connection"))
	for _, c := range st.Clusters {
		fmt.Fprintf(w, "\ncluster %s, %s open\n", c.Name, plural(c.Open, "connection"))
		if c.Identity == "" {
			fmt.Fprintln(w, "  warning: its certificate cannot be read")
		} else {
			fmt.Fprintf(w, "  as %s, until %s\n", c.Identity, moment(c.Expires))
		}
		for _, r := range c.Ranges {
			as := ""
			if r.As != "" {
				as = " as " + r.As
			}
			fmt.Fprintf(w, "  %s%s\n", r.Range, as)
		}
		if c.DNS != nil {
			fmt.Fprintf(w, "  names under %s, asked of %s\n", zoneText(c.DNS), c.DNS.Server)
			if c.DNS.Failed != "" {
				fmt.Fprintf(w, "    the last one: %s\n", c.DNS.Failed)
			}
		}
		for _, h := range c.Hubs {
			switch {
			case h.Failed != "":
				fmt.Fprintf(w, "  hub %s: %s\n", h.Address, h.Failed)
			case h.Answered.IsZero():
				fmt.Fprintf(w, "  hub %s: not asked yet\n", h.Address)
			default:
				fmt.Fprintf(w, "  hub %s: answered %s ago\n", h.Address, span(now.Sub(h.Answered)))
			}
		}
	}
	return nil
}

// zoneText are the names of a cluster, here and there.
func zoneText(d *admin.RouteDNS) string {
	if d.Zone == d.Domain {
		return d.Zone
	}
	return d.Zone + ", which are under " + d.Domain + " there"
}

func printRouteTo(w io.Writer, e admin.RouteExplanation) error {
	switch {
	case e.Resolver:
		_, err := fmt.Fprintf(w, "%s is the resolver: it answers questions for the names of clusters\n", e.Asked)
		return err
	case e.DNS != nil:
		fmt.Fprintf(w, "%s: its name is %s in cluster %s, where %s is asked for it\n", e.Asked, e.Target, e.Cluster,
			e.DNS.Server)
		if e.DNS.Failed != "" {
			fmt.Fprintf(w, "the last question: %s\n", e.DNS.Failed)
		}
		fmt.Fprintf(w, "whether it may be asked: tombolo policy explain %s %s --as %s\n", e.Cluster, e.DNS.Server,
			e.Identity)
		_, err := fmt.Fprintln(w, "where a connection leads: tombolo route explain ADDRESS:PORT,",
			"with the address in the answer")
		return err
	}
	as := ""
	if e.Range.As != "" {
		as = ", which is reached as " + e.Range.As
	}
	fmt.Fprintf(w, "%s is %s in cluster %s, by the range %s%s\n", e.Asked, e.Target, e.Cluster, e.Range.Range, as)
	_, err := fmt.Fprintf(w, "whether it may: tombolo policy explain %s %s --as %s\n", e.Cluster, e.Target, e.Identity)
	return err
}

func newRouteExplainCommand() *cobra.Command {
	var out outputFlag
	var socket routeSocketFlag
	cmd := &cobra.Command{
		Use:   "explain ADDRESS:PORT | NAME",
		Short: "Say where a connection to an address would lead, or who is asked for a name, and how to ask whether it may",
		Example: `  tombolo route explain 240.1.3.4:443
  tombolo route explain '[fd00:20::4]:443'
  tombolo route explain web.shop.svc.c2.internal`,
		Args: exactArgs("ADDRESS:PORT or NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var e admin.RouteExplanation
			if err := socket.ask(cmd, "/v1/explain?target="+url.QueryEscape(args[0]), &e); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), e, func(w io.Writer) error { return printRouteTo(w, e) })
		},
	}
	socket.register(cmd)
	out.register(cmd)
	return cmd
}
