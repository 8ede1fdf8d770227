// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
)

func newClusterBackendCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var force bool
	cmd := &cobra.Command{
		Use:   "backend [CLUSTER [BACKEND]]",
		Short: "Show what carries the dials into clusters, and move a cluster to another backend",
		Long: `Show what carries the dials into clusters: their agents, or a proxy that the hub's
configuration names in 'backends', such as that of a VPN's server. With CLUSTER and
BACKEND, the cluster moves: new dials go by it, and open streams stay where they are.
The backend "default" is what 'defaultBackend' of the configuration says.

A move is refused if no agent is connected, or the proxy cannot be reached with its
certificates; --force moves all the same. A backend can be removed from the
configuration when its column USES is 0.`,
		Example: "  tombolo cluster backend\n  tombolo cluster backend c1 agents\n  tombolo cluster backend c1 default",
		Args:    atMost("CLUSTER and BACKEND", 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if force && len(args) < 2 {
				return fault.New(fault.CodeUsage, "--force is for moving a cluster").Hint("give CLUSTER and BACKEND")
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				var got admin.ClusterBackend
				ask := admin.BackendChoice{Backend: args[1], Force: force}
				if ask.Backend == backend.Default {
					ask.Backend = ""
				}
				path := "/v1/clusters/" + url.PathEscape(args[0]) + "/backend"
				if err := client.Call(cmd.Context(), http.MethodPut, path, ask, &got); err != nil {
					return err
				}
				return out.print(cmd.OutOrStdout(), got, func(io.Writer) error {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s carries new dials into cluster %s; open streams: %s\n", got.Backend,
						got.Name, openStreams(got.Open))
					return nil
				})
			}
			list, err := listBackends(cmd.Context(), client, args)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error { return printBackends(w, list) })
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			const none = cobra.ShellCompDirectiveNoFileComp
			remote.fromEnvironment(cmd)
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
			defer cancel()
			client, err := remote.client()
			if err != nil || len(args) > 1 {
				return nil, none
			}
			list, err := listBackends(ctx, client, nil)
			if err != nil {
				return nil, none
			}
			if len(args) == 0 {
				for _, c := range list.Clusters {
					names = append(names, c.Name)
				}
				return names, none
			}
			for _, b := range list.Backends {
				names = append(names, b.Name)
			}
			return append(names, backend.Default), none
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if no agent is connected, or the proxy cannot be reached")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// listBackends lists all clusters, or the one that is named.
func listBackends(ctx context.Context, client *admin.Client, only []string) (list admin.BackendList, err error) {
	if err := client.Call(ctx, http.MethodGet, "/v1/backends", nil, &list); err != nil || len(only) == 0 {
		return list, err
	}
	list.Clusters = slices.DeleteFunc(list.Clusters, func(c admin.ClusterBackend) bool { return c.Name != only[0] })
	if len(list.Clusters) == 0 {
		return list, fault.Newf(fault.CodeClusterUnknown, "cluster %q is not registered at this hub", only[0]).
			Hint("'tombolo cluster list' lists the clusters")
	}
	return list, nil
}

func printBackends(w io.Writer, list admin.BackendList) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "BACKEND\tUSES")
	for _, b := range list.Backends {
		fmt.Fprintf(tw, "%s\t%d\n", b.Name, b.Clusters)
	}
	fmt.Fprintln(tw, "\nCLUSTER\tBACKEND\tBY\tOPEN\tAGENTS READY\tAGENTS ONLY")
	for _, c := range list.Clusters {
		by := "default"
		if c.Own {
			by = "its own"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s", c.Name, c.Backend, by, openStreams(c.Open))
		for _, one := range c.Constraints {
			held := "yes"
			if !one.Status {
				held = "no: " + one.Message
			}
			fmt.Fprintf(tw, "\t%s", held)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// openStreams are counts of streams as text.
func openStreams(open map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(open)) {
		out = append(out, fmt.Sprintf("%s %d", name, open[name]))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
