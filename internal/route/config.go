// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/route/names"
)

// The defaults of what is changed in the kernel.
const (
	DefaultLink   = "tombolo-route"
	DefaultTable  = 181
	DefaultRule   = 32510
	DefaultRunDir = "/run/tombolo"
	DefaultHealth = "127.0.0.1:8448"
)

// defaultAddresses are those of the link. RFC 7600 has the first for a machine without an IPv4 address of its own; the
// second is of a unique local range. Neither is ever on a wire.
func defaultAddresses() []string { return []string{"192.0.0.8", "fd74:6f6d:626f::8"} }

// defaultResolver are addresses next to them.
func defaultResolver() []string { return []string{"192.0.0.53", "fd74:6f6d:626f::53"} }

// Config is a valid configuration.
type Config struct {
	Version      string // of the program
	Clusters     []Cluster
	Table        mapping.Table
	Link         string
	Addresses    []netip.Addr
	Names        []names.Zone
	Resolver     []netip.Addr
	RouteTable   int
	Rule         int
	HealthListen string
	RunDir       string
	Log          v1alpha1.LogConfig
	Drain        time.Duration

	// What a reload may change.
	Reloadable
}

// Reloadable is the part of a configuration that a running process takes over.
type Reloadable struct {
	DialTimeout, IdleTimeout time.Duration
	Connections, PerSource   int
}

// Cluster is one that is reached.
type Cluster struct {
	Name        string
	Hubs        []string // host:port
	Certificate string   // file
}

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.RouteConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindRouteConfig, raw.Kind)
	cfg := Configure(raw, d.Add)
	return cfg, d.Err()
}

// Configure validates what a file or flags say, and reports each problem.
func Configure(raw v1alpha1.RouteConfig, add conf.Report) Config {
	c := Config{
		Link: cmp.Or(raw.Link, DefaultLink), RouteTable: cmp.Or(raw.Table, DefaultTable), Rule: cmp.Or(raw.Rule, DefaultRule),
		HealthListen: cmp.Or(raw.HealthListen, DefaultHealth), RunDir: cmp.Or(raw.RunDir, DefaultRunDir), Log: raw.Log,
		Drain: add.Positive("drainTimeout", raw.DrainTimeout.Duration, limit.Drain),
		Reloadable: Reloadable{
			DialTimeout: add.Positive("streams.dialTimeout", raw.Streams.DialTimeout.Duration, limit.Dial),
			IdleTimeout: add.Positive("streams.idleTimeout", raw.Streams.IdleTimeout.Duration, limit.StreamIdle),
			Connections: cmp.Or(raw.Limits.Connections, connections),
		},
	}
	c.PerSource = cmp.Or(raw.Limits.PerSource, c.Connections)
	for path, n := range map[string]int{
		"limits.connections": raw.Limits.Connections, "limits.perSource": raw.Limits.PerSource,
	} {
		if n < 0 {
			add(path, "%d is negative", n)
		}
	}
	add.Listener("healthListen", c.HealthListen)
	if !filepath.IsAbs(c.RunDir) {
		add("runDir", "%q is not an absolute path", c.RunDir)
	}
	add.Log(raw.Log.Format, raw.Log.Level)
	kernelNames(c, add)
	if raw.Addresses == nil {
		raw.Addresses = defaultAddresses()
	}
	c.Addresses = addresses("addresses", raw.Addresses, add)
	clusters(&c, raw.Clusters, add)
	zones(&c, raw, add)
	for i, a := range c.Addresses {
		if r, _, ok := c.Table.There(a); ok {
			add(fmt.Sprintf("addresses[%d]", i), "%s, the link's own address, is in the range %s", a, r)
		}
	}
	return c
}

// zones are the names of clusters, and where they are asked for.
func zones(c *Config, raw v1alpha1.RouteConfig, add conf.Report) {
	for i, r := range raw.Clusters {
		if r.DNS == nil {
			continue
		}
		path := fmt.Sprintf("clusters[%d].dns", i)
		z, domain := names.Zone{Cluster: r.Name}, cmp.Or(r.DNS.Domain, "cluster.local")
		var err error
		if z.There, err = names.ParseZone(domain); err != nil {
			add(path+".domain", "%v", err)
		}
		if z.Here, err = names.ParseZone(cmp.Or(r.DNS.Zone, domain)); err != nil {
			add(path+".zone", "%v", err)
		}
		if slices.ContainsFunc(c.Names, func(o names.Zone) bool { return o.Here == z.Here }) {
			add(path+".zone", "names under %s are another cluster's: write a zone of its own, such as %s.internal", z.Here,
				r.Name)
		}
		if z.Server, err = parseServer(r.DNS.Server); err != nil {
			add(path+".server", "%v", err)
		}
		c.Names = append(c.Names, z)
	}
	if raw.Resolver == nil && len(c.Names) > 0 {
		raw.Resolver = defaultResolver()
	}
	if len(raw.Resolver) > 0 && len(c.Names) == 0 {
		add("resolver", "no cluster has dns: there would be no name to resolve")
	}
	c.Resolver = addresses("resolver", raw.Resolver, add)
	for i, a := range c.Resolver {
		path := fmt.Sprintf("resolver[%d]", i)
		if r, _, ok := c.Table.There(a); ok {
			add(path, "%s is in the range %s", a, r)
		}
		if slices.Contains(c.Addresses, a) {
			add(path, "%s is an address of the link: packets to it would not reach the resolver", a)
		}
	}
}

