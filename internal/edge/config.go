// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// Config is a valid configuration of an edge.
type Config struct {
	Version      string // of the program
	Listeners    []Listener
	Hubs         []Hub
	Kubernetes   *v1alpha1.EdgeKubernetes // nil: no objects are watched
	HealthListen string
	RunDir       string
	Log          v1alpha1.LogConfig
	Drain        time.Duration
	Audit        audit.Config
	OTLP         otlp.Config

	// What a reload may change.
	Reloadable
}

// DefaultRunDir is where the admin socket is if nothing else is configured.
const DefaultRunDir = "/run/tombolo"

// Reloadable is the part of a configuration that a running edge takes over.
type Reloadable struct {
	Tenants, Policies         []string // files and folders
	DialTimeout, IdleTimeout  time.Duration
	Total, Source, PerCluster int // connections
}

// Hub is one through whose agents tenants are reached.
type Hub struct {
	Name, Address string
	Certificate   string                   // file
	Proxied       bool                     // it requires a PROXY header from this edge
	Tenants       *v1alpha1.EdgeHubTenants // nil: only those that other sources have
}

// Listener is one port.
type Listener struct {
	Name, Address string
	Connect       bool                // HTTP CONNECT; otherwise TLS
	Silent        bool                // does not answer clients that name no server, or an unknown one
	Trusted       proxyheader.Trusted // whose PROXY header is required; nobody else may send one
}

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.EdgeConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindEdgeConfig, raw.Kind)
	cfg := validate(raw, d.Add)
	return cfg, d.Err()
}

func validate(raw v1alpha1.EdgeConfig, add conf.Report) Config {
	c := Config{
		HealthListen: cmp.Or(raw.HealthListen, "127.0.0.1:8447"), RunDir: cmp.Or(raw.RunDir, DefaultRunDir), Log: raw.Log,
		Drain: add.Positive("drainTimeout", raw.DrainTimeout.Duration, limit.Drain),
		Audit: audit.Configure(raw.Audit, add), OTLP: otlp.Configure(raw.Audit, v1alpha1.TracingConfig{}, add),
		Reloadable: Reloadable{
			Tenants: raw.Tenants, Policies: raw.Policies,
			DialTimeout: add.Positive("streams.dialTimeout", raw.Streams.DialTimeout.Duration, limit.DialTarget),
			IdleTimeout: add.Positive("streams.idleTimeout", raw.Streams.IdleTimeout.Duration, limit.StreamIdle),
		},
	}
	add.Listener("healthListen", c.HealthListen)
	if !filepath.IsAbs(c.RunDir) {
		add("runDir", "%q is not an absolute path", c.RunDir)
	}
	add.Log(raw.Log.Format, raw.Log.Level)
	c.Hubs, c.Kubernetes = hubs(raw.Hubs, add), raw.Kubernetes
	if k := raw.Kubernetes; k != nil && k.Namespace != "" {
		if _, err := id.ParseAgent(k.Namespace); err != nil {
			add("kubernetes.namespace", "%q is not the name of a namespace", k.Namespace)
		}
	}
	if len(raw.Tenants) == 0 && raw.Kubernetes == nil &&
		!slices.ContainsFunc(c.Hubs, func(h Hub) bool { return h.Tenants != nil }) {
		add("tenants", "there is no file, hub or Kubernetes with tenants: nothing could be reached")
	}
	for _, l := range []struct {
		path      string
		in        int
		into      *int
		otherwise int
	}{
		// A tunnel has two descriptors; the rest is for what waits, files and probes.
		{"limits.connections", raw.Limits.Connections, &c.Total, socket.Descriptors() * 2 / 5},
		{"limits.perSource", raw.Limits.PerSource, &c.Source, perSource},
		{"limits.perCluster", raw.Limits.PerCluster, &c.PerCluster, perCluster},
	} {
		if l.in < 0 {
			add(l.path, "%d is negative", l.in)
		}
		*l.into = cmp.Or(l.in, l.otherwise)
	}
	if len(raw.Listeners) == 0 {
		add("listeners", "there is no listener")
	}
	for i, l := range raw.Listeners {
		at := fmt.Sprintf("listeners[%d]", i)
		c.Listeners = append(c.Listeners, port(l, func(path, format string, args ...any) {
			add(at+"."+path, format, args...)
		}))
		for j, other := range raw.Listeners[:i] {
			if other.Name == l.Name {
				add(at+".name", "listeners[%d] has the name %q already", j, l.Name)
			}
			if other.Listen == l.Listen && !strings.HasSuffix(l.Listen, ":0") {
				add(at+".listen", "listeners[%d] listens on %s already", j, l.Listen)
			}
		}
	}
	return c
}

