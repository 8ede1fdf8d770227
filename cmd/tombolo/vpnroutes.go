// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/vpn/routes"
)

func newVPNRoutesCommand() *cobra.Command {
	var config configFile
	cmd := &cobra.Command{
		Use:   "routes --config FILE",
		Short: "Route the clusters of a mesh to the endpoint machine that answers",
		Long: `Route the clusters of a mesh to the endpoint machine that answers. It runs on the
machines of a seed that are no endpoint, and need to reach clusters by their addresses in
the mesh: the route is in a table of its own, and goes to the next endpoint 3 s after the
last answer. Without one the range is unreachable.

It needs CAP_NET_ADMIN. A SIGTERM removes the route; what a killed process left, the next
start takes over.`,
		Example: `  tombolo config print --role vpn-routes --out routes.yaml
  tombolo vpn routes --config routes.yaml`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadVPN(&config, "vpn-routes", routes.ParseConfig)
			if err != nil {
				return err
			}
			log, err := vpnLogger(cmd, cfg.Log)
			if err != nil {
				return err
			}
			r := routes.New(cfg, routes.Options{Log: log, Reg: newRegistry()})
			reload := func() error {
				next, err := loadVPN(&config, "vpn-routes", routes.ParseConfig)
				if err == nil {
					r.Reload(next)
				}
				return err
			}
			return runRole(cmd.Context(), &config, log, reload, r.Run)
		},
	}
	vpnConfigFlag(cmd, &config, "VPNRoutesConfig", "vpn-routes")
	return cmd
}
