// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

func newClusterExportCommand() *cobra.Command {
	var remote remoteFlags
	cmd := &cobra.Command{
		Use: "export CLUSTER", Short: "Print what the hub keeps of a cluster, for the hub to which its control plane moves",
		Long: `Print what the hub keeps of a cluster in the WireGuard network: mode, address, keys and
secret, as a file of kind ClusterState. It holds keys: a file behind > gets mode 0600.
The cluster stays registered here: remove it when the other hub has it.`,
		Example: "  tombolo cluster export c1 > c1.yaml",
		Args:    exactArgs("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			var state v1alpha1.ClusterState
			path := "/v1/clusters/" + url.PathEscape(args[0]) + "/export"
			if err := client.Call(cmd.Context(), http.MethodGet, path, nil, &state); err != nil {
				return err
			}
			if f := fileOf(cmd.OutOrStdout()); f != nil {
				if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
					if err := f.Chmod(0o600); err != nil {
						return fault.New(fault.CodeOutput, "the file cannot be kept from others").Because(err).
							Hint("choose a file of your own")
					}
				}
			}
			return (&outputFlag{format: "yaml"}).print(cmd.OutOrStdout(), state, nil)
		},
	}
	cmd.ValidArgsFunction = completeCluster(&remote)
	remote.register(cmd)
	return cmd
}

func newClusterImportCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var fresh bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Register a cluster that another hub has exported, with its address and keys",
		Long: `Register a cluster from a file of 'tombolo cluster export'. It keeps its keys, and its
address if that is in this hub's range and free; with --new-address it takes another
one. Write the files of its side again afterwards: they name this hub's endpoints. A
cluster that this hub has already is never changed; the same file again is no error.`,
		Example:     "  tombolo cluster import c1.yaml",
		Args:        exactArgs("FILE"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := private.Read(args[0], limit.AdminBody)
			if err != nil {
				return err
			}
			state, err := wireguard.ReadState(args[0], data)
			if err != nil {
				return err
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			path := "/v1/import"
			if fresh {
				path += "?newAddress=true"
			}
			var k admin.WireGuardCluster
			if err := client.Call(cmd.Context(), http.MethodPost, path, state, &k); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), k, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, wireGuardLine(k))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&fresh, "new-address", false, "take another address of this hub's range")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}
