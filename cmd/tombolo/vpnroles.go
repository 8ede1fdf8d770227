// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/vpn"
	"github.com/tombolo-io/tombolo/internal/vpn/forward"
	"github.com/tombolo-io/tombolo/internal/vpn/routes"
)

// vpnRole is a command of 'tombolo vpn' that runs with a configuration C until a signal.
type vpnRole[C any] struct {
	kind  string // of the configuration
	parse func(file string, data []byte) (C, error)
	log   func(C) v1alpha1.LogConfig
	make  func(C, *slog.Logger, *prometheus.Registry) running[C]
}

// running is what a command runs.
type running[C any] interface {
	Run(ctx, hard context.Context) error
	Reload(next C)
}

// command makes the command of a name, with the texts of cmd.
func (r vpnRole[C]) command(name string, cmd cobra.Command) *cobra.Command {
	var config configFile
	role := "vpn-" + name
	load := func() (cfg C, err error) {
		if config.path == "" {
			return cfg, usage("--config is missing", "write one: tombolo config print --role "+role+" > "+role+".yaml")
		}
		data, err := config.load()
		if err != nil {
			return cfg, err
		}
		return r.parse(config.path, data)
	}
	cmd.Use, cmd.Args = name+" --config FILE", exactArgs()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		log, err := telemetry.Logger(cmd.ErrOrStderr(), r.log(cfg).Format, r.log(cfg).Level)
		if err != nil {
			return err
		}
		runs := r.make(cfg, log, newRegistry())
		reload := func() error {
			next, err := load()
			if err == nil {
				runs.Reload(next)
			}
			return err
		}
		return runRole(cmd.Context(), &config, log, reload, runs.Run)
	}
	cmd.Flags().StringVar(&config.path, "config", "",
		"configuration `FILE` (kind "+r.kind+"; see 'tombolo config print --role "+role+"')")
	return &cmd
}

func newVPNServerCommand() *cobra.Command {
	return vpnRole[vpn.ServerConfig]{
		kind: "VPNServerConfig", parse: func(file string, data []byte) (vpn.ServerConfig, error) {
			c, err := vpn.ParseServerConfig(file, data)
			c.Version = version
			return c, err
		},
		log: func(c vpn.ServerConfig) v1alpha1.LogConfig { return c.Log },
		make: func(c vpn.ServerConfig, log *slog.Logger, reg *prometheus.Registry) running[vpn.ServerConfig] {
			return vpn.NewServer(c, vpn.Options{Log: log, Reg: reg})
		},
	}.command("server", cobra.Command{
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
	})
}

func newVPNClientCommand() *cobra.Command {
	return vpnRole[vpn.ClientConfig]{
		kind: "VPNClientConfig", parse: func(file string, data []byte) (vpn.ClientConfig, error) {
			c, err := vpn.ParseClientConfig(file, data)
			c.Version = version
			return c, err
		},
		log: func(c vpn.ClientConfig) v1alpha1.LogConfig { return c.Log },
		make: func(c vpn.ClientConfig, log *slog.Logger, reg *prometheus.Registry) running[vpn.ClientConfig] {
			return vpn.NewClient(c, vpn.Options{Log: log, Reg: reg})
		},
	}.command("client", cobra.Command{
		Short: "Run the end in a cluster, which dials out",
		Long: `Run the end in a cluster: it dials each server, and lets connections from there into
the ranges of its configuration, with its own address as their source. What a server
pushes counts only as far as the tunnel itself needs it.

It needs CAP_NET_ADMIN and /dev/net/tun, and packets must be forwarded: it sets that
itself where it may. What was changed here goes with it.`,
		Example: `  tombolo certificate issue --role vpn-client --cluster c1 --name client --out client.pem
  tombolo config print --role vpn-client --out client.yaml
  tombolo vpn client --config client.yaml`,
	})
}

func newVPNForwardCommand() *cobra.Command {
	return vpnRole[forward.Config]{
		kind: "VPNForwardConfig", parse: forward.ParseConfig,
		log: func(c forward.Config) v1alpha1.LogConfig { return c.Log },
		make: func(c forward.Config, log *slog.Logger, reg *prometheus.Registry) running[forward.Config] {
			return forward.New(c, forward.Options{Log: log, Reg: reg})
		},
	}.command("forward", cobra.Command{
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
	})
}

func newVPNRoutesCommand() *cobra.Command {
	return vpnRole[routes.Config]{
		kind: "VPNRoutesConfig", parse: routes.ParseConfig,
		log: func(c routes.Config) v1alpha1.LogConfig { return c.Log },
		make: func(c routes.Config, log *slog.Logger, reg *prometheus.Registry) running[routes.Config] {
			return routes.New(c, routes.Options{Log: log, Reg: reg})
		},
	}.command("routes", cobra.Command{
		Short: "Route the clusters of a mesh to the endpoint machine that answers",
		Long: `Route the clusters of a mesh to the endpoint machine that answers. It runs on the
machines of a seed that are no endpoint, and need to reach clusters by their addresses in
the mesh: the route is in a table of its own, and goes to the next endpoint 3 s after the
last answer. Without one the range is unreachable.

It needs CAP_NET_ADMIN. A SIGTERM removes the route; what a killed process left, the next
start takes over.`,
		Example: `  tombolo config print --role vpn-routes --out routes.yaml
  tombolo vpn routes --config routes.yaml`,
	})
}
