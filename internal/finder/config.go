// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/conf"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/seal"
)

// Config is a valid configuration of a node's discovery.
type Config struct {
	ClusterID    string // for services of the older protocol; empty: none are asked
	StateDir     string
	Announce     seal.Member
	Lease        time.Duration
	Services     []Service
	File         string
	Cache        bool
	HealthListen string
	Log          v1alpha1.LogConfig

	secrets []seal.Secret
	keys    []seal.Keys // of secrets
}

// Clusters are the native ids of the secrets, in their order.
func (c Config) Clusters() []seal.ClusterID {
	var out []seal.ClusterID
	for _, k := range c.keys {
		out = append(out, k.Cluster())
	}
	return out
}

// ParseConfig decodes and validates a file, and reads the files of secrets and
// CAs that it names. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) { return parseConfig(file, data, true) }

// CheckConfig is ParseConfig without the files that it names, for another machine.
func CheckConfig(file string, data []byte) error {
	_, err := parseConfig(file, data, false)
	return err
}

func parseConfig(file string, data []byte, read bool) (Config, error) {
	var raw v1alpha1.MeshConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	if raw.APIVersion != v1alpha1.Version {
		d.Add("apiVersion", "%q is expected", v1alpha1.Version)
	}
	if raw.Kind != v1alpha1.KindMeshConfig {
		d.Add("kind", "%q is expected", v1alpha1.KindMeshConfig)
	}
	v := validator{add: d.Add, read: read}
	cfg := v.config(raw)
	if err := d.Err(); err != nil {
		return Config{}, err
	}
	return cfg, errors.Join(v.files...)
}

// FromFlags is the configuration of a command line that names a secret and services.
func FromFlags(secretFile, id string, services []v1alpha1.MeshService) (Config, error) {
	var problems []string
	v := validator{read: true, add: func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}}
	no := false
	cfg := v.config(v1alpha1.MeshConfig{
		Cluster: v1alpha1.MeshCluster{SecretFiles: []string{secretFile}, ID: id},
		Sources: v1alpha1.MeshSources{Services: services}, Cache: &no,
	})
	if len(problems) > 0 {
		return Config{}, fault.New(fault.CodeUsage, "the flags cannot be used").Whyf("%s", strings.Join(problems, "; ")).
			Hint("--secret-file FILE --service https://HOST[:PORT]")
	}
	return cfg, errors.Join(v.files...)
}

// validator collects problems of the text, and those of the files that it names.
type validator struct {
	add   func(path, format string, args ...any)
	read  bool
	files []error
}

func (v *validator) config(raw v1alpha1.MeshConfig) Config {
	c := Config{
		ClusterID: raw.Cluster.ID, StateDir: or(raw.Node.StateDir, "/var/lib/tombolo/mesh"), File: raw.Sources.File,
		Cache: raw.Cache == nil || *raw.Cache, HealthListen: or(raw.HealthListen, "127.0.0.1:8448"), Log: raw.Log,
		Lease: raw.Announce.Lease.Duration,
	}
	v.secretsInto(&c, raw.Cluster)
	if c.Lease == 0 {
		c.Lease = limit.DiscoveryTTL
	}
	if c.Lease < time.Minute || c.Lease > limit.DiscoveryTTL {
		v.add("announce.lease", "%v is not within 1m and %v", c.Lease, limit.DiscoveryTTL)
	}
	v.announce(&c, raw)
	if n := len(raw.Sources.Services); n > limit.FinderServices {
		v.add("sources.services", "there are %d, at most %d are allowed", n, limit.FinderServices)
		raw.Sources.Services = nil
	}
	names := map[string]int{}
	for i, s := range raw.Sources.Services {
		at := fmt.Sprintf("sources.services[%d]", i)
		out := v.service(at, s)
		if first, taken := names[out.Name]; taken && out.Name != "" {
			v.add(at+".name", "%q is that of sources.services[%d] too", out.Name, first)
		}
		names[out.Name] = i
		if out.Protocol == ProtocolSidero && c.ClusterID == "" {
			v.add(at+".protocol", "the older protocol needs cluster.id")
		}
		c.Services = append(c.Services, out)
	}
	if _, port, err := net.SplitHostPort(c.HealthListen); err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		v.add("healthListen", "%q is not host:port or :port", c.HealthListen)
	}
	switch raw.Log.Format {
	case "", "text", "json":
	default:
		v.add("log.format", "%q is neither text nor json", raw.Log.Format)
	}
	switch raw.Log.Level {
	case "", "debug", "info", "warn", "error":
	default:
		v.add("log.level", "%q is none of debug, info, warn, error", raw.Log.Level)
	}
	return c
}

