// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
)

// agentFlags are the few settings for a first try; a flag wins over the file.
type agentFlags struct {
	config                                            configFile
	join, stateDir, healthListen, logFormat, logLevel string
	allow                                             []string
	drain                                             time.Duration
}

func newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent --join LINE --allow RULE...",
		Short: "Run an agent, which dials out to a hub and reaches targets on its side",
		Long: `Run an agent. It trades the join line for a certificate once and keeps it in the
state directory; the same command run again uses what is stored there.

It dials only what --allow names, on the resolved address, and never loopback,
link-local or metadata addresses unless a rule lies within those ranges. Without
--allow it dials nothing.

Rules: CIDR[:ports], address[:ports], name[:ports] or *.suffix[:ports], where
ports are 443, 80,443 or 8000-8999; an IPv6 range with ports needs brackets.

A SIGTERM drains, a second one stops at once.`,
		Example: `  tombolo agent --join tombolo://... --allow 10.0.0.0/8 --allow '*.svc.cluster.local:443'
  tombolo agent --join @/run/secrets/join --allow '[fd00:10::/64]:443,10250'`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), cmd, &f) },
	}
	d := agent.DefaultConfig()
	fl := cmd.Flags()
	fl.StringVar(&f.config.path, "config", "",
		"configuration `FILE` (kind AgentConfig; see 'tombolo config print --role agent')")
	fl.StringVar(&f.join, "join", "", "the `LINE` of 'tombolo token create', @FILE that holds it, or - for stdin")
	fl.StringVar(&f.stateDir, "state-dir", d.StateDir, "`DIR` for the agent's key and certificate")
	fl.StringArrayVar(&f.allow, "allow", nil, "`RULE` for what may be reached; may be repeated")
	fl.StringVar(&f.healthListen, "health-listen", d.HealthListen, "`ADDRESS` for http probes and metrics")
	fl.DurationVar(&f.drain, "drain-timeout", d.Drain, "how long live streams may continue after SIGTERM")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(newAgentManifestCommand())
	return cmd
}

// loadAgent reads the file, if any, and applies the given flags to it.
func loadAgent(cmd *cobra.Command, f *agentFlags) (agent.Config, error) {
	cfg := agent.DefaultConfig()
	if f.config.path != "" {
		data, err := f.config.load()
		if err != nil {
			return cfg, err
		}
		if cfg, err = agent.ParseConfig(f.config.path, data); err != nil {
			return cfg, err
		}
	}
	cfg.Version = version
	given := func(name string, into *string, value string) {
		if f.config.path == "" || cmd.Flags().Changed(name) {
			*into = value
		}
	}
	given("join", &cfg.Join, f.join)
	given("state-dir", &cfg.StateDir, f.stateDir)
	given("health-listen", &cfg.HealthListen, f.healthListen)
	given("log-format", &cfg.Log.Format, f.logFormat)
	given("log-level", &cfg.Log.Level, f.logLevel)
	if f.config.path == "" || cmd.Flags().Changed("drain-timeout") {
		cfg.Drain = f.drain
	}
	if f.config.path == "" || cmd.Flags().Changed("allow") {
		p, err := agent.CompileAllow(f.allow)
		if err != nil {
			return cfg, err
		}
		cfg.Policy = p
	}
	return cfg, nil
}

func runAgent(ctx context.Context, cmd *cobra.Command, f *agentFlags) error {
	cfg, err := loadAgent(cmd, f)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	if len(cfg.Policy.Rules()) == 0 {
		log.Warn("nothing may be reached through this agent: no --allow was given")
	}
	reg := newRegistry()
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	records, traces, err := observe(cfg.Audit, cfg.OTLP, cmd.OutOrStdout(), otlp.Options{
		Log: log, Reg: reg, Service: "tombolo-agent", Version: cfg.Version, Name: host,
	})
	if err != nil {
		return err
	}
	a := agent.New(cfg, agent.Options{Log: log, Reg: reg, Audit: records, Trace: traces,
		ReadJoin: func(value string) (string, error) {
			return readJoin(cmd.InOrStdin(), value, "--join (join)")
		}})
	reload := func() error {
		next, err := loadAgent(cmd, f)
		if err == nil {
			a.Reload(next)
		}
		return err
	}
	return while(ctx, records, traces, func() error { return runRole(ctx, &f.config, log, reload, a.Run) })
}
