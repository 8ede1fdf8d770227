// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
)

// TLSMode is where the certificate of the main port comes from.
type TLSMode string

// The modes.
const (
	TLSSelf  TLSMode = "self"  // a CA in the state directory
	TLSFiles TLSMode = "files" // of somebody else's CA
	TLSNone  TLSMode = "none"  // clear text
)

// Config is a valid configuration of a discovery service.
type Config struct {
	Name        string // of this service, for people and for its certificate
	Version     string // of the program
	StateDir    string
	RunDir      string
	Listen      string
	AdminListen string
	STUN        v1alpha1.STUNConfig
	Pprof       bool
	Log         v1alpha1.LogConfig
	TLS         TLSMode
	Hosts       []string // of TLSSelf
	Snapshot    time.Duration
	Etcd        *EtcdConfig // nil: in memory
	Settle      time.Duration
	Await       bool // Settle was given, and is waited for at a first start, too
	Drain       time.Duration

	// What a reload may change.
	Reloadable
}

// Reloadable is the part of a configuration that a running service takes over.
type Reloadable struct {
	limits            Limits
	rates             Rates
	proxies           []netip.Prefix
	certFile, keyFile string        // of TLSFiles
	redirect          string        // where Talos nodes are sent; empty: nowhere
	moved             chan struct{} // closed when a reload sends them elsewhere
}

// Limits bound what a service takes.
type Limits struct {
	Clusters, Members, Endpoints                                   int
	Bytes, BytesPerAddress                                         int64
	ClustersPerAddress                                             int
	Connections, ConnectionsPerAddress, Watches, WatchesPerAddress int
}

func (l Limits) board() Bounds {
	return Bounds{
		Clusters: l.Clusters, Members: l.Members, Endpoints: l.Endpoints, Bytes: l.Bytes,
		ClustersPerAddress: l.ClustersPerAddress, BytesPerAddress: l.BytesPerAddress,
	}
}

// Rates are how many calls of an address are taken.
type Rates struct{ PerSecond, Burst int }

// EtcdConfig is how a store in etcd is reached.
type EtcdConfig struct {
	Endpoints                 []string
	Prefix                    string
	CAFile, CertFile, KeyFile string
	Username, PasswordFile    string
	Settle                    time.Duration
	Await                     bool
}

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.DiscoveryConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindDiscoveryConfig, raw.Kind)
	cfg := validate(raw, d.Add)
	return cfg, d.Err()
}

// DefaultConfig is the configuration of a service that was given none.
func DefaultConfig() Config {
	return validate(v1alpha1.DiscoveryConfig{}, func(path, format string, args ...any) {})
}

func validate(raw v1alpha1.DiscoveryConfig, add conf.Report) Config {
	host, err := os.Hostname()
	if err != nil {
		host = "discovery"
	}
	c := Config{
		Name:     label(host),
		StateDir: cmp.Or(raw.StateDir, "/var/lib/tombolo/discovery"), RunDir: cmp.Or(raw.RunDir, "/run/tombolo"),
		Listen: cmp.Or(raw.Listen, ":8446"), AdminListen: cmp.Or(raw.Admin.Listen, "127.0.0.1:8447"), Pprof: raw.Admin.Pprof,
		Log:    raw.Log,
		Await:  raw.Settle.Duration != 0,
		Settle: between(raw.Settle, limit.DiscoverySettle, limit.DiscoveryTTL, "settle", add),
		Drain:  between(raw.DrainTimeout, limit.Drain, time.Hour, "drainTimeout", add),
	}
	add.Listener("listen", c.Listen)
	add.Listener("admin.listen", c.AdminListen)
	c.STUN = stunserver.Configure(raw.STUN, add)
	add.Log(raw.Log.Format, raw.Log.Level)
	c.tls(raw.TLS, add)
	c.store(raw.Store, add)
	c.limits = limits(raw.Limits, add)
	c.rates = Rates{
		number(raw.Rates.PerSecond, discoveryRate, 1_000_000, "rates.perSecond", add),
		number(raw.Rates.Burst, discoveryBurst, 1_000_000, "rates.burst", add),
	}
	if c.redirect = raw.Redirect; c.redirect != "" {
		host, number, err := net.SplitHostPort(c.redirect)
		if _, bad := netip.ParseAddr(host); err != nil || bad != nil && !isName(host) ||
			!conf.IsPort(number) || number == "0" {
			add("redirect", "%q is no host and port such as discovery.example.com:443", c.redirect)
		}
	}
	if len(raw.TrustedProxies) > discoveryProxies {
		add("trustedProxies", "there are %d, at most %d are taken", len(raw.TrustedProxies), discoveryProxies)
	}
	for i, text := range raw.TrustedProxies {
		p, err := network(text)
		if err != nil {
			add(fmt.Sprintf("trustedProxies[%d]", i), "%q is neither an address nor a network without host bits", text)
		} else if p.Bits() == 0 {
			add(fmt.Sprintf("trustedProxies[%d]", i), "%q is everybody: each caller could "+
				"name any address as its own, and no bound of an address would hold", text)
		}
		c.proxies = append(c.proxies, p)
	}
	return c
}

