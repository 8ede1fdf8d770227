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
	"github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// linkChecks is what the nodes have found.
type linkChecks struct {
	admin.Meta
	Nodes []checkedNode `json:"nodes"`
}

// checkedNode is what one node has found, or why it has not.
type checkedNode struct {
	Node     string           `json:"node"`
	Findings []check.Finding  `json:"findings"`
	Fault    *admin.FaultBody `json:"fault,omitempty"`
}

// linkCheckFlags say what is checked.
type linkCheckFlags struct {
	cluster string
	dns     []string
	wait    time.Duration
	all     bool
}

func (f *linkCheckFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.cluster, "cluster", "", "check what leads to this `CLUSTER` only")
	fl.StringArrayVar(&f.dns, "dns", nil,
		"`CLUSTER=ADDRESS` of a DNS Service that is not the 10th address of its range; may be repeated")
	fl.DurationVar(&f.wait, "wait", limit.MeshPing, "how long the first echo to a peer may take, at most 5s")
	fl.BoolVar(&f.all, "all", false, "show what is well too")
}

// query is the request to a node.
func (f *linkCheckFlags) query() (url.Values, error) {
	q := url.Values{"wait": {f.wait.String()}}
	if f.cluster != "" {
		q.Set("cluster", f.cluster)
	}
	if f.wait <= 0 || f.wait > limit.MeshPing {
		return nil, usage(fmt.Sprintf("--wait %v is not within 0s and %v", f.wait, limit.MeshPing), "--wait 5s")
	}
	for _, text := range f.dns {
		name, at, _ := strings.Cut(text, "=")
		if _, err := netip.ParseAddr(at); err != nil || name == "" {
			return nil, usage(fmt.Sprintf("--dns %.80q is not CLUSTER=ADDRESS", text), "--dns west=10.102.0.10")
		}
		q.Add("dns", text)
	}
	return q, nil
}

func newLinkCheckCommand() *cobra.Command {
	var flags linkCheckFlags
	var from meshFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "check", Short: "Measure whether linked clusters are reached, and say what to do where not",
		Args: exactArgs(),
		Long: `Measure from this node, to all its peers in other clusters at the same time: an echo
through the tunnel, which packets pass (echoes of several sizes without fragments), an
echo from an address of its pods, so that masquerade, the way back and the check of
sources (rp_filter) are seen at work, and a question to the DNS Service of each cluster.
Forwarding, NAT that is asked before the mesh, and the kernel are looked at too.

Each finding that is not well says what to do next. The exit code is 1 if packets are
lost. A node measures towards 256 peers; name one cluster for others.`,
		Example: "  tombolo link check\n  tombolo link check --cluster west --all\n  tombolo link check --dns west=10.102.0.53",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.query()
			if err != nil {
				return err
			}
			node, err := checkHere(cmd.Context(), &from, q)
			if err != nil {
				return err
			}
			all := linkChecks{hub.Meta("LinkChecks"), []checkedNode{node}}
			text := func(w io.Writer) error { return all.text(w, flags.all) }
			if err := out.print(cmd.OutOrStdout(), all, text); err != nil {
				return err
			}
			return all.verdict()
		},
	}
	flags.register(cmd)
	from.register(cmd)
	out.register(cmd)
	return cmd
}

// checkHere has the node of this machine measure.
func checkHere(ctx context.Context, from *meshFlags, q url.Values) (checkedNode, error) {
	var c mesh.LinkCheck
	err := from.call(ctx, http.MethodPost, "/v1/links/check?"+q.Encode(), &c)
	return checkedNode{Node: c.Node, Findings: inJSON(c.Findings)}, err
}

func (c linkChecks) text(w io.Writer, all bool) error {
	for _, n := range c.Nodes {
		if n.Fault != nil {
			fmt.Fprintf(w, "%s: not checked: %s\n", n.Node, n.Fault.Fault().Explain())
			continue
		}
		counts := map[string]int{}
		for _, f := range n.Findings {
			counts[f.State]++
		}
		fmt.Fprintf(w, "%s: ok: %d, unknown: %d, warnings: %d, problems: %d\n", n.Node, counts[check.OK],
			counts[check.Unknown], counts[check.Warning], counts[check.Problem])
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, f := range n.Findings {
			if f.State == check.OK && !all {
				continue
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", f.State, f.Check, cmp.Or(f.Peer, f.Cluster, "-"), f.Detail)
			if f.Next != "" {
				fmt.Fprintf(t, "  \t\t\tnext: %s\n", f.Next)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// verdict is an error if packets are lost, or nobody could be asked.
func (c linkChecks) verdict() error {
	problems, silent := 0, 0
	for _, n := range c.Nodes {
		if n.Fault != nil {
			silent++
		}
		for _, f := range n.Findings {
			if f.State == check.Problem {
				problems++
			}
		}
	}
	switch {
	case problems > 0:
		return fault.Newf(fault.CodeDialUnreachable, "%s between linked clusters", plural(problems, "problem")).
			Hint("each says above what to do next")
	case silent > 0:
		return fault.Newf(fault.CodeDialUnreachable, "%s could not be checked", plural(silent, "node")).Hint("see above why")
	}
	return nil
}
