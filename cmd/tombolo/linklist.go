// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// linkList is the answer of 'tombolo link list' as JSON.
type linkList struct {
	admin.Meta
	invite.List
}

func newLinkListCommand() *cobra.Command {
	var kube kubeFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "list", Short: "Show the linked clusters, and what is not well with each",
		Args: exactArgs(),
		Long: `Shows the linked clusters, at the host cluster or at a member: how they are linked, the ranges
by which others reach them, how many nodes are ready and through how many tunnels packets
pass. Below the table stands what is not well, and why. At the host cluster the join lines
that were not used yet are shown too.`,
		Example: "  tombolo link list\n  tombolo link list --context host -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := kube.order(cmd, invite.Order{List: &invite.ListOrder{}})
			if err != nil {
				return err
			}
			l := linkList{hub.Meta("LinkList"), invite.List{}}
			if answer.List != nil {
				l.List = *answer.List
			}
			return out.print(cmd.OutOrStdout(), l, func(w io.Writer) error { return printLinks(w, l.List) })
		},
	}
	kube.register(cmd)
	out.register(cmd)
	return cmd
}

// printLinks is a table, and below it what is not well.
func printLinks(w io.Writer, l invite.List) error {
	if len(l.Clusters) == 0 {
		fmt.Fprintln(w, "no cluster is linked yet: tombolo link token CLUSTER at the host cluster")
	} else {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "CLUSTER\tREADY\tTYPE\tNODES\tTUNNELS\tGATEWAYS\tRANGES")
		for _, c := range l.Clusters {
			ready := "no"
			if c.Ready {
				ready = "yes"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, ready, c.NetworkType, c.Nodes, c.Tunnels,
				cmp.Or(strings.Join(c.Gateways, ","), "-"), cmp.Or(shortRanges(c.Ranges), "-"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	for _, c := range l.Clusters {
		for _, p := range c.Problems {
			fmt.Fprintf(w, "%s: %s\n", c.Name, p)
		}
	}
	for _, p := range l.Pending {
		state := "can be used until " + p.Expires
		if p.Expired {
			state = "expired at " + p.Expires
		}
		fmt.Fprintf(w, "%s: a join line was not used yet, and %s\n", p.Cluster, state)
	}
	return nil
}

// shortRanges has the first ranges, and counts the others.
func shortRanges(list []string) string {
	const most = 4
	text := strings.Join(list[:min(len(list), most)], ",")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
