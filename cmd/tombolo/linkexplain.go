// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/link/explain"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// linkWay is the answer of 'tombolo link explain' as JSON.
type linkWay struct {
	admin.Meta
	explain.Explanation
}

func newLinkExplainCommand() *cobra.Command {
	var kube kubeFlags
	var out outputFlag
	var from string
	cmd := &cobra.Command{
		Use: "explain ADDRESS --from NODE", Short: "Show how packets of a node's pods go to an address, and back",
		Args: exactArgs("ADDRESS"),
		Long: `Show whose an address is, and from node to node how packets of the pods of NODE go there and
how the answers come back, by the plan that each of these nodes makes of the objects, with
the state of the tunnels. Nothing is sent: 'tombolo link check' measures. Objects that do
not count are named with the reason.

NODE is CLUSTER.NODE, as 'kubectl get tcn' shows it, or NODE where only one cluster has it.
'tombolo mesh explain' shows what the kernel of one node does with an address.`,
		Example: "  tombolo link explain 10.2.3.7 --from east.node-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := netip.ParseAddr(args[0])
			if err != nil {
				return usage(fmt.Sprintf("%.60q is no address", args[0]), "tombolo link explain 10.2.3.7 --from east.node-1")
			}
			if from == "" {
				return usage("--from is missing", "name a node: --from CLUSTER.NODE, see kubectl get tcn")
			}
			answer, err := kube.order(cmd, invite.Order{Explain: &invite.ExplainOrder{From: from, To: to.Unmap()}})
			if err != nil {
				return err
			}
			w := linkWay{Meta: hub.Meta("LinkExplanation")}
			if answer.Way != nil {
				w.Explanation = *answer.Way
			}
			return out.print(cmd.OutOrStdout(), w, func(to io.Writer) error {
				_, err := io.WriteString(to, w.String())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`NODE` whose pods send")
	kube.register(cmd)
	out.register(cmd)
	return cmd
}
