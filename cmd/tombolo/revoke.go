// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func newRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke",
		Short: "Revoke an agent, a node, a client, an operator, an edge or an endpoint, and end its connections",
		Long: `Revoke the party named by CLUSTER/NAME, by NAME with --cluster, or by the serial
number of a certificate ('tombolo certificate list' shows both). It takes effect at once:
sessions, streams and places in the relay end, new and resumed connections are
refused, and nothing is renewed. An agent or a node loses all of its certificates,
and the token that it joined with does not bring it back; a node's name is given
again only by a token that is created afterwards, an agent's name never.`,
		Example: `  tombolo revoke agent c1/agent-cqyhxst4
  tombolo revoke node worker-1 --cluster c1
  tombolo revoke operator alice`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newRevokeRoleCommand(id.RoleAgent,
			"Revoke an agent: its sessions and streams end, and it cannot renew or join again"),
		newRevokeRoleCommand(id.RoleNode, "Revoke a node of the mesh: it leaves the relay, and cannot renew or join again"),
		newRevokeRoleCommand(id.RoleClient, "Revoke a client's certificates, or the one of a serial number"),
		newRevokeRoleCommand(id.RoleRoute, "Revoke the certificates of a 'tombolo route', or the one of a serial number"),
		newRevokeRoleCommand(id.RoleOperator, "Revoke an operator's certificates, or the one of a serial number"),
		newRevokeRoleCommand(id.RoleEdge, "Revoke an edge's certificates, or the one of a serial number"),
		newRevokeRoleCommand(id.RoleEndpoint, "Revoke an endpoint's certificates, or the one of a serial number"),
	)
	return cmd
}

func newRevokeRoleCommand(role id.Role, short string) *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var cluster string
	var unknown bool
	use := string(role) + " CLUSTER/NAME|SERIAL"
	if !role.InCluster() {
		use = string(role) + " NAME|SERIAL"
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: exactArgs(strings.Fields(use)[1]),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := revocation(role, args[0], cluster)
			if err != nil {
				return err
			}
			q.Unknown = unknown
			client, err := remote.client()
			if err != nil {
				return err
			}
			var done admin.Revocation
			if err := client.Call(cmd.Context(), http.MethodPost, "/v1/revocations", q, &done); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), done, func(io.Writer) error {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is revoked; connections that ended: %d\n", done.Identity, done.Connections)
				if done.Warning != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+done.Warning)
				}
				return nil
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			remote.fromEnvironment(cmd)
			return namesToRevoke(cmd.Context(), &remote, role, cluster), cobra.ShellCompDirectiveNoFileComp
		},
	}
	if role.InCluster() {
		cmd.Flags().StringVar(&cluster, "cluster", "", "`CLUSTER` of a NAME that is given alone")
	}
	if role == id.RoleAgent || role == id.RoleNode {
		cmd.Flags().BoolVar(&unknown, "unknown", false, "also a name that the hub does not know, as after a restore")
	}
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// revocation reads whom a word names: CLUSTER/NAME, NAME with the cluster apart, or a serial number.
func revocation(role id.Role, word, cluster string) (q admin.RevocationRequest, err error) {
	q = admin.RevocationRequest{Role: string(role), Cluster: cluster}
	before, name, split := strings.Cut(word, "/")
	switch {
	case split && cluster != "" && cluster != before:
		return q, usage(fmt.Sprintf("--cluster %s and %s name two clusters", cluster, word), "leave out --cluster")
	case split && !role.InCluster():
		return q, usage(fmt.Sprintf("an %s belongs to no cluster", role), fmt.Sprintf("tombolo revoke %s NAME", role))
	case split:
		q.Cluster, q.Name = before, name
	case cluster == "" && isSerial(word):
		q.Serial = word
	case cluster == "" && role.InCluster():
		return q, usage(fmt.Sprintf("the cluster of %s is missing", word),
			fmt.Sprintf("tombolo revoke %s CLUSTER/%s", role, word))
	default:
		q.Name = word
	}
	return q, nil
}

// isSerial says whether a word looks like a serial number: 128 bits in hexadecimal, perhaps without leading zeros.
func isSerial(s string) bool { return len(s) >= 24 && strings.Trim(s, "0123456789abcdef") == "" }

// completionTime bounds what a shell waits for names.
const completionTime = 2 * time.Second

// namesToRevoke asks the hub for the names of a role that can be revoked; none if it does not answer.
func namesToRevoke(ctx context.Context, remote *remoteFlags, role id.Role, cluster string) (out []string) {
	client, err := remote.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	var list admin.CertificateList
	if err := client.Call(ctx, http.MethodGet, "/v1/certificates", nil, &list); err != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, c := range list.Certificates {
		who, err := id.ParseURI(c.Identity)
		if err != nil || who.Role != role || !c.Revoked.IsZero() || cluster != "" && who.Cluster.String() != cluster ||
			seen[c.Identity] {
			continue
		}
		seen[c.Identity] = true
		if name := who.Name; cluster == "" && role.InCluster() {
			out = append(out, who.Cluster.String()+"/"+name)
		} else {
			out = append(out, name)
		}
	}
	return out
}