// parseServer reads an address with a port or without.
func parseServer(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a.Unmap(), dnsPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
		return a, fmt.Errorf("%q is not the address of a DNS server, such as 10.96.0.10", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// kernelNames validates what is changed in the kernel. The tables 253 to 255 are the machine's own (rt_tables), and so
// are the rules 0, 32766 and 32767 that lead into them.
func kernelNames(c Config, add conf.Report) {
	if !regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,14}$`).MatchString(c.Link) {
		add("link", "%q is not the name of a link: 1 to 15 letters, digits, '.', '_' and '-'", c.Link)
	}
	if c.RouteTable < 1 || c.RouteTable > 1<<31-1 || c.RouteTable >= 253 && c.RouteTable <= 255 {
		add("table", "%d is not the number of a table of its own: 1 to 252, or 256 and above", c.RouteTable)
	}
	if c.Rule < 1 || c.Rule > 32765 {
		add("rule", "%d is not a priority before that of the table main: 1 to 32765", c.Rule)
	}
}

func addresses(field string, raw []string, add conf.Report) (out []netip.Addr) {
	for i, text := range raw {
		path := fmt.Sprintf("%s[%d]", field, i)
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "" || a.Is4In6():
			add(path, "%q is not an address", text)
		case a.IsMulticast(), a.IsLoopback(), a.IsUnspecified(), a.IsLinkLocalUnicast():
			add(path, "%s cannot be the address of a link: it is multicast, loopback, link-local or none", a)
		case slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }):
			add(path, "%s is the second one of its family", a)
		default:
			out = append(out, a)
		}
	}
	return out
}

func clusters(c *Config, raw []v1alpha1.RouteCluster, add conf.Report) {
	if len(raw) == 0 {
		add("clusters", "there is no cluster: nothing could be reached")
	}
	var ranges []mapping.Range
	var at []string // their paths
	for i, r := range raw {
		path := fmt.Sprintf("clusters[%d]", i)
		if _, err := id.ParseCluster(r.Name); err != nil {
			add(path+".name", "%v", err)
		}
		if slices.ContainsFunc(c.Clusters, func(o Cluster) bool { return o.Name == r.Name }) {
			add(path+".name", "another cluster has the name %q already: write all of its hubs and ranges there", r.Name)
		}
		if len(r.Hubs) == 0 {
			add(path+".hubs", "there is no hub")
		}
		for j, h := range r.Hubs {
			if _, err := policy.ParseTarget(h); err != nil {
				add(fmt.Sprintf("%s.hubs[%d]", path, j), "%v", err)
			}
		}
		if r.Certificate == "" {
			add(path+".certificate", "there is none: make it with 'tombolo certificate issue --role route' at the hub")
		}
		if len(r.Ranges) == 0 {
			add(path+".ranges", "there is no range: nothing would be routed to the cluster")
		}
		c.Clusters = append(c.Clusters, Cluster{r.Name, r.Hubs, r.Certificate})
		for j, text := range r.Ranges {
			place := fmt.Sprintf("%s.ranges[%d]", path, j)
			one, err := mapping.Parse(r.Name, text.Range, text.As)
			if err != nil {
				add(place, "%v", err)
				continue
			}
			ranges, at = append(ranges, one), append(at, place)
		}
	}
	table, overlaps := mapping.New(ranges)
	for _, o := range overlaps {
		add(at[o.Second], "%s", o.Why)
	}
	c.Table = table
}

// fixedChanges names the settings that differ but cannot be taken over by a running process.
func fixedChanges(old, next Config) []string {
	return conf.Settings{
		{"clusters", reflect.DeepEqual(old.Clusters, next.Clusters) && slices.Equal(old.Names, next.Names) &&
			reflect.DeepEqual(old.Table, next.Table)},
		{"link", old.Link == next.Link},
		{"addresses", slices.Equal(old.Addresses, next.Addresses)},
		{"resolver", slices.Equal(old.Resolver, next.Resolver)},
		{"table", old.RouteTable == next.RouteTable},
		{"rule", old.Rule == next.Rule},
		{"healthListen", old.HealthListen == next.HealthListen},
		{"runDir", old.RunDir == next.RunDir},
		{"log", old.Log == next.Log},
		{"drainTimeout", old.Drain == next.Drain},
	}.Changed()
}
