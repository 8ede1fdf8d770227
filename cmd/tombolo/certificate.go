// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func newCertificateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certificate",
		Short: "Issue certificates to clients and operators, and list all",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertificateListCommand(), newCertificateIssueCommand())
	return cmd
}

func newCertificateListCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the certificates of clients and operators, and the newest of each agent and node",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			var list admin.CertificateList
			if err := client.Call(cmd.Context(), http.MethodGet, "/v1/certificates", nil, &list); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error {
				tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(tw, "SERIAL\tIDENTITY\tEXPIRES\tSTATE")
				for _, c := range list.Certificates {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", c.Serial, c.Identity, moment(c.Expires), certificateState(c, time.Now()))
				}
				return tw.Flush()
			})
		},
	}
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

func certificateState(c admin.CertificateInfo, now time.Time) string {
	switch {
	case !c.Revoked.IsZero():
		return "revoked"
	case !now.Before(c.Expires):
		return "expired"
	}
	return "valid"
}

// issuedRoles are those for which an operator issues certificates.
func issuedRoles() []string {
	return []string{string(id.RoleOperator), string(id.RoleClient), string(id.RoleRoute), string(id.RoleEdge),
		string(id.RoleVPNServer), string(id.RoleVPNClient), string(id.RoleEndpoint)}
}

func newCertificateIssueCommand() *cobra.Command {
	var remote remoteFlags
	var role, cluster, name, file string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "issue --role ROLE --name NAME --out FILE",
		Short: "Issue a certificate and write it with its key and the CA into one file",
		Long: `Issue a certificate for a key that is generated here and never leaves this machine,
and write key, certificate and CA into one file of mode 0600. An operator may
use the hub's admin API from elsewhere; a client may CONNECT into one cluster, and so may
'tombolo route' with the role route; an edge may dial into every cluster that the
hub's policy lets it, and nothing else; vpn-server and vpn-client are the two ends of
'tombolo vpn' for one cluster; an endpoint may read what the endpoint of its name in a
seed's WireGuard network needs ('tombolo cluster wireguard --endpoint'), and nothing
else.`,
		Example: `  tombolo certificate issue --role operator --name alice --out alice.pem
  tombolo status --hub hub.example.com:8443 --operator alice.pem
  tombolo certificate issue --role vpn-server --cluster c1 --name server --host vpn-seed-server --out server.pem`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(issuedRoles(), role):
				return usage(fmt.Sprintf("there is no role %q", role), "--role "+strings.Join(issuedRoles(), ", "))
			case name == "" || file == "":
				return usage("--name and --out are needed", cmd.CommandPath()+" --help")
			case id.Role(role).InCluster() != (cluster != ""):
				return usage("--cluster goes with --role client, route, vpn-server and vpn-client, and only with them",
					cmd.CommandPath()+" --help")
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			files, err := createFiles("--out", newFile{file, 0o600}) // before anything is issued
			if err != nil {
				return err
			}
			defer files.discard()
			issued, key, err := issue(ctx, client, admin.CertificateRequest{Role: role, Cluster: cluster, Name: name,
				Hosts: hosts})
			if err != nil {
				return err
			}
			bundle := append(append(key, issued.Certificate...), issued.CA...)
			if err := files.fill(bundle); err != nil {
				return unused(err, issued)
			}
			files.keep()
			fmt.Fprintf(cmd.ErrOrStderr(), "certificate %s for %s, until %s, in %s\n", issued.Serial, issued.Identity,
				moment(issued.Expires), file)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&role, "role", "", "`ROLE`: "+strings.Join(issuedRoles(), ", "))
	offer(cmd, "role", issuedRoles()...)
	fl.StringVar(&cluster, "cluster", "", "`CLUSTER` that it is for")
	fl.StringArrayVar(&hosts, "host", nil, "`NAME` or address by which a vpn-server is dialled; may be repeated")
	fl.StringVar(&name, "name", "", "`NAME` for the identity: a-z, 0-9 and '-', of an endpoint also '.'")
	fl.StringVar(&file, "out", "", "`FILE` to write; it must not exist")
	remote.register(cmd)
	return cmd
}