// network reads an address or a network.
func network(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && (p != p.Masked() || p.Addr().Is4In6()) {
		err = fmt.Errorf("%q has host bits", text)
	}
	return p, err
}

func (c *Config) tls(raw v1alpha1.DiscoveryTLSConfig, add conf.Report) {
	files := raw.CertFile != "" || raw.KeyFile != ""
	switch {
	case raw.Self && raw.None || files && (raw.Self || raw.None):
		add("tls", "one of certFile with keyFile, self, and none can be")
	case raw.None:
		c.TLS = TLSNone
	case files:
		c.TLS = TLSFiles
	default:
		c.TLS = TLSSelf
	}
	if files && (raw.CertFile == "" || raw.KeyFile == "") {
		add("tls", "certFile and keyFile belong together")
	}
	absolute("tls.certFile", raw.CertFile, add)
	absolute("tls.keyFile", raw.KeyFile, add)
	c.certFile, c.keyFile = raw.CertFile, raw.KeyFile
	if len(raw.Hosts) > 0 && c.TLS != TLSSelf {
		add("tls.hosts", "it says what a certificate of our own names: that takes self")
	}
	if c.Hosts = raw.Hosts; len(c.Hosts) == 0 {
		c.Hosts = hostsHere()
	}
	for i, h := range raw.Hosts {
		if _, err := netip.ParseAddr(h); err != nil && !isName(h) {
			add(fmt.Sprintf("tls.hosts[%d]", i), "%q is neither a name nor an address", h)
		}
	}
}

func isName(h string) bool {
	return len(h) <= 253 && h != "" && strings.Trim(strings.ToLower(h), "abcdefghijklmnopqrstuvwxyz0123456789-.*") == ""
}

func (c *Config) store(raw v1alpha1.DiscoveryStoreConfig, add conf.Report) {
	c.Snapshot = discoverySnapshot
	if raw.Memory != nil {
		c.Snapshot = between(raw.Memory.SnapshotInterval, discoverySnapshot, time.Hour,
			"store.memory.snapshotInterval", add)
		if c.Snapshot < time.Second {
			add("store.memory.snapshotInterval", "%v is less than 1s", c.Snapshot)
		}
	}
	e := raw.Etcd
	if e == nil {
		return
	}
	if raw.Memory != nil {
		add("store", "one of memory and etcd can be")
	}
	if len(e.Endpoints) == 0 {
		add("store.etcd.endpoints", "is missing")
	}
	for i, at := range e.Endpoints {
		u, err := url.Parse(at)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
			u.Path != "" && u.Path != "/" {
			add(fmt.Sprintf("store.etcd.endpoints[%d]", i), "it is no URL such as https://10.0.0.1:2379")
		}
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		add("store.etcd", "certFile and keyFile belong together")
	}
	if (e.Username == "") != (e.PasswordFile == "") {
		add("store.etcd", "username and passwordFile belong together")
	}
	for path, file := range map[string]string{"caFile": e.CAFile, "certFile": e.CertFile, "keyFile": e.KeyFile,
		"passwordFile": e.PasswordFile} {
		absolute("store.etcd."+path, file, add)
	}
	c.Etcd = &EtcdConfig{
		Endpoints: e.Endpoints, Prefix: cmp.Or(e.Prefix, "/tombolo/discovery"), CAFile: e.CAFile, CertFile: e.CertFile,
		KeyFile:  e.KeyFile,
		Username: e.Username, PasswordFile: e.PasswordFile,
	}
}