// hubs validates the hubs.
func hubs(raw []v1alpha1.EdgeHub, add conf.Report) (out []Hub) {
	for i, h := range raw {
		at := fmt.Sprintf("hubs[%d].", i)
		if err := id.CheckHub(h.Name); err != nil {
			add(at+"name", "%v", err)
		}
		if slices.ContainsFunc(out, func(o Hub) bool { return o.Name == h.Name }) {
			add(at+"name", "another hub has the name %q already", h.Name)
		}
		if _, err := policy.ParseTarget(h.Address); err != nil {
			add(at+"address", "%v", err)
		}
		if h.Certificate == "" {
			add(at+"certificate", "there is none: make it with 'tombolo certificate issue --role edge' at the hub")
		}
		one := Hub{h.Name, h.Address, h.Certificate, h.ProxyProtocol == "v2", h.Tenants}
		if p := h.ProxyProtocol; p != "" && p != "none" && p != "v2" {
			add(at+"proxyProtocol", "%q is neither none nor v2", p)
		}
		if h.Tenants != nil {
			for j, n := range h.Tenants.Names {
				if !strings.Contains(n, id.ClusterMark) {
					add(fmt.Sprintf("%stenants.names[%d]", at, j), "%q has no %s in it", n, id.ClusterMark)
				}
			}
			_, doc := tenant.Read("", one.tenant("c"))
			for _, p := range doc.Problems() {
				add(at+"tenants", "the tenant of a cluster would be wrong: %s: %s", p.Path, p.Message)
			}
		}
		out = append(out, one)
	}
	return out
}

// port validates one listener.
func port(l v1alpha1.EdgeListener, add conf.Report) Listener {
	out := Listener{Name: l.Name, Address: l.Listen}
	if _, err := id.ParseAgent(l.Name); err != nil {
		add("name", "%q is not a name: small letters, digits and '-'", l.Name)
	}
	add.Listener("listen", l.Listen)
	switch l.Protocol {
	case "tls":
	case "connect":
		out.Connect = true
	default:
		add("protocol", "%q is neither tls nor connect%s", l.Protocol, conf.Meant(l.Protocol, "tls", "connect"))
	}
	switch l.UnknownName {
	case "", "alert":
	case "close":
		out.Silent = true
	default:
		add("unknownName", "%q is neither alert nor close%s", l.UnknownName, conf.Meant(l.UnknownName, "alert", "close"))
	}
	if out.Connect && l.UnknownName != "" {
		add("unknownName", "it is about server names: a connect listener has none")
	}
	out.Trusted = proxyheader.ParseTrusted(l.ProxyProtocol, "proxyProtocol", add)
	return out
}

// fixedChanges names the settings that differ but cannot be taken over by a running edge.
func fixedChanges(old, next Config) []string {
	same := slices.EqualFunc(old.Listeners, next.Listeners, func(a, b Listener) bool {
		return a.Name == b.Name && a.Address == b.Address && a.Connect == b.Connect &&
			a.Silent == b.Silent && slices.Equal(a.Trusted, b.Trusted)
	})
	return conf.Settings{
		{"listeners", same},
		{"kubernetes", reflect.DeepEqual(old.Kubernetes, next.Kubernetes)},
		{"hubs", reflect.DeepEqual(old.Hubs, next.Hubs)},
		{"healthListen", old.HealthListen == next.HealthListen},
		{"runDir", old.RunDir == next.RunDir},
		{"log", old.Log == next.Log},
		{"drainTimeout", old.Drain == next.Drain},
		{"audit", old.Audit == next.Audit && old.OTLP.Logs == next.OTLP.Logs},
	}.Changed()
}