func (v *validator) secretsInto(c *Config, raw v1alpha1.MeshCluster) {
	switch n := len(raw.SecretFiles); {
	case n == 0:
		v.add("cluster.secretFiles", "a cluster has a secret: 'tombolo discovery secret create' writes one")
	case n > limit.FinderSecrets:
		v.add("cluster.secretFiles", "there are %d, at most %d are allowed", n, limit.FinderSecrets)
		return
	}
	if len(raw.ID) > limit.DiscoveryID {
		v.add("cluster.id", "it has %d bytes, at most %d are allowed", len(raw.ID), limit.DiscoveryID)
	}
	for i, file := range raw.SecretFiles {
		if file == "" {
			v.add(fmt.Sprintf("cluster.secretFiles[%d]", i), "it is empty")
		}
		if !v.read || file == "" {
			continue
		}
		s, err := ReadSecret(file)
		if err != nil {
			v.files = append(v.files, err)
			continue
		}
		for j, other := range c.secrets {
			if s.Equal(other) {
				v.add(fmt.Sprintf("cluster.secretFiles[%d]", i), "it holds the same secret as secretFiles[%d]", j)
			}
		}
		c.secrets, c.keys = append(c.secrets, s), append(c.keys, s.Keys())
	}
}

func (v *validator) announce(c *Config, raw v1alpha1.MeshConfig) {
	broken := false
	facts := roster.ReadSpec(func(path, format string, args ...any) {
		broken = true
		v.add(path, format, args...)
	}, "announce.", raw.Announce.MemberSpec)
	facts.Node = raw.Node.Name
	if facts.Node == "" && v.read {
		host, err := os.Hostname()
		if err != nil {
			v.add("node.name", "the machine has no name: %v", err)
			return
		}
		facts.Node = host
	}
	if facts.Node == "" || broken {
		return
	}
	if c.Announce = MemberOf(facts); len(c.Announce.Message().GetEndpoints()) > limit.DiscoveryEndpoints {
		v.add("announce.endpoints", "there are %d, at most %d are announced", len(c.Announce.Endpoints), limit.DiscoveryEndpoints)
		return
	}
	m, err := seal.ParseMember(c.Announce.Message())
	if err != nil {
		v.add("announce", "%s", fault.From(err).Why)
	}
	c.Announce = m
}

func (v *validator) service(at string, raw v1alpha1.MeshService) Service {
	s := Service{Protocol: Protocol(or(raw.Protocol, string(ProtocolAuto)))}
	var err error
	if s.place, err = parsePlace(raw.URL); err != nil {
		v.add(at+".url", "%q: %v", shown(raw.URL), err)
		return s
	}
	if s.Name = or(raw.Name, s.place.address); shown(s.Name) != s.Name {
		v.add(at+".name", "it has characters that cannot be shown, or is too long")
	}
	if !s.place.secure && !raw.Insecure {
		v.add(at+".url", "http shows the cluster's id and all traffic to anybody on the way: write https, or set insecure: true")
	}
	if !s.place.secure && (raw.CAFile != "" || raw.Pin != "") {
		v.add(at+".url", "http has no certificate for caFile or pin to check")
	}
	switch s.Protocol {
	case ProtocolAuto, ProtocolNative, ProtocolSidero:
	default:
		v.add(at+".protocol", "%q is none of auto, native, sidero", raw.Protocol)
	}
	if raw.CAFile != "" && raw.Pin != "" {
		v.add(at+".pin", "a pin stands in place of caFile: give one of them")
	}
	if raw.Pin != "" {
		if s.Pin, err = parsePin(raw.Pin); err != nil {
			v.add(at+".pin", "%v", err)
		}
	}
	if raw.CAFile != "" && v.read {
		s.Roots = v.roots(at+".caFile", raw.CAFile)
	}
	v.proxy(at, raw, &s)
	return s
}

func (v *validator) roots(at, file string) *x509.CertPool {
	data, err := readBounded(file, limit.FinderProxyHead*64)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(data) {
		v.add(at, "%s holds no certificate in PEM that can be read", file)
	}
	return pool
}

func (v *validator) proxy(at string, raw v1alpha1.MeshService, s *Service) {
	text := raw.Proxy
	if raw.ProxyFile != "" {
		if raw.Proxy != "" {
			v.add(at+".proxyFile", "proxy stands there too: give one of them")
		}
		if !v.read {
			return
		}
		secret, err := readPrivate(raw.ProxyFile)
		if err != nil {
			v.files = append(v.files, err)
			return
		}
		text = strings.TrimSpace(secret)
	}
	switch text {
	case "none":
	case "", "environment":
		s.Proxy = httpproxy.FromEnvironment().ProxyFunc()
	default:
		u, err := parseProxy(text)
		if err != nil {
			v.add(at+".proxy", "%v", err)
			return
		}
		s.Proxy = func(*url.URL) (*url.URL, error) { return u, nil }
	}
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
