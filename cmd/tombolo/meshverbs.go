// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

func newMeshStatusCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	var candidates bool
	cmd := &cobra.Command{
		Use: "status [PEER]", Short: "Show the peers of this node: by which path each is reached, and why",
		Args: atMostOne("PEER"),
		Long: `Show this node and its peers: whether a peer is reached directly or through a relay,
and why not otherwise; the round trip, the age of the last handshake, bytes, and with
--candidates (or a PEER) every path that was tried, and the result. Warnings at the
end say, among others, why a changed configuration was refused, and which of its
settings wait for a restart.`,
		Example: "  tombolo mesh status\n  tombolo mesh status node-2\n  tombolo mesh status -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			var st mesh.Status
			err := from.until(cmd.Context(), func() error {
				st = mesh.Status{}
				if err := from.call(cmd.Context(), http.MethodGet, "/v1/status", &st); err != nil || len(args) == 0 {
					return err
				}
				p, err := st.Peer(args[0])
				st.Peers = []mesh.Peer{p}
				return err
			})
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error {
				return printMesh(w, st, candidates || len(args) == 1, time.Now())
			})
		},
	}
	cmd.ValidArgsFunction = from.completePeer
	cmd.Flags().BoolVar(&candidates, "candidates", false, "every way that was tried to each peer")
	from.register(cmd)
	out.register(cmd)
	return cmd
}

func printMesh(w io.Writer, st mesh.Status, candidates bool, now time.Time) error {
	fmt.Fprintf(w, "node %s %s, running for %s, link %s (mtu %d), UDP port %d\n", st.Node, st.Version,
		span(now.Sub(st.Since)), st.Link, st.MTU, st.Port)
	address := "no address yet"
	if st.Overlay6.IsValid() {
		address = "address " + st.Overlay6.String() + orNothing(" and ", addressText(st.Overlay4))
	}
	fmt.Fprintf(w, "%s, key %s, pin %s\n", address, st.PublicKey, st.Pin)
	fmt.Fprintf(w, "engine %s: %s\n", st.Engine, st.EngineWhy)
	if b := st.Beside; b != nil {
		fmt.Fprintf(w, "engine %s beside it: for nodes without %s, %s now, UDP port %d\n", b.Engine, st.Engine,
			plural(b.Peers, "peer"), b.Port)
	}
	if !st.InForce {
		tried := ""
		if st.Tries > 1 {
			tried = fmt.Sprintf(" (tried %d times)", st.Tries)
		}
		fmt.Fprintf(w, "warning: the kernel is not as it shall be%s%s\n", tried, orNothing(": ", faultText(st.Fault)))
	}
	for _, e := range st.Endpoints {
		fmt.Fprintf(w, "reached at %s (%s)\n", e.At, e.Kind)
	}
	for _, line := range announcedLines(st.Announced) {
		fmt.Fprintln(w, line)
	}
	if r := st.Router; r != nil && r.Method != "" {
		fmt.Fprintf(w, "port mapped by the router: %s (%s)\n", r.External, r.Method)
	}
	for _, h := range st.Hubs {
		fmt.Fprintln(w, hubLine(h, now))
	}
	if i := st.Identity; i != nil && i.Fault != nil {
		fmt.Fprintf(w, "warning: %s\n", i.Fault.Fault().Error())
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PEER\tADDRESS\tSTATE\tBY\tFOR\tRTT\tHANDSHAKE\tSENT\tRECEIVED\tWHY")
	for _, p := range st.Peers {
		fmt.Fprintln(t, peerRow(p, now))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(st.Peers) == 0 && !st.Sourceless { // a warning says it then
		fmt.Fprintf(w, "no peer is known under the secret%s: this node is the first one, or the others have another "+
			"secret ('tombolo discovery secret show FILE' names one).\n", orNothing(" ", strings.Join(st.Secrets, " or ")))
		fmt.Fprintln(w, "'tombolo discovery members' shows whom discovery knows, and which services it has asked")
	}
	if candidates {
		for _, p := range st.Peers {
			printCandidates(w, p, now)
		}
	}
	printClosed(w, st.Closed, now)
	for _, p := range st.Problems {
		fmt.Fprintf(w, "problem: %s: %s%s: %s\n", p.Kind, p.Node, orNothing(" ", prefixText(p.Range)), p.Why)
	}
	for _, d := range st.Dropped {
		if d.Packets > 0 {
			fmt.Fprintf(w, "dropped: %s: %s\n", d.Reason, plural(int(d.Packets), "packet"))
		}
	}
	printIPsecErrors(w, st)
	for _, warn := range st.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warn)
	}
	return nil
}

