// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "List, move and remove the clusters of the hub, and switch their WireGuard",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterListCommand(), newClusterBackendCommand(), newClusterRemoveCommand(),
		newClusterWireGuardCommand(), newClusterExportCommand(), newClusterImportCommand())
	return cmd
}

func listClusters(ctx context.Context, remote *remoteFlags) (list admin.ClusterList, err error) {
	client, err := remote.client()
	if err == nil {
		err = client.Call(ctx, http.MethodGet, "/v1/clusters", nil, &list)
	}
	return list, err
}

func newClusterListCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the registered clusters, with who is connected and what could join", Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listClusters(cmd.Context(), &remote)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error {
				tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(tw, "CLUSTER\tREGISTERED\tAGENTS\tNODES\tTOKENS\tWIREGUARD\tNAMED BY")
				for _, c := range list.Clusters {
					registered, by := "-", c.Policies
					if !c.Created.IsZero() {
						registered = moment(c.Created)
					}
					if c.Configured {
						by = append([]string{"the configuration"}, by...)
					}
					if len(by) == 0 {
						by = []string{"-"}
					}
					fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", c.Name, registered, c.Agents, c.Nodes, c.Tokens,
						cmp.Or(c.WireGuard, "-"), strings.Join(by, ", "))
				}
				return tw.Flush()
			})
		},
	}
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

func newClusterRemoveCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var force bool
	cmd := &cobra.Command{
		Use: "remove CLUSTER", Short: "Unregister a cluster, with its tokens, names, client certificates and sockets",
		Long: `Unregister a cluster, with its tokens, the names of its agents and nodes, its
client certificates and requested sockets. While agents or nodes are connected, a token
can be used, a backend carries streams, or WireGuard is on, it is refused; --force
revokes and ends all of that. No certificate of the
cluster counts afterwards, even if a cluster of that name is registered again:
everybody joins again.`,
		Example: "  tombolo cluster remove pord\n  tombolo cluster remove c1 --force",
		Args:    exactArgs("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			path := "/v1/clusters/" + url.PathEscape(args[0])
			if force {
				path += "?force=true"
			}
			var gone admin.ClusterRemoval
			if err := client.Call(cmd.Context(), http.MethodDelete, path, nil, &gone); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), gone, func(io.Writer) error {
				fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is removed, with %s, %s, %s and %s; connections that ended: %d\n",
					gone.Name, plural(gone.Agents, "agent"), plural(gone.Nodes, "node"), plural(gone.Tokens, "token"),
					plural(gone.Clients, "client certificate"), gone.Connections)
				for _, warn := range gone.Warnings {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+warn)
				}
				return nil
			})
		},
	}
	cmd.ValidArgsFunction = completeCluster(&remote)
	cmd.Flags().BoolVar(&force, "force", false, "also while somebody uses the cluster, or could join it")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// completeCluster completes the name of a cluster.
func completeCluster(remote *remoteFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		remote.fromEnvironment(cmd)
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if list, err := listClusters(ctx, remote); err == nil {
			for _, c := range list.Clusters {
				names = append(names, c.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
