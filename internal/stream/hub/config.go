// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/memory"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Protocols of a cluster's unix sockets.
const (
	ProtocolKonnectivity = frontend.ProtocolKonnectivity
	ProtocolConnect      = frontend.ProtocolConnect
)

// Config is a valid configuration of a hub.
type Config struct {
	Name        string // of this hub, for its certificate
	Version     string // of the program
	StateDir    string
	RunDir      string
	TrustDomain string
	Listen      string
	Advertise   []string            // host:port
	Trusted     proxyheader.Trusted // in front of Listen: their PROXY header is required; nobody else may send one
	AdminListen string
	STUN        v1alpha1.STUNConfig
	Pprof       bool
	Log         v1alpha1.LogConfig
	Drain       time.Duration
	Audit       audit.Config
	OTLP        otlp.Config

	// What a reload may change.
	Reloadable
}

// Reloadable is the part of a configuration that a running hub takes over.
type Reloadable struct {
	agentLife, renewGrace, clientLife time.Duration
	dialTimeout, idleTimeout          time.Duration
	connections                       int // of one session, at most
	sockets                           frontend.Config
	policies                          []string // files and folders
	limits                            *quota.Table
	ports                             ports
	backends                          backend.Table
	wireguard                         wireguard.Config
}

// Overlay holds command-line values that other fields are derived from.
type Overlay struct{ RunDir string }

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	return ParseConfigWith(file, data, Overlay{})
}

// ParseConfigWith is ParseConfig with values that win over the file's.
func ParseConfigWith(file string, data []byte, o Overlay) (Config, error) {
	var raw v1alpha1.HubConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	if o.RunDir != "" {
		raw.RunDir = o.RunDir
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindHubConfig, raw.Kind)
	cfg := validate(raw, d.Add)
	return cfg, d.Err()
}

// DefaultConfig is the configuration of a hub that was given none.
func DefaultConfig() Config {
	return validate(v1alpha1.HubConfig{}, func(path, format string, args ...any) {})
}

func validate(raw v1alpha1.HubConfig, add conf.Report) Config {
	host, err := os.Hostname()
	if err != nil {
		host = "hub"
	}
	c := Config{
		Name:     labelOf(host),
		StateDir: cmp.Or(raw.StateDir, "/var/lib/tombolo/hub"), RunDir: cmp.Or(raw.RunDir, "/run/tombolo"),
		TrustDomain: cmp.Or(raw.TrustDomain, id.DefaultTrustDomain),
		Listen:      cmp.Or(raw.Listen, ":8443"), AdminListen: cmp.Or(raw.Admin.Listen, "127.0.0.1:8444"),
		Pprof: raw.Admin.Pprof, Log: raw.Log,
		Drain: add.Positive("drainTimeout", raw.DrainTimeout.Duration, limit.Drain),
		Audit: audit.Configure(raw.Audit, add), OTLP: otlp.Configure(raw.Audit, raw.Tracing, add),
	}
	if err := id.CheckTrustDomain(c.TrustDomain); err != nil {
		add("trustDomain", "%v", err)
	}
	add.Listener("listen", c.Listen)
	add.Listener("admin.listen", c.AdminListen)
	c.Trusted = proxyheader.ParseTrusted(raw.ProxyProtocol, "proxyProtocol", add)
	c.STUN = stunserver.Configure(raw.STUN, add)
	for i, a := range raw.Advertise {
		full, err := Advertised(a, c.Listen)
		if err != nil {
			add(fmt.Sprintf("advertise[%d]", i), "%v", err)
		}
		c.Advertise = append(c.Advertise, full)
	}
	add.Log(raw.Log.Format, raw.Log.Level)
	// Paths of sockets are printed for other programs, which run elsewhere.
	if c.RunDir, err = filepath.Abs(c.RunDir); err != nil {
		add("runDir", "%v", err)
	}
	c.Reloadable = reloadable(raw, c.RunDir, add)
	return c
}

