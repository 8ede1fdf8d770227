// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/route"
)

// routeFlags are the settings of one cluster; a file has those of several.
type routeFlags struct {
	config             configFile
	hubs, ranges, maps []string
	certificate        string
	dns, zone          string
}

func newRouteCommand() *cobra.Command {
	var f routeFlags
	cmd := &cobra.Command{
		Use:   "route --config FILE | --certificate FILE --hub HOST:PORT --range CIDR",
		Short: "Route the ranges of clusters into a TUN device, and on through hubs",
		Long: `Route the ranges of clusters into a TUN device in this network namespace. TCP
connections to them end here, and continue as streams through a hub and an agent of
the cluster. A caller's connect succeeds once the agent has dialled; otherwise it
fails as it would on the cluster's own network: refused, unreachable or prohibited.

The certificate says for which cluster it is, and who calls: hub and agent decide by
their policies. Two clusters with the same ranges can be told apart by --map, or in
one configuration for several clusters.

It needs CAP_NET_ADMIN and /dev/net/tun here, and nothing on the cluster's side.

A SIGTERM drains, a second one stops at once. What was changed here goes with it.`,
		Example: `  tombolo certificate issue --role route --cluster c1 --name backup --out c1.pem
  tombolo route --certificate c1.pem --hub hub.example.com:8443 --range 10.244.0.0/16
  tombolo route --certificate c1.pem --hub hub.example.com:8443 --map 10.244.0.0/16=240.1.0.0/16`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRoute(cmd.Context(), cmd, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config.path, "config", "",
		"configuration `FILE` (kind RouteConfig; see 'tombolo config print --role route')")
	fl.StringVar(&f.certificate, "certificate", "", "`FILE` made by 'tombolo certificate issue --role route'")
	fl.StringArrayVar(&f.hubs, "hub", nil, "`HOST:PORT` of a hub of the cluster; may be repeated")
	fl.StringArrayVar(&f.ranges, "range", nil, "`CIDR` that is routed to the cluster; may be repeated")
	fl.StringArrayVar(&f.maps, "map", nil, "`CIDR=CIDR`: a range of the cluster, and the one by which it is reached here")
	fl.StringVar(&f.dns, "dns", "", "`ADDRESS` of the cluster's DNS server: its names are resolved at 192.0.0.53")
	fl.StringVar(&f.zone, "zone", "", "`NAME` under which names of the cluster are asked for (default cluster.local)")
	cmd.AddCommand(newRouteStatusCommand(), newRouteExplainCommand(), newRouteManifestCommand())
	return cmd
}

// loadRoute reads the file, or the flags in its place.
func loadRoute(f *routeFlags) (route.Config, error) {
	var cfg route.Config
	var err error
	byFlags := f.certificate+f.dns+f.zone != "" || len(f.hubs)+len(f.ranges)+len(f.maps) > 0
	switch {
	case f.config.path != "" && byFlags:
		return cfg, usage("--config excludes --certificate, --hub, --range, --map, --dns and --zone",
			"write all of it to the file")
	case f.config.path != "":
		var data []byte
		if data, err = f.config.load(); err == nil {
			cfg, err = route.ParseConfig(f.config.path, data)
		}
	case !byFlags:
		return cfg, usage("--config is missing", "write one: tombolo config print --role route > route.yaml; "+
			"or name --certificate, --hub and --range")
	default:
		cfg, err = f.configure()
	}
	cfg.Version = version
	return cfg, err
}

// configure makes a configuration of the flags. The certificate says which cluster it is.
func (f *routeFlags) configure() (route.Config, error) {
	if f.certificate == "" {
		return route.Config{}, usage("--certificate is missing",
			"make the file at the hub: tombolo certificate issue --role route --cluster CLUSTER --name NAME --out FILE")
	}
	cert, _, err := trust.ReadBundle(string(id.RoleRoute), f.certificate)
	if err != nil {
		return route.Config{}, err
	}
	one := v1alpha1.RouteCluster{Hubs: f.hubs, Certificate: f.certificate}
	for _, uri := range cert.Leaf.URIs {
		if who, err := id.ParseURI(uri.String()); err == nil {
			one.Name = who.Cluster.String()
		}
	}
	if one.Name == "" {
		return route.Config{}, usage("--certificate "+f.certificate+" is for no cluster",
			"issue one: tombolo certificate issue --role route --cluster CLUSTER --name NAME --out FILE")
	}
	for _, r := range f.ranges {
		one.Ranges = append(one.Ranges, v1alpha1.RouteRange{Range: r})
	}
	for _, m := range f.maps {
		there, here, ok := strings.Cut(m, "=")
		if !ok || here == "" {
			return route.Config{}, usage(fmt.Sprintf("--map %q is not CIDR=CIDR", m), "--map 10.244.0.0/16=240.1.0.0/16")
		}
		one.Ranges = append(one.Ranges, v1alpha1.RouteRange{Range: there, As: here})
	}
	if f.dns+f.zone != "" {
		one.DNS = &v1alpha1.RouteDNS{Server: f.dns, Zone: f.zone}
	}
	var wrong []string
	cfg := route.Configure(v1alpha1.RouteConfig{Clusters: []v1alpha1.RouteCluster{one}},
		func(_, format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
	if len(wrong) > 0 {
		return cfg, fault.New(fault.CodeUsage, "the flags cannot be used").Whyf("%s", strings.Join(wrong, "; ")).
			Hint("tombolo route --help")
	}
	return cfg, nil
}

func runRoute(ctx context.Context, cmd *cobra.Command, f *routeFlags) error {
	cfg, err := loadRoute(f)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	r := route.New(cfg, route.Options{Log: log, Reg: newRegistry()})
	reload := func() error {
		next, err := loadRoute(f)
		if err == nil {
			r.Reload(next)
		}
		return err
	}
	return runRole(ctx, &f.config, log, reload, r.Run)
}
