// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/vpn"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

func newVPNCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vpn",
		Short: "Run one end of a reversed VPN by OpenVPN",
		Long: `Run one end of a reversed VPN by OpenVPN: the cluster dials out, and who is beside
its control plane reaches its nodes, pods and services by plain routing. It starts the
real program (2.6 or newer), which a stock OpenVPN at the other end takes for one of its
own. For new installations 'tombolo route' is faster, and needs no right in the cluster.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVPNServerCommand(), newVPNClientCommand(), newVPNStatusCommand(), newVPNKeyCommand(),
		newVPNManifestCommand(), newVPNForwardCommand(), newVPNRoutesCommand())
	return cmd
}

func newVPNServerCommand() *cobra.Command {
	var config configFile
	cmd := &cobra.Command{
		Use:   "server --config FILE",
		Short: "Run the end beside a control plane, which the cluster dials",
		Long: `Run the end beside a control plane: it lets in the clients of one cluster by their
certificates, routes the cluster's ranges to one of them that answers, and nothing from
there begins here. With connect in its configuration it serves HTTP CONNECT to
kube-apiserver.

It needs CAP_NET_ADMIN, CAP_NET_RAW and /dev/net/tun. A SIGTERM drains, a second one
stops at once. What was changed here goes with it.`,
		Example: `  tombolo certificate issue --role vpn-server --cluster c1 --name server --host vpn-server --out server.pem
  tombolo vpn key --out tls.key
  tombolo config print --role vpn-server --out server.yaml
  tombolo vpn server --config server.yaml`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadVPN(&config, "vpn-server", vpn.ParseServerConfig)
			if err != nil {
				return err
			}
			cfg.Version = version
			log, err := vpnLogger(cmd, cfg.Log)
			if err != nil {
				return err
			}
			s := vpn.NewServer(cfg, vpn.Options{Log: log, Reg: newRegistry()})
			reload := func() error {
				next, err := loadVPN(&config, "vpn-server", vpn.ParseServerConfig)
				if err == nil {
					next.Version = version
					s.Reload(next)
				}
				return err
			}
			return runRole(cmd.Context(), &config, log, reload, s.Run)
		},
	}
	vpnConfigFlag(cmd, &config, "VPNServerConfig", "vpn-server")
	return cmd
}

func newVPNClientCommand() *cobra.Command {
	var config configFile
	cmd := &cobra.Command{
		Use:   "client --config FILE",
		Short: "Run the end in a cluster, which dials out",
		Long: `Run the end in a cluster: it dials each server, and lets connections from there into
the ranges of its configuration, with its own address as their source. What a server
pushes counts only as far as the tunnel itself needs it.

It needs CAP_NET_ADMIN and /dev/net/tun, and packets must be forwarded: it sets that
itself where it may. What was changed here goes with it.`,
		Example: `  tombolo certificate issue --role vpn-client --cluster c1 --name client --out client.pem
  tombolo config print --role vpn-client --out client.yaml
  tombolo vpn client --config client.yaml`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadVPN(&config, "vpn-client", vpn.ParseClientConfig)
			if err != nil {
				return err
			}
			cfg.Version = version
			log, err := vpnLogger(cmd, cfg.Log)
			if err != nil {
				return err
			}
			c := vpn.NewClient(cfg, vpn.Options{Log: log, Reg: newRegistry()})
			reload := func() error {
				next, err := loadVPN(&config, "vpn-client", vpn.ParseClientConfig)
				if err == nil {
					next.Version = version
					c.Reload(next)
				}
				return err
			}
			return runRole(cmd.Context(), &config, log, reload, c.Run)
		},
	}
	vpnConfigFlag(cmd, &config, "VPNClientConfig", "vpn-client")
	return cmd
}

func vpnConfigFlag(cmd *cobra.Command, config *configFile, kind, role string) {
	cmd.Flags().StringVar(&config.path, "config", "",
		"configuration `FILE` (kind "+kind+"; see 'tombolo config print --role "+role+"')")
}

func vpnLogger(cmd *cobra.Command, c v1alpha1.LogConfig) (*slog.Logger, error) {
	return telemetry.Logger(cmd.ErrOrStderr(), c.Format, c.Level)
}

// loadVPN reads the file of an end.
func loadVPN[T any](config *configFile, role string, parse func(file string, data []byte) (T, error)) (T, error) {
	var cfg T
	if config.path == "" {
		return cfg, usage("--config is missing", "write one: tombolo config print --role "+role+" > "+role+".yaml")
	}
	data, err := config.load()
	if err != nil {
		return cfg, err
	}
	return parse(config.path, data)
}

func newVPNKeyCommand() *cobra.Command {
	out := outFlag{mode: 0o600, fresh: true}
	cmd := &cobra.Command{
		Use:   "key --out FILE",
		Short: "Make a static key for tlsAuth or tlsCrypt of both ends",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var key [openvpn.StaticKey]byte
			if _, err := rand.Read(key[:]); err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				_, err := w.Write(openvpn.WriteStaticKey(key))
				return err
			})
		},
	}
	out.register(cmd, "write to `FILE`, which must not exist, instead of stdout")
	return cmd
}