func limits(raw v1alpha1.DiscoveryLimitsConfig, add conf.Report) Limits {
	l := Limits{
		Clusters:    number(raw.Clusters, discoveryClusters, 10_000_000, "limits.clusters", add),
		Members:     number(raw.Members, limit.DiscoveryMembers, 1_000_000, "limits.members", add),
		Endpoints:   number(raw.Endpoints, limit.DiscoveryEndpoints, 1024, "limits.endpoints", add),
		Bytes:       int64(raw.Bytes),
		Connections: number(raw.Connections, discoveryConnections, 10_000_000, "limits.connections", add),
		ConnectionsPerAddress: number(raw.ConnectionsPerAddress, discoveryFrom, 10_000_000,
			"limits.connectionsPerAddress", add),
		WatchesPerAddress: number(raw.WatchesPerAddress, discoveryWatches, 10_000_000, "limits.watchesPerAddress",
			add),
	}
	l.Watches = number(raw.Watches, max(discoveryAllWatches, 2*l.Connections), 20_000_000, "limits.watches", add)
	if l.Bytes == 0 {
		l.Bytes = discoveryBytes
	}
	// What is kept must fit into a snapshot, with the leases that stand beside it.
	if most := v1alpha1.Size(discoveryBytesMost); raw.Bytes > most {
		add("limits.bytes", "%v is more than %v", raw.Bytes, most)
	}
	// A part of the whole, and where the whole is small, what one cluster needs.
	l.ClustersPerAddress = number(raw.ClustersPerAddress,
		min(l.Clusters, max(l.Clusters/discoveryShare, discoveryShareClusters)), 10_000_000,
		"limits.clustersPerAddress", add)
	if l.BytesPerAddress = int64(raw.BytesPerAddress); l.BytesPerAddress == 0 {
		l.BytesPerAddress = min(l.Bytes, max(l.Bytes/discoveryShare, discoveryShareBytes))
	}
	return l
}

// number is one from 1 to most.
func number(n *int, otherwise, most int, path string, add conf.Report) int {
	switch {
	case n == nil:
		return otherwise
	case *n < 1 || *n > most:
		add(path, "%d is not within 1 and %d", *n, most)
	}
	return *n
}

func between(d v1alpha1.Duration, otherwise, most time.Duration, path string, add conf.Report) time.Duration {
	switch {
	case d.Duration == 0:
		return otherwise
	case d.Duration < 0 || d.Duration > most:
		add(path, "%v is not more than 0s and at most %v", d.Duration, most)
	}
	return d.Duration
}

func absolute(path, file string, add conf.Report) {
	if file != "" && !filepath.IsAbs(file) {
		add(path, "%q is not absolute", file)
	}
}

// label makes an RFC 1123 label of a host name.
func label(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, host)
	return cmp.Or(strings.Trim(out[:min(len(out), 63)], "-"), "discovery")
}

// fixedChanges names the settings that differ but cannot be taken over by a running service.
func fixedChanges(old, next Config) []string {
	return conf.Settings{
		{"stateDir", old.StateDir == next.StateDir},
		{"runDir", old.RunDir == next.RunDir},
		{"listen", old.Listen == next.Listen},
		{"admin", old.AdminListen == next.AdminListen && old.Pprof == next.Pprof},
		{"stun", old.STUN == next.STUN},
		{"log", old.Log == next.Log},
		{"tls", old.TLS == next.TLS && (old.TLS != TLSSelf || slices.Equal(old.Hosts, next.Hosts))},
		{"store", old.Snapshot == next.Snapshot && sameEtcd(old.Etcd, next.Etcd)},
		{"settle", old.Settle == next.Settle && old.Await == next.Await},
		{"drainTimeout", old.Drain == next.Drain},
	}.Changed()
}

func sameEtcd(a, b *EtcdConfig) bool {
	if a == nil || b == nil {
		return a == b
	}
	rest := func(c EtcdConfig) [6]string {
		return [6]string{c.Prefix, c.CAFile, c.CertFile, c.KeyFile, c.Username, c.PasswordFile}
	}
	return slices.Equal(a.Endpoints, b.Endpoints) && rest(*a) == rest(*b)
}
