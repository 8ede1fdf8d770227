// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/audit"
	"github.com/tombolo-io/tombolo/internal/conf"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/otlp"
	"github.com/tombolo-io/tombolo/internal/policy"
	"github.com/tombolo-io/tombolo/internal/wire"
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
	Reloadable
}

// Reloadable is the part of a configuration that a running agent takes over.
type Reloadable struct {
	Policy      *policy.Policy
	DialTimeout time.Duration
	IdleTimeout time.Duration
	Carrier     string // auto, mux or yamux
	Connections int    // of one session, at most
}

// ParseConfig decodes and validates a file. It returns every problem at once.
// A join line given as @FILE is left as it is for the caller to read.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.AgentConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	if raw.APIVersion != v1alpha1.Version {
		d.Add("apiVersion", "%q is expected", v1alpha1.Version)
	}
	if raw.Kind != v1alpha1.KindAgentConfig {
		d.Add("kind", "%q is expected", v1alpha1.KindAgentConfig)
	}
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

func validate(raw v1alpha1.AgentConfig, add func(path, format string, args ...any)) Config {
	c := Config{
		StateDir: or(raw.StateDir, "/var/lib/tombolo/agent"), Join: raw.Join, Hubs: raw.Hubs,
		HealthListen: or(raw.HealthListen, "127.0.0.1:8445"), Log: raw.Log,
		Drain: positive(raw.DrainTimeout, limit.Drain, "drainTimeout", add),
		Audit: audit.Configure(raw.Audit, add), OTLP: otlp.Configure(raw.Audit, raw.Tracing, add),
		Reloadable: Reloadable{
			DialTimeout: positive(raw.Streams.DialTimeout, limit.DialTarget, "streams.dialTimeout", add),
			IdleTimeout: positive(raw.Streams.IdleTimeout, limit.StreamIdle, "streams.idleTimeout", add),
			Carrier:     or(raw.Carrier, v1alpha1.DefaultCarrier),
		},
	}
	c.Connections = wire.CheckCarrier(c.Carrier, raw.Connections, add)
	for i, h := range raw.Hubs {
		if _, err := policy.ParseTarget(h); err != nil {
			add(fmt.Sprintf("hubs[%d]", i), "%q is not host:port", h)
		}
	}
	if _, port, err := net.SplitHostPort(c.HealthListen); err != nil || !isPort(port) {
		add("healthListen", "%q is not host:port or :port", c.HealthListen)
	}
	if raw.Log.Format != "" && raw.Log.Format != "text" && raw.Log.Format != "json" {
		add("log.format", "%q is neither text nor json", raw.Log.Format)
	}
	switch raw.Log.Level {
	case "", "debug", "info", "warn", "error":
	default:
		add("log.level", "%q is none of debug, info, warn, error", raw.Log.Level)
	}
	var problems []policy.Problem
	c.Policy, problems = policy.CompileAllow(raw.Allow)
	for _, p := range problems {
		add("allow"+p.Path, "%s", p.Message)
	}
	return c
}

// isPort accepts 0 too: the kernel then chooses.
func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func positive(d v1alpha1.Duration, otherwise time.Duration, path string, add func(path, format string, args ...any)) time.Duration {
	if d.Duration < 0 {
		add(path, "%v is negative", d.Duration)
	}
	if d.Duration <= 0 {
		return otherwise
	}
	return d.Duration
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

// fixedChanges names the settings that differ but cannot be taken over by a running agent.
func fixedChanges(old, next Config) []string {
	var out []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"stateDir", old.StateDir == next.StateDir},
		{"hubs", slices.Equal(old.Hubs, next.Hubs)},
		{"healthListen", old.HealthListen == next.HealthListen},
		{"log", old.Log == next.Log},
		{"drainTimeout", old.Drain == next.Drain},
		{"audit", old.Audit == next.Audit && old.OTLP.Logs == next.OTLP.Logs},
		{"tracing", old.OTLP.Traces == next.OTLP.Traces && old.OTLP.Ratio == next.OTLP.Ratio},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}
