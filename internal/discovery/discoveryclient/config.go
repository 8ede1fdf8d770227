// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	tunnel "github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// Config is a valid configuration of a node's discovery.
type Config struct {
	ClusterID    string // for services of the older protocol; empty: none are asked
	StateDir     string
	RunDir       string
	Announce     member.Facts
	WireGuard    seal.WireGuardPrivate // of Announce's public key; zero: it is not known, and not proven
	Lease        time.Duration
	Services     []Service
	File         string
	Kubernetes   *Kubernetes // nil: none is asked
	LinkedAs     string      // the node's own cluster among linked ones; empty: it is not linked
	PodRanges    bool        // those of the Node are announced; there is one, then
	Cache        bool
	HealthListen string
	Log          v1alpha1.LogConfig

	secrets []seal.Secret
	keys    []seal.Keys // of secrets
}

// DefaultRunDir is where the admin socket is if nothing else is said, and
// DefaultStateDir where the member's state is.
const (
	DefaultRunDir   = "/run/tombolo"
	DefaultStateDir = "/var/lib/tombolo/mesh"
)

// Clusters are the native ids of the secrets, in their order.
func (c Config) Clusters() []seal.ClusterID {
	var out []seal.ClusterID
	for _, k := range c.keys {
		out = append(out, k.Cluster())
	}
	return out
}

// Sourceless says that nobody is asked for members: a node knows itself alone then, and those of
// its cache.
func (c Config) Sourceless() bool {
	return len(c.Services) == 0 && c.File == "" && c.Kubernetes == nil
}

// ParseConfig decodes and validates a file, and reads the files of secrets and
// CAs that it names. It returns every problem at once.
//
// More reads what else stands in the file, such as the section mesh.
func ParseConfig(file string, data []byte, more ...More) (Config, error) {
	return parseConfig(file, data, true, more)
}

// More reads a part of the file that is another one's. Its problems are told with those of
// all; the error is that of files that it names.
type More func(raw v1alpha1.MeshConfig, add conf.Report) error

// CheckConfig is ParseConfig without the files that it names, for another machine.
func CheckConfig(file string, data []byte, more ...More) error {
	_, err := parseConfig(file, data, false, more)
	return err
}

func parseConfig(file string, data []byte, read bool, more []More) (Config, error) {
	var raw v1alpha1.MeshConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindMeshConfig, raw.Kind)
	v := validator{add: d.Add, read: read, stands: d.Stands}
	cfg := v.config(raw)
	for _, read := range more {
		if err := read(raw, d.Add); err != nil {
			v.files = append(v.files, err)
		}
	}
	if err := d.Err(); err != nil {
		return Config{}, err
	}
	return cfg, errors.Join(v.files...)
}

// FromFlags is the configuration of a command line that names a secret and services.
func FromFlags(secretFile, id string, services []v1alpha1.MeshService) (Config, error) {
	no := false
	return Configure(v1alpha1.MeshConfig{
		Cluster: v1alpha1.MeshCluster{SecretFiles: []string{secretFile}, ID: id},
		Sources: v1alpha1.MeshSources{Services: services}, Cache: &no,
	})
}

// validator collects problems of the text, and those of the files that it names.
type validator struct {
	add    conf.Report
	read   bool
	files  []error
	stands func(path string) bool // whether it stands in the file; nil: there is none
}

