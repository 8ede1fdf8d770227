// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke the join tokens of agents",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreateCommand(), newTokenListCommand(), newTokenRevokeCommand())
	return cmd
}

func newTokenCreateCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var cluster string
	var ttl time.Duration
	var uses int
	var node string
	cmd := &cobra.Command{
		Use:   "create --cluster NAME",
		Short: "Print the command with which an agent joins, or the line for nodes; a new cluster is registered",
		Long: `Print the one line with which an agent of the cluster joins this hub. The token
in it works once (or --uses times, for the replicas of a Deployment), lives 15
minutes unless --ttl says otherwise, and is stored only as a hash: the line is
shown here and never again.

With --node it is for nodes of the mesh, which name themselves; with --node=NAME only
for the node of that name. Then only the line is printed, for --join of
'tombolo mesh', or mesh.join in its configuration. Only nodes that joined use the
relay of this hub.`,
		Example: `  tombolo token create --cluster c1
  tombolo token create --cluster c1 --uses 3 --ttl 24h -o json
  tombolo token create --cluster c1 --node=worker-1`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cluster == "" {
				return usage("--cluster is missing", "tombolo token create --cluster NAME")
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			var t admin.Token
			q := admin.TokenRequest{Cluster: cluster, TTLSeconds: int64(ttl / time.Second), Uses: uses}
			if cmd.Flags().Changed("node") {
				q.Nodes = true
				if node != anyNode {
					q.Node = node
				}
			}
			if err := client.Call(cmd.Context(), http.MethodPost, "/v1/tokens", q, &t); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), t, func(w io.Writer) error {
				if t.Warning != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+t.Warning)
				}
				if t.NewCluster {
					fmt.Fprintf(cmd.ErrOrStderr(), "Cluster %s is new at this hub and is registered now; if that is a mistake: "+
						"tombolo cluster remove %s --force\n",
						cluster, cluster)
				}
				text := t.Command
				if q.Nodes {
					text = t.Join
					fmt.Fprintf(cmd.ErrOrStderr(), "Start 'tombolo mesh' with --join and this line, or write it to mesh.join of "+
						"its configuration, within %v (%s):\n\n",
						ttl, plural(uses, "node"))
				} else {
					fmt.Fprintf(cmd.ErrOrStderr(), "Run this where the cluster can be reached, within %v (%s); add --allow for "+
						"what may be reached:\n\n",
						ttl, plural(uses, "agent"))
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "`NAME` of the cluster: a-z, 0-9 and '-', at most 63")
	cmd.Flags().DurationVar(&ttl, "ttl", limit.TokenTTL, "life of the token, at most 720h")
	cmd.Flags().IntVar(&uses, "uses", 1, "how many agents or nodes may join with it")
	cmd.Flags().StringVar(&node, "node", "", "for nodes of the mesh, not for agents; with `NAME` for that node alone")
	cmd.Flags().Lookup("node").NoOptDefVal = anyNode
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// anyNode is the value of --node without a name: no node can be called so.
const anyNode = "*"

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newTokenListCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			var list admin.TokenList
			if err := client.Call(cmd.Context(), http.MethodGet, "/v1/tokens", nil, &list); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error {
				tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(tw, "ID\tCLUSTER\tUSED\tEXPIRES\tSTATE")
				for _, t := range list.Tokens {
					fmt.Fprintf(tw, "%s\t%s\t%d/%d\t%s\t%s\n", t.ID, t.Cluster, t.Used, t.Uses, moment(t.Expires),
						tokenState(t, time.Now()))
				}
				return tw.Flush()
			})
		},
	}
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

func tokenState(t admin.TokenInfo, now time.Time) string {
	switch {
	case t.Used >= t.Uses:
		return "used"
	case !now.Before(t.Expires):
		return "expired"
	}
	return "open"
}

func newTokenRevokeCommand() *cobra.Command {
	var remote remoteFlags
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Forget a token, so that nobody can join with it", Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			path := "/v1/tokens/" + url.PathEscape(args[0])
			if err := client.Call(cmd.Context(), http.MethodDelete, path, nil, &struct{}{}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "token %s is revoked; who joined with it stays\n", args[0])
			return nil
		},
	}
	remote.register(cmd)
	return cmd
}
