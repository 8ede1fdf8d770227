// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// linkChecks is what the nodes have found.
type linkChecks struct {
	admin.Meta
	Nodes []check.Node `json:"nodes"`
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

// args are the flags for another node.
func (f *linkCheckFlags) args() []string {
	out := []string{"--wait", f.wait.String()}
	if f.cluster != "" {
		out = append(out, "--cluster", f.cluster)
	}
	for _, d := range f.dns {
		out = append(out, "--dns", d)
	}
	return out
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
	var kube kubeFlags
	var nodes bool
	cmd := &cobra.Command{
		Use: "check", Short: "Measure whether linked clusters are reached, and say what to do where not",
		Args: exactArgs(),
		Long: `Measure from this node, to all its peers in other clusters at the same time: an echo
through the tunnel, which packets pass (echoes of several sizes without fragments), an
echo from an address of its pods, so that masquerade, the way back and the check of
sources (rp_filter) are seen at work, and a question to the DNS Service of each cluster.
Forwarding, NAT that is asked before the mesh, and the kernel are looked at too.

With --nodes, --kubeconfig or --context all nodes of that cluster measure, many at the
same time, by a command in the mesh's pod of each. One that cannot be asked says why.

Each finding that is not well says what to do next. The exit code is 1 if packets are
lost. A node measures towards 256 peers; name one cluster for others.`,
		Example: `  tombolo link check
  tombolo link check --nodes
  tombolo link check --cluster west --all
  tombolo link check --dns west=10.102.0.53`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.query()
			if err != nil {
				return err
			}
			all := linkChecks{hub.Meta("LinkChecks"), nil}
			if nodes || kube != (kubeFlags{}) {
				var answer invite.Answer
				answer, err = kube.order(cmd, invite.Order{Check: &invite.CheckOrder{Args: flags.args()}})
				all.Nodes = inJSON(answer.Checked)
			} else {
				var node check.Node
				node, err = checkHere(cmd.Context(), &from, q)
				all.Nodes = []check.Node{node}
			}
			if err != nil {
				return err
			}
			text := func(w io.Writer) error { return check.Print(w, all.Nodes, flags.all) }
			if err := out.print(cmd.OutOrStdout(), all, text); err != nil {
				return err
			}
			return all.verdict()
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&nodes, "nodes", false, "have all nodes of the cluster measure")
	kube.register(cmd)
	from.register(cmd)
	out.register(cmd)
	return cmd
}

// checkHere has the node of this machine measure.
func checkHere(ctx context.Context, from *meshFlags, q url.Values) (check.Node, error) {
	var c mesh.LinkCheck
	err := from.call(ctx, http.MethodPost, "/v1/links/check?"+q.Encode(), &c)
	return check.Node{Node: c.Node, Findings: inJSON(c.Findings)}, err
}

// verdict is an error if packets are lost, or nobody could be asked.
func (c linkChecks) verdict() error {
	problems, silent := 0, 0
	for _, n := range c.Nodes {
		if n.Why != "" {
			silent++
		}
		problems += n.Count(check.Problem)
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