func reloadable(raw v1alpha1.HubConfig, runDir string, add conf.Report) Reloadable {
	r := Reloadable{
		agentLife:   add.Positive("certificates.agentLife", raw.Certificates.AgentLife.Duration, limit.AgentCertificate),
		renewGrace:  add.Positive("certificates.renewGrace", raw.Certificates.RenewGrace.Duration, renewGrace),
		clientLife:  add.Positive("certificates.clientLife", raw.Certificates.ClientLife.Duration, limit.ClientCertificate),
		dialTimeout: add.Positive("streams.dialTimeout", raw.Streams.DialTimeout.Duration, limit.Dial),
		idleTimeout: add.Positive("streams.idleTimeout", raw.Streams.IdleTimeout.Duration, limit.StreamIdle),
	}
	r.sockets.Defaults = ownership(raw.Sockets, frontend.Defaults{UID: -1, GID: -1, Mode: 0o600}, "sockets", add)
	r.policies = raw.Policies
	for i, p := range raw.Policies {
		if p == "" {
			add(fmt.Sprintf("policies[%d]", i), "it is empty")
		}
	}
	if raw.Policies != nil && len(raw.Policies) == 0 {
		add("policies", "the list is empty: leave it out, and the agents' own lists are the policy")
	}
	r.limits = quota.Parse(raw.Limits, add)
	r.connections = wire.CheckConnections(raw.Connections, add)
	r.ports = parsePorts(raw.Ports, add)
	r.backends = backend.Parse(raw.Backends, raw.DefaultBackend, add)
	r.wireguard = wireguard.Parse(raw.WireGuard, add)
	names, paths := map[id.Cluster]int{}, map[string]string{}
	for i, rc := range raw.Clusters {
		at := fmt.Sprintf("clusters[%d]", i)
		name, err := id.ParseCluster(rc.Name)
		if err != nil {
			add(at+".name", "%v", err) // other mistakes of the cluster are reported as well
		}
		if first, twice := names[name]; twice && err == nil {
			add(at+".name", "cluster %q stands in clusters[%d] already", name, first)
			continue
		}
		names[name] = i
		cc := frontend.Cluster{Name: name}
		r.limits.Add(name, rc.Limits, at, add)
		for j, rs := range rc.Sockets {
			sat := fmt.Sprintf("%s.sockets[%d]", at, j)
			if rs.Protocol != ProtocolKonnectivity && rs.Protocol != ProtocolConnect {
				add(sat+".protocol", "%q is neither %s nor %s%s", rs.Protocol, ProtocolKonnectivity, ProtocolConnect,
					conf.Meant(rs.Protocol, ProtocolKonnectivity, ProtocolConnect))
				continue
			}
			egress := cmp.Or(rs.Egress, frontend.DefaultEgress)
			if len(egress) > 63 || strings.Trim(egress, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				add(sat+".egress", "%q is no name of 1 to 63 of a-z, 0-9 and '-'", egress)
			}
			s := frontend.Socket{Protocol: rs.Protocol, Spec: frontend.SocketSpec{Egress: egress}}
			s.Spec.Path = filepath.Clean(cmp.Or(rs.Path, frontend.SocketPath(runDir, name, rs.Protocol, egress)))
			own := ownership(rs.SocketDefaults, r.sockets.Defaults, sat, add)
			s.Spec.UID, s.Spec.GID, s.Spec.Mode = own.UID, own.GID, own.Mode
			switch other, taken := paths[s.Spec.Path]; {
			case !filepath.IsAbs(s.Spec.Path):
				add(sat+".path", "%q is not absolute", s.Spec.Path)
			case len(s.Spec.Path) >= limit.SocketPath:
				add(sat+".path", "%q has %d bytes, the kernel takes at most %d", s.Spec.Path, len(s.Spec.Path), limit.SocketPath-1)
			case taken:
				add(sat+".path", "%q is the path of %s already", s.Spec.Path, other)
			}
			paths[s.Spec.Path] = sat
			cc.Sockets = append(cc.Sockets, s)
		}
		r.sockets.Clusters = append(r.sockets.Clusters, cc)
	}
	return r
}

