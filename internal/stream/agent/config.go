// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Config is a valid configuration of an agent.
type Config struct {
	Version      string
	StateDir     string
	Join         string   // the line, or what Options.ReadJoin takes for it; may be empty
	Hubs         []string // overrides the addresses of the line
	HealthListen string
	Log          v1alpha1.LogConfig
	Drain        time.Duration
	Audit        audit.Config
	OTLP         otlp.Config
	Ports        []Port
	Reloadable
}

// Reloadable is the part of a configuration that a running agent takes over.
type Reloadable struct {
	Policy      *policy.Policy
	DialTimeout time.Duration
	IdleTimeout time.Duration
	Connections int // of one session, at most
}

// ParseConfig decodes and validates a file. It returns every problem at once.
// A join line given as @FILE is left as it is for the caller to read.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.AgentConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindAgentConfig, raw.Kind)
	cfg := validate(raw, d.Add)
	return cfg, d.Err()
}

// DefaultConfig is the configuration of an agent that was given none; it allows nothing.
func DefaultConfig() Config {
	return validate(v1alpha1.AgentConfig{}, func(string, string, ...any) {})
}

// CompileAllow compiles the rules of the command line.
func CompileAllow(rules []string) (*policy.Policy, error) {
	p, problems := policy.CompileAllow(rules)
	if len(problems) == 0 {
		return p, nil
	}
	f := fault.New(fault.CodeUsage, "--allow cannot be read")
	for _, q := range problems {
		f.Why += fmt.Sprintf("\n  %q: %s", rules[q.Index], q.Message)
	}
	return p, f.Hint("write CIDR[:ports], address[:ports], name[:ports] or *.suffix[:ports], such as 10.0.0.0/8:443,10250")
}

func validate(raw v1alpha1.AgentConfig, add conf.Report) Config {
	c := Config{
		StateDir: cmp.Or(raw.StateDir, "/var/lib/tombolo/agent"), Join: raw.Join, Hubs: raw.Hubs,
		HealthListen: cmp.Or(raw.HealthListen, "127.0.0.1:8445"), Log: raw.Log,
		Drain: add.Positive("drainTimeout", raw.DrainTimeout.Duration, limit.Drain),
		Audit: audit.Configure(raw.Audit, add), OTLP: otlp.Configure(raw.Audit, raw.Tracing, add),
		Reloadable: Reloadable{
			DialTimeout: add.Positive("streams.dialTimeout", raw.Streams.DialTimeout.Duration, limit.DialTarget),
			IdleTimeout: add.Positive("streams.idleTimeout", raw.Streams.IdleTimeout.Duration, limit.StreamIdle),
		},
	}
	c.Connections = wire.CheckConnections(raw.Connections, add)
	for i, h := range raw.Hubs {
		if _, err := policy.ParseTarget(h); err != nil {
			add(fmt.Sprintf("hubs[%d]", i), "%q is not host:port", h)
		}
	}
	add.Listener("healthListen", c.HealthListen)
	add.Log(raw.Log.Format, raw.Log.Level)
	c.Ports = parsePorts(raw.Ports, c.HealthListen, add)
	var problems []policy.Problem
	c.Policy, problems = policy.CompileAllow(raw.Allow)
	for _, p := range problems {
		add("allow"+p.Path, "%s", p.Message)
	}
	return c
}

// fixedChanges names the settings that differ but cannot be taken over by a running agent.
func fixedChanges(old, next Config) []string {
	return conf.Settings{
		{"stateDir", old.StateDir == next.StateDir},
		{"hubs", slices.Equal(old.Hubs, next.Hubs)},
		{"healthListen", old.HealthListen == next.HealthListen},
		{"log", old.Log == next.Log},
		{"drainTimeout", old.Drain == next.Drain},
		{"ports", slices.EqualFunc(old.Ports, next.Ports, Port.equal)},
		{"audit", old.Audit == next.Audit && old.OTLP.Logs == next.OTLP.Logs},
		{"tracing", old.OTLP.Traces == next.OTLP.Traces && old.OTLP.Ratio == next.OTLP.Ratio},
	}.Changed()
}
