// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// kind are the two lines at the top of every file here.
const kind = "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n"

func TestAnAgentWithoutConfigurationAllowsNothing(t *testing.T) {
	for name, parse := range map[string]func() (Config, error){
		"none":          func() (Config, error) { return DefaultConfig(), nil },
		"an empty kind": func() (Config, error) { return ParseConfig("f", []byte(kind)) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parse()
			switch {
			case err != nil, c.StateDir != "/var/lib/tombolo/agent", c.Join != "", len(c.Hubs) != 0, c.HealthListen != "127.0.0.1:8445",
				c.Connections != limit.Connections, c.Drain != limit.Drain, c.DialTimeout != limit.DialTarget, c.IdleTimeout != limit.StreamIdle, len(c.Policy.Texts()) != 0:
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestAFullConfigurationOfAnAgent(t *testing.T) {
	c, err := ParseConfig("f", []byte(kind+`
stateDir: /s
join: "@/run/join"
hubs: [hub.example:8443, "[fd00::1]:8443"]
allow: [10.0.0.0/8:443, "*.svc"]
healthListen: ":0"
log: {format: json, level: warn}
streams: {dialTimeout: 4s, idleTimeout: 5m}
connections: 1
drainTimeout: 6s
`))
	if err != nil || c.StateDir != "/s" || c.Join != "@/run/join" || len(c.Hubs) != 2 || c.HealthListen != ":0" || c.Drain != 6*time.Second ||
		c.Connections != 1 || c.DialTimeout != 4*time.Second || c.IdleTimeout != 5*time.Minute || strings.Join(c.Policy.Texts(), " ") != "10.0.0.0/8:443 *.svc" || c.Log.Level != "warn" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestProblemsOfAnAgentsConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"another version":                 {"apiVersion: v1\nkind: AgentConfig\n", `f:1:13: apiVersion: "tombolo.dev/v1alpha1" is expected`},
		"a hub's configuration":           {"apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n", `f:2:7: kind: "AgentConfig" is expected`},
		"a hub without a port":            {kind + "hubs: [a:1, hub.example]\n", `f:3:13: hubs[1]: "hub.example" is not host:port`},
		"a hub with port 0":               {kind + "hubs: ['a:0']\n", `f:3:8: hubs[0]: "a:0" is not host:port`},
		"a health address without port":   {kind + "healthListen: localhost\n", `f:3:15: healthListen: "localhost" is not host:port or :port`},
		"a health port that is too large": {kind + "healthListen: :65536\n", `f:3:15: healthListen: ":65536" is not host:port or :port`},
		"a bad range":                     {kind + "allow:\n- 10.0.0.0/8\n- 10.1.0.0/8\n", `f:5:3: allow[1]: "10.1.0.0/8" has host bits set; did you mean 10.0.0.0/8?`},
		"a range that is a number":        {kind + "allow: [10]\n", `f:3:9: allow[0]: text is expected; put quotes around 10`},
		"a bad log format":                {kind + "log: {format: xml}\n", `f:3:15: log.format: "xml" is neither text nor json`},
		"a bad log level":                 {kind + "log: {level: loud}\n", `f:3:14: log.level: "loud" is none of debug, info, warn, error`},
		"too many connections":            {kind + "connections: 99\n", `f:3:14: connections: 99 is not 1 to 4; leave it out for 4`},
		"no connections":                  {kind + "connections: 0\n", `f:3:14: connections: 0 is not 1 to 4; leave it out for 4`},
		"fewer connections than none":     {kind + "connections: -1\n", `f:3:14: connections: -1 is not 1 to 4; leave it out for 4`},
		"a negative timeout":              {kind + "streams: {dialTimeout: -4s}\n", `f:3:24: streams.dialTimeout: -4s is negative`},
		"a field of the hub":              {kind + "listen: :1\n", `f:3:1: listen: unknown key; known here: apiVersion, kind, stateDir`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig("f", []byte(c.file))
			if f := fault.From(err); f == nil || f.Code != fault.CodeConfig || !strings.Contains(f.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	t.Run("rules on the command line are all told", func(t *testing.T) {
		p, err := CompileAllow([]string{"10.0.0.0/8", "10.0.0.1/8", "x y"})
		f := fault.From(err)
		if f == nil || f.Code != fault.CodeUsage || !strings.Contains(f.Why, `"10.0.0.1/8": `) || !strings.Contains(f.Why, `"x y": `) || f.Next == "" || len(p.Rules()) != 1 {
			t.Errorf("%v", err)
		}
		if p, err := CompileAllow([]string{"10.0.0.0/8"}); err != nil || len(p.Rules()) != 1 {
			t.Errorf("%v", err)
		}
	})
}

func TestSettingsThatNeedARestartAreNamed(t *testing.T) {
	old := DefaultConfig()
	next := old
	next.StateDir, next.Hubs, next.HealthListen, next.Drain, next.Log.Level = "/x", []string{"a:1"}, ":1", 1, "debug"
	if got := fmt.Sprint(fixedChanges(old, next)); got != "[stateDir hubs healthListen log drainTimeout]" {
		t.Errorf("%s", got)
	}
	reloaded := old
	reloaded.DialTimeout, reloaded.Policy = 1, must(CompileAllow([]string{"10.0.0.0/8"}))
	if got := fixedChanges(old, reloaded); len(got) != 0 {
		t.Errorf("%v could be taken over", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