func (v *validator) config(raw v1alpha1.MeshConfig) Config {
	c := Config{
		ClusterID: raw.Cluster.ID, StateDir: cmp.Or(raw.Node.StateDir, DefaultStateDir),
		RunDir: cmp.Or(raw.Node.RunDir, DefaultRunDir), File: raw.Sources.File,
		Cache: raw.Cache == nil || *raw.Cache, HealthListen: cmp.Or(raw.HealthListen, "127.0.0.1:8448"), Log: raw.Log,
		Lease: raw.Announce.Lease.Duration, PodRanges: raw.Announce.PodRanges,
	}
	v.secretsInto(&c, raw.Cluster)
	if c.Lease == 0 {
		c.Lease = limit.DiscoveryTTL
	}
	if c.Lease < shortestLease || c.Lease > limit.DiscoveryTTL {
		v.add("announce.lease", "%v is not within %v and %v", c.Lease, shortestLease, limit.DiscoveryTTL)
	}
	c.Kubernetes = v.kubernetes(&raw)
	v.podRanges(c, raw.Sources.Kubernetes)
	c.LinkedAs = v.linked(c, raw.Sources)
	v.announce(&c, raw)
	if n := len(raw.Sources.Services); n > limit.DiscoveryServices {
		v.add("sources.services", "there are %d, at most %d are allowed", n, limit.DiscoveryServices)
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
	v.add.Listener("healthListen", c.HealthListen)
	v.add.Log(raw.Log.Format, raw.Log.Level)
	return c
}

func (v *validator) secretsInto(c *Config, raw v1alpha1.MeshCluster) {
	switch n := len(raw.SecretFiles); {
	case n == 0:
		v.add("cluster.secretFiles", "a cluster has a secret: 'tombolo discovery secret create' writes one")
	case n > limit.ClusterSecrets:
		v.add("cluster.secretFiles", "there are %d, at most %d are allowed", n, limit.ClusterSecrets)
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
	for name, stated := range map[string]bool{"mesh": facts.Mesh != 0, "relayCluster": facts.RelayCluster != "",
		"relays": len(facts.Relays) > 0, "pin": !facts.Pin.IsZero(), "engine": facts.Engine != ""} {
		if stated {
			v.add("announce."+name, "the mesh itself says it, as it is: leave it out")
		}
	}
	if file := raw.Announce.PrivateKeyFile; file != "" {
		if raw.Announce.PublicKey != "" {
			v.add("announce.privateKeyFile", "publicKey stands there too: give one of them")
		}
		facts.Key = v.wireGuard(c, file)
	}
	facts.Node = raw.Node.Name
	if facts.Node == "" && v.read {
		facts.Node = os.Getenv("NODE_NAME") // a pod's own name is another one with each pod
	}
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
	if c.Announce = facts; len(facts.Endpoints) > limit.DiscoveryEndpoints {
		v.add("announce.endpoints", "there are %d, at most %d are announced", len(facts.Endpoints), limit.DiscoveryEndpoints)
		return
	}
	m, err := seal.ParseMember(seal.Message(facts))
	if err != nil {
		v.add("announce", "%s", fault.From(err).Why)
	}
	c.Announce = m
}

// wireGuard reads the node's WireGuard key.
func (v *validator) wireGuard(c *Config, file string) member.Key {
	if !v.read {
		return member.Key{}
	}
	text, err := readPrivate(file)
	if err == nil {
		c.WireGuard, err = seal.ParseWireGuardPrivate(text)
	}
	if err != nil {
		v.files = append(v.files, err)
		return member.Key{}
	}
	return c.WireGuard.Public()
}

func (v *validator) service(at string, raw v1alpha1.MeshService) Service {
	s := Service{given: raw, Protocol: Protocol(cmp.Or(raw.Protocol, string(ProtocolAuto)))}
	var err error
	if s.place, err = parsePlace(raw.URL); err != nil {
		v.add(at+".url", "%q: %v", shown(raw.URL), err)
		return s
	}
	if s.Name = cmp.Or(raw.Name, s.place.address); shown(s.Name) != s.Name {
		v.add(at+".name", "it has characters that cannot be shown, or is too long")
	}
	if !s.place.secure && !raw.Insecure {
		v.add(at+".url", "http shows the cluster's id and all traffic to anyone on the path: "+
			"write https, or set insecure: true")
	}
	if !s.place.secure && (raw.CAFile != "" || raw.Pin != "") {
		v.add(at+".url", "http has no certificate for caFile or pin to check")
	}
	switch s.Protocol {
	case ProtocolAuto, ProtocolNative, ProtocolSidero:
	default:
		v.add(at+".protocol", "%q is none of auto, native, sidero%s", shown(raw.Protocol),
			conf.Meant(raw.Protocol, "auto", "native", "sidero"))
	}
	if raw.CAFile != "" && raw.Pin != "" {
		v.add(at+".pin", "a pin stands in place of caFile: give one of them")
	}
	if raw.Pin != "" || v.stands != nil && v.stands(at+".pin") { // an empty one would be none, and the system's CAs count
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
	data, err := readBounded(file, limit.PrivateFile)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(data) {
		v.add(at, "%s holds no certificate in PEM that can be read", file)
	}
	return pool
}

func (v *validator) proxy(at string, raw v1alpha1.MeshService, s *Service) {
	named := tunnel.Named{Proxy: raw.Proxy, File: raw.ProxyFile}
	if v.read {
		named.Read = readPrivate
	}
	setting, err := tunnel.Configure(at+".", named, v.add)
	if err != nil {
		v.files = append(v.files, err)
	}
	s.Proxy, s.proxy = setting.Choose, setting
}

// Configure is the configuration of a command line that says the same as a file.
func Configure(raw v1alpha1.MeshConfig, more ...More) (Config, error) {
	var problems []string
	v := validator{read: true, add: func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}}
	cfg := v.config(raw)
	for _, read := range more {
		if err := read(raw, v.add); err != nil {
			v.files = append(v.files, err)
		}
	}
	if len(problems) > 0 {
		return Config{}, fault.New(fault.CodeUsage, "the flags cannot be used").Whyf("%s", strings.Join(problems, "; ")).
			Hint("--secret-file FILE --service https://HOST[:PORT]")
	}
	return cfg, errors.Join(v.files...)
}
