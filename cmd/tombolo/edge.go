// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge"
)

func newEdgeCommand() *cobra.Command {
	var file configFile
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "edge --config FILE",
		Short: "Run an edge, the public front door of many clusters",
		Long: `Run an edge. It learns which cluster a connection wants, asks the access policy, and
passes the bytes on to that cluster: by the server name of TLS, which it does not end,
or by the header of an HTTP CONNECT.

Tenants and policies are files that are read again when they change: adding, changing
or removing one touches no other's live connection.

A SIGTERM drains: no new connections, live ones may end within the drain timeout; a
second one stops at once. SIGHUP, or a change of the file, loads the configuration
again; a bad one is refused and the last good one stays.

To restart without refusing a connection, start another one with --take-over: it takes
over the open ports as soon as it can serve, and the one that had them drains.`,
		Example: `  tombolo config print --role edge > edge.yaml
  tombolo config print --role tenant > tenants/c1.yaml
  tombolo edge --config edge.yaml`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEdge(cmd.Context(), cmd, &file, takeOver) },
	}
	cmd.Flags().StringVar(&file.path, "config", "",
		"configuration `FILE` (kind EdgeConfig; see 'tombolo config print --role edge')")
	cmd.Flags().BoolVar(&takeOver, "take-over", false,
		"take the ports over from the edge that runs with the same runDir, if one does; it drains and ends")
	cmd.AddCommand(newEdgeStatusCommand(), newEdgeCoverageCommand(), newEdgeManifestCommand(), newExtAuthzCommand())
	return cmd
}

func loadEdge(file *configFile) (edge.Config, error) {
	data, err := file.load()
	if err != nil {
		return edge.Config{}, err
	}
	cfg, err := edge.ParseConfig(file.path, data)
	cfg.Version = version
	return cfg, err
}

func runEdge(ctx context.Context, cmd *cobra.Command, file *configFile, takeOver bool) error {
	if file.path == "" {
		return usage("--config is missing", "write one: tombolo config print --role edge > edge.yaml")
	}
	cfg, err := loadEdge(file)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	reg := newRegistry()
	name, err := os.Hostname()
	if err != nil {
		return fault.New(fault.CodeInternal, "this machine has no name").Because(err)
	}
	var from *edge.Handover
	if takeOver {
		if from, err = edge.TakeOver(ctx, cfg.RunDir); err != nil {
			return err
		}
		defer from.Close()
	}
	records, traces, err := observe(cfg.Audit, cfg.OTLP, cmd.OutOrStdout(), otlp.Options{
		Log: log, Reg: reg, Service: "tombolo-edge", Version: cfg.Version, Name: name,
	})
	if err != nil {
		return err
	}
	e := edge.New(cfg, edge.Options{Log: log, Reg: reg, Audit: records, From: from})
	reload := func() error {
		next, err := loadEdge(file)
		if err == nil {
			err = e.Reload(next)
		}
		return err
	}
	return while(ctx, records, traces, func() error { return runRole(ctx, file, log, reload, e.Run) })
}
