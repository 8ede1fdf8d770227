// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/agent"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/server"
)

func newKonnectivityServerCommand() *cobra.Command {
	var o server.Options
	var file configFile
	cmd := &cobra.Command{
		Use:   "konnectivity-server",
		Short: "Run in place of konnectivity's proxy-server, with its flags, ports and metrics",
		Long: `Run in place of the proxy-server of kubernetes-sigs/apiserver-network-proxy: kube-apiserver
reaches a cluster through agents of that project, or through 'tombolo konnectivity-agent'.
It takes every flag of the reference, with the same default; those that mean nothing here
are named once in the log. docs/howto/from-konnectivity.md says how to swap it.

A SIGTERM drains for --graceful-shutdown-timeout, and the process ends when the last
connection has; a second one stops at once. Certificates are read again when they change.

With --tombolo-config dials are judged, bounded and recorded as a hub does it; the file is
read again when it changes, and on SIGHUP.`,
		Example: `  tombolo konnectivity-server --uds-name=/run/konnectivity.sock --server-port=0 \
    --cluster-cert=tls.crt --cluster-key=tls.key --cluster-ca-cert=ca.crt`,
		Args: cobra.ArbitraryArgs, // as the reference, whose manifests it is given
	}
	o.Flags(cmd.Flags(), os.Getenv)
	cmd.Flags().Lookup("server-id").DefValue = "" // random
	cmd.Flags().StringVar(&file.path, "tombolo-config", "",
		"`FILE` of kind HubConfig with policies, limits, audit and tracing for dials; not of the reference")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, err := telemetry.Logger(cmd.ErrOrStderr(), "text", o.Logs.Level())
		if err != nil {
			return err
		}
		dropin.Tell(log, cmd.Flags(), server.Meaningless())
		deps := server.Deps{Log: log, Reg: newRegistry(), Getenv: os.Getenv}
		if file.path != "" {
			return runGated(cmd, &file, o, deps)
		}
		s, err := server.New(o, deps)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), &configFile{}, log, func() error { return nil }, s.Run)
	}
	return cmd
}

// runGated runs a server with what a hub has around its dials.
func runGated(cmd *cobra.Command, file *configFile, o server.Options, deps server.Deps) error {
	load := func() (hub.Config, error) {
		data, err := file.load()
		if err != nil {
			return hub.Config{}, err
		}
		cfg, err := hub.ParseGateConfig(file.path, data)
		cfg.Version = version
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	records, traces, err := observe(cfg.Audit, cfg.OTLP, cmd.OutOrStdout(), otlp.Options{
		Log: deps.Log, Reg: deps.Reg, Service: "tombolo-konnectivity-server", Version: version, Name: cfg.Name,
	})
	if err != nil {
		return err
	}
	var gate *hub.Gate
	deps.Gate = func(b server.Behind) (server.Gate, error) {
		var err error
		gate, err = hub.NewGate(cfg, hub.GateOptions{
			Options: hub.Options{Log: deps.Log, Reg: deps.Reg, Audit: records, Trace: traces, Memory: debug.SetMemoryLimit},
			Open:    b.Open, By: "konnectivity", Dial: o.DialTimeout, Agents: b.Agents, Sockets: b.Sockets,
		})
		return gate, err
	}
	s, err := server.New(o, deps)
	if err != nil {
		return err
	}
	reload := func() error {
		next, err := load()
		if err == nil {
			err = gate.Reload(next)
		}
		gate.CountReload(err)
		return err
	}
	ctx := cmd.Context()
	return while(ctx, records, traces, func() error { return runRole(ctx, file, deps.Log, reload, s.Run) })
}

func newKonnectivityAgentCommand() *cobra.Command {
	var o agent.Options
	cmd := &cobra.Command{
		Use:   "konnectivity-agent",
		Short: "Run in place of konnectivity's proxy-agent, with its flags, ports and metrics",
		Long: `Run in place of the proxy-agent of kubernetes-sigs/apiserver-network-proxy: it connects to
servers of that project, or to 'tombolo konnectivity-server', and dials for them.
It takes every flag of the reference, with the same default; those that mean nothing here
are named once in the log. docs/howto/from-konnectivity.md says how to swap it.

A SIGTERM drains, and the process ends when the last connection has, at the latest after
25 seconds; a second one stops at once. Certificates and tokens are read again.`,
		Example: `  tombolo konnectivity-agent --proxy-server-host=konnectivity.example.com --ca-cert=ca.crt \
    --service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token`,
		Args: cobra.ArbitraryArgs, // as the reference, whose manifests it is given
	}
	o.Flags(cmd.Flags(), os.Getenv)
	cmd.Flags().Lookup("agent-id").DefValue = "" // random
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, err := telemetry.Logger(cmd.ErrOrStderr(), "text", o.Logs.Level())
		if err != nil {
			return err
		}
		dropin.Tell(log, cmd.Flags(), agent.Meaningless())
		a, err := agent.New(o, agent.Deps{Log: log, Reg: newRegistry(), Getenv: os.Getenv, Drain: limit.Drain})
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), &configFile{}, log, func() error { return nil }, a.Run)
	}
	return cmd
}

// asReference makes a program that is called as the reference's behave as the command in its place. k0s calls its copy
// konnectivity-server.
func asReference(name string, args []string) []string {
	switch filepath.Base(name) {
	case "proxy-server", "konnectivity-server":
		return append([]string{"konnectivity-server"}, args...)
	case "proxy-agent", "konnectivity-agent":
		return append([]string{"konnectivity-agent"}, args...)
	}
	return args
}