func hubLine(h mesh.Hub, now time.Time) string {
	switch {
	case h.Connected:
		return fmt.Sprintf("relay %s at %s for %s, round trip %s", h.Name, h.Address, span(now.Sub(h.Since)), millis(h.RTT))
	case h.Fault != nil:
		return fmt.Sprintf("relay %s is away: %s", cmp.Or(h.Name, h.Address), h.Fault.Fault().Error())
	}
	return fmt.Sprintf("relay %s is being connected to", cmp.Or(h.Name, h.Address))
}

func peerRow(p mesh.Peer, now time.Time) string {
	age := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return span(now.Sub(t))
	}
	address := addressText(p.Overlay4)
	if address == "" {
		address = addressText(p.Overlay6)
	}
	name := cmp.Or(p.Node, p.ID) // its name is another one's
	if p.Stale {
		name += " (stale)"
	}
	return strings.Join([]string{
		name, cmp.Or(address, "-"), p.State, cmp.Or(p.Path, "-"), age(p.Since), millis(p.RTT), age(p.Handshake),
		size(int64(p.Sent)), size(int64(p.Received)), peerWhy(p),
	}, "\t")
}

// peerWhy is why a peer is as it is, and why not the engine of both carries its packets.
func peerWhy(p mesh.Peer) string {
	if p.EngineWhy == "" {
		return p.Why
	}
	by := "by " + p.Engine + ": " + p.EngineWhy
	if p.Why == "" {
		return by
	}
	return by + "; " + p.Why
}

func printCandidates(w io.Writer, p mesh.Peer, now time.Time) {
	fmt.Fprintf(w, "\n%s\n", p.Node)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range p.Ranges {
		fmt.Fprintf(t, "  range\t%s\n", r)
	}
	printAssociations(t, p, now)
	for _, c := range p.Candidates {
		near := ""
		if c.Near {
			near = ", near"
		}
		fmt.Fprintf(t, "  %s\t%s%s\t%d of %s answered\t%s\t%s\n", c.At, cmp.Or(c.Kind, "relay"), near, c.Answers,
			plural(c.Sent, "ping"), millis(c.RTT), c.Why)
	}
	t.Flush()
}

// addressText is empty for no address.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func prefixTexts(ps []netip.Prefix) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

func faultText(f *admin.FaultBody) string {
	if f == nil {
		return ""
	}
	return f.Fault().Error()
}

func newMeshExplainCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "explain IP", Short: "Show how a packet of this machine to an address goes", Args: exactArgs("IP"),
		Long: `Show which set has an address, which mark a packet to it gets, which rule, table and
route apply, and which peer gets it on which path. Nothing is sent.`,
		Example: "  tombolo mesh explain 10.244.2.7",
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return usage(fmt.Sprintf("%q is no address", args[0]), "tombolo mesh explain 10.244.2.7")
			}
			var e mesh.Explanation
			if err := from.call(cmd.Context(), http.MethodGet, "/v1/explain?ip="+url.QueryEscape(ip.String()), &e); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), e, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.TrimRight(e.Text, "\n"))
				return err
			})
		},
	}
	from.register(cmd)
	out.register(cmd)
	return cmd
}

func newMeshPingCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	p := pinging{every: time.Second}
	cmd := &cobra.Command{
		Use: "ping PEER", Short: "Send echoes to a peer through the tunnel, and show by which path they go",
		Args: exactArgs("PEER"),
		Long: `Send ICMP echoes to a peer's overlay address, through the kernel and the tunnel as
all packets go. Each line shows the path at that moment. With --until-direct it
succeeds once the peer is reached directly and has answered, and fails when the
timeout is over.

PEER is the name of its node, its member id, its public key or its overlay address.`,
		Example: "  tombolo mesh ping node-2\n  tombolo mesh ping node-2 --until-direct --timeout 20s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.count < 0 || p.timeout <= 0 {
				return usage("--count is not negative, and --timeout is above 0", "tombolo mesh ping PEER -c 4 --timeout 30s")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
			defer cancel()
			p.ask = func(wait time.Duration) (answer mesh.Ping, err error) {
				err = from.until(ctx, func() error {
					return from.call(ctx, http.MethodPost, "/v1/ping?wait="+wait.String()+"&peer="+url.QueryEscape(args[0]), &answer)
				})
				return answer, err
			}
			p.tell = func(a mesh.Ping) error {
				return out.print(cmd.OutOrStdout(), a, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, pingLine(a))
					return err
				})
			}
			return p.run(ctx)
		},
	}
	cmd.ValidArgsFunction = from.completePeer
	fl := cmd.Flags()
	fl.IntVarP(&p.count, "count", "c", 4, "how many echoes, one each second; 0: until the timeout")
	fl.BoolVar(&p.untilDirect, "until-direct", false, "continue until the peer is reached directly")
	fl.DurationVar(&p.timeout, "timeout", 30*time.Second, "how long at most")
	from.register(cmd)
	out.register(cmd)
	return cmd
}

// pinging is one 'tombolo mesh ping'.
type pinging struct {
	count       int
	untilDirect bool
	timeout     time.Duration
	every       time.Duration
	ask         func(wait time.Duration) (mesh.Ping, error)
	tell        func(mesh.Ping) error
}

func (p *pinging) run(ctx context.Context) error {
	var last mesh.Ping
	answered, start := 0, time.Now()
	for n := 1; p.untilDirect || p.count == 0 || n <= p.count; n++ {
		began := time.Now()
		a, err := p.ask(limit.MeshPing)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		a.Seq, last = n, a
		if err := p.tell(a); err != nil {
			return err
		}
		if a.Fault == nil {
			answered++
		}
		if p.untilDirect && a.Fault == nil && a.State == "direct" {
			return nil
		}
		if n == p.count && !p.untilDirect || !run.Wait(ctx, p.every-time.Since(began)) {
			break
		}
	}
	switch {
	case p.untilDirect:
		return fault.New(fault.CodeDialTimeout, "the peer is not reached directly").
			Whyf("after %v it is %s%s", time.Since(start).Round(100*time.Millisecond), cmp.Or(last.State, "not known"),
				orNothing(": ", last.Why)).
			Hint("'tombolo mesh status PEER' shows each way that was tried, and 'tombolo mesh netcheck' what the network " +
				"lets through")
	case answered == 0 && last.Fault != nil:
		return last.Fault.Fault()
	case answered == 0:
		return fault.New(fault.CodeDialTimeout, "no answer came").Hint("tombolo mesh status PEER")
	}
	return nil
}

func pingLine(a mesh.Ping) string {
	by := a.State
	if a.Path != "" {
		by += " by " + a.Path
	}
	if a.Trip > 0 {
		by += ", path " + millis(a.Trip)
	}
	if a.Fault != nil {
		return fmt.Sprintf("%s (%s): %s; %s%s", a.Node, a.To, a.Fault.Fault().Error(), by, orNothing(": ", a.Why))
	}
	return fmt.Sprintf("%s (%s): %s, %s", a.Node, a.To, millis(a.RTT), by)
}

func newMeshKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Replace this node's WireGuard key pair", Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var from meshFlags
	var out outputFlag
	rotate := &cobra.Command{
		Use: "rotate", Short: "Replace the node's keys", Args: exactArgs(),
		Long: `Draw a new key pair of WireGuard, and a new key of the certificate for IPsec, and use
them at once. Peers learn them by discovery and make a new session then; until they do,
about a second, packets between this node and them wait or are lost. Without a discovery
service that would tell them to the others they are not replaced.

The node's id, addresses and name stay. The key of a cluster's secret is another matter:
see 'tombolo discovery secret'.`,
		Example: "  tombolo mesh keys rotate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done mesh.Rotated
			if err := from.call(cmd.Context(), http.MethodPost, "/v1/keys/rotate", &done); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "the new key is %s; %s will hear of it by discovery\n", done.PublicKey,
					plural(done.Peers, "peer"))
				return err
			})
		},
	}
	from.register(rotate)
	out.register(rotate)
	cmd.AddCommand(rotate)
	return cmd
}
