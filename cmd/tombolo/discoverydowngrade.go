// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// downgraded is what is printed of a service that may be spoken to in the older protocol.
type downgraded struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Service    string `json:"service"`
}

func newDowngradeCommand() *cobra.Command {
	var out outputFlag
	var file, dir string
	cmd := &cobra.Command{
		Use: "downgrade SERVICE", Short: "Let this node speak the older protocol with a discovery service again",
		Args: exactArgs("SERVICE"),
		Long: `Let this node speak the older protocol with a discovery service again. A service that
has spoken the native protocol with it once is not believed to know only the older one,
in which anyone who knows the cluster's id may write: the node stays away from it, and its
status says so. A running 'tombolo discovery announce' or 'tombolo mesh' takes the change
over within a minute; if the service speaks the native protocol it is used all the same.

SERVICE is its URL, or its host:port.`,
		Example: "  tombolo discovery downgrade https://discovery.example:8446 --config /etc/tombolo/mesh.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && cmd.Flags().Changed("state-dir") {
				return usage("--state-dir excludes --config", "name one of them")
			}
			if file != "" {
				data, err := readConfig(file)
				if err != nil {
					return err
				}
				cfg, err := discoveryclient.ParseConfig(file, data, meshconf.Check)
				if err != nil {
					return err
				}
				dir = cfg.StateDir
			}
			url, err := discoveryclient.Downgrade(dir, args[0])
			if err != nil {
				return err
			}
			v := downgraded{APIVersion: v1alpha1.Version, Kind: "DiscoveryDowngrade", Service: url}
			return out.print(cmd.OutOrStdout(), v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s may be spoken to in the older protocol; a process that runs tries it within %v\n",
					v.Service, limit.DiscoveryBackoff)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (kind MeshConfig) of the node")
	cmd.Flags().StringVar(&dir, "state-dir", discoveryclient.DefaultStateDir,
		"`DIR` of the node's state, where there is no configuration file")
	out.register(cmd)
	return cmd
}
