// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/vpn/forward"
)

func newVPNForwardCommand() *cobra.Command {
	var config configFile
	cmd := &cobra.Command{
		Use:   "forward --config FILE",
		Short: "Carry connections of clusters in a mesh to their OpenVPN servers",
		Long: `Carry connections of clusters in a mesh to their OpenVPN servers. It runs beside
'tombolo mesh' on an endpoint machine, and listens at that machine's address in the
mesh, as soon as it is there. What comes from the address of a cluster goes to the
server of that cluster; everybody else is sent away. It needs no privilege, and has
nothing in the kernel.

A change of the file counts at once: connections of a cluster that is no longer in it
end. A SIGTERM ends all of them: their clients connect by another endpoint.`,
		Example: `  tombolo config print --role vpn-forward --out forward.yaml
  tombolo vpn forward --config forward.yaml`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadVPN(&config, "vpn-forward", forward.ParseConfig)
			if err != nil {
				return err
			}
			log, err := vpnLogger(cmd, cfg.Log)
			if err != nil {
				return err
			}
			f := forward.New(cfg, forward.Options{Log: log, Reg: newRegistry()})
			reload := func() error {
				next, err := loadVPN(&config, "vpn-forward", forward.ParseConfig)
				if err == nil {
					f.Reload(next)
				}
				return err
			}
			return runRole(cmd.Context(), &config, log, reload, f.Run)
		},
	}
	vpnConfigFlag(cmd, &config, "VPNForwardConfig", "vpn-forward")
	return cmd
}