func ownership(raw v1alpha1.SocketDefaults, d frontend.Defaults, at string, add conf.Report) frontend.Defaults {
	if raw.Owner != "" {
		uid, err := numericID(raw.Owner, func(s string) (string, error) {
			u, err := user.Lookup(s)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
		if err != nil {
			add(at+".owner", "%v", err)
		}
		d.UID = uid
	}
	if raw.Group != "" {
		gid, err := numericID(raw.Group, func(s string) (string, error) {
			g, err := user.LookupGroup(s)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
		if err != nil {
			add(at+".group", "%v", err)
		}
		d.GID = gid
	}
	if raw.Mode != "" {
		mode, err := strconv.ParseUint(raw.Mode, 8, 32)
		if err != nil || mode > 0o777 || mode&0o200 == 0 {
			add(at+".mode", "%q is no octal mode such as \"0660\" that lets the owner connect", raw.Mode)
		}
		d.Mode = fs.FileMode(mode)
	}
	return d
}

func numericID(s string, lookup func(string) (string, error)) (int, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return int(n), nil
	}
	text, err := lookup(s)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(text)
}

// Advertised completes an advertised address with the port of listen.
func Advertised(a, listen string) (string, error) {
	host, port, err := net.SplitHostPort(a)
	if err != nil { // no port: a name, an address, or an address in brackets
		host, port = a, ""
		if strings.HasPrefix(a, "[") && strings.HasSuffix(a, "]") {
			host = a[1 : len(a)-1]
		}
	}
	if port == "" {
		if _, port, err = net.SplitHostPort(listen); err != nil {
			return "", fmt.Errorf("%q has no port", a)
		}
	}
	// The address must read as one in a join line; port 0 stands for the one that Listen gets.
	if _, err := policy.ParseTarget(net.JoinHostPort(host, "1")); err != nil || !conf.IsPort(port) {
		return "", fmt.Errorf("%q is neither host nor host:port", a)
	}
	return net.JoinHostPort(host, port), nil
}

// labelOf makes an RFC 1123 label of a host name.
func labelOf(host string) string {
	out := make([]byte, 0, len(host))
	for i := 0; i < len(host) && host[i] != '.' && len(out) < 63; i++ {
		c := host[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && len(out) > 0:
		default:
			continue
		}
		out = append(out, c)
	}
	for len(out) > 0 && out[len(out)-1] == '-' {
		out = out[:len(out)-1]
	}
	if len(out) == 0 {
		return "hub"
	}
	return string(out)
}

func itoa(n int) string { return strconv.Itoa(n) }

// fixedChanges names the settings that differ but cannot be taken over by a running hub.
func fixedChanges(old, next Config) []string {
	return conf.Settings{
		{"stateDir", old.StateDir == next.StateDir},
		{"runDir", old.RunDir == next.RunDir},
		{"trustDomain", old.TrustDomain == next.TrustDomain || next.TrustDomain == id.DefaultTrustDomain},
		{"listen", old.Listen == next.Listen},
		{"advertise", slices.Equal(old.Advertise, next.Advertise)},
		{"proxyProtocol", slices.Equal(old.Trusted, next.Trusted)},
		{"admin", old.AdminListen == next.AdminListen && old.Pprof == next.Pprof},
		{"stun", old.STUN == next.STUN},
		{"log", old.Log == next.Log},
		{"drainTimeout", old.Drain == next.Drain},
		{"audit", old.Audit == next.Audit && old.OTLP.Logs == next.OTLP.Logs},
		{"tracing", old.OTLP.Traces == next.OTLP.Traces && old.OTLP.Ratio == next.OTLP.Ratio},
	}.Changed()
}

// MemoryAdvice is for a configuration that a process with this GOMEMLIMIT (the largest
// number: none) and in this one's cgroup would run with.
func (c Config) MemoryAdvice(environment int64) []string {
	return memory.Advice(c.limits.Memory, environment)
}
