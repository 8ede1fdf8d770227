// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// mostEndpoints is how many of the reserved addresses endpoints can have.
const mostEndpoints = 8

// The engines of an endpoint's mesh.
const (
	engineUserspace = "userspace"
	engineKernel    = "kernel"
)

// Config is the valid configuration of a seed. The zero value is none: every cluster is off.
type Config struct {
	Enabled   bool // for clusters that say nothing themselves
	Range     netip.Prefix
	Most      int // clusters that are on; 0: as many as the range has
	VPNServer string
	Endpoints []Endpoint
}

// Endpoint is where clusters connect to.
type Endpoint struct {
	Name      string     `json:"name"`
	Address   string     `json:"address"` // host:port
	PublicKey member.Key `json:"publicKey"`
	Overlay4  netip.Addr `json:"overlay4"` // its own in the range
	Kernel    bool       `json:"kernel,omitempty"`
}

// Configured says whether there is a range.
func (c Config) Configured() bool { return c.Range.IsValid() }

// Parse validates the section of a hub's configuration.
func Parse(raw *v1alpha1.HubWireGuardConfig, add conf.Report) Config {
	if raw == nil {
		return Config{}
	}
	add = under(add, "wireguard.")
	c := Config{Enabled: raw.Enabled, Most: raw.MaxClusters, VPNServer: raw.VPNServer}
	c.ranges(raw, add)
	if c.Most < 0 {
		add("maxClusters", "%d is negative; 0 is as many as the range has", c.Most)
	}
	if c.VPNServer != "" {
		c.checkServer(add)
	}
	if n := len(raw.Endpoints); n < 1 || n > mostEndpoints {
		add("endpoints", "there are %d, 1 to %d are possible", n, mostEndpoints)
	}
	names, keys, addresses := seen{}, seen{}, seen{}
	for i, e := range raw.Endpoints {
		at := fmt.Sprintf("endpoints[%d]", i)
		out := Endpoint{Name: e.Name, Address: e.Address}
		if _, err := id.ParseNode(e.Name); err != nil {
			add(at+".name", "%v", err)
		}
		switch e.Engine {
		case "", engineUserspace:
		case engineKernel:
			out.Kernel = true
		default:
			add(at+".engine", "%q is neither %s nor %s: clusters have to know which one it is", e.Engine,
				engineUserspace, engineKernel)
		}
		names.once(e.Name, at+".name", add)
		if _, err := policy.ParseTarget(e.Address); err != nil {
			add(at+".address", "%v", err)
		}
		addresses.once(e.Address, at+".address", add)
		var err error
		if out.PublicKey, err = member.ParseKey(e.PublicKey); err != nil {
			add(at+".publicKey", "%v", err)
		}
		keys.once(e.PublicKey, at+".publicKey", add)
		if c.Range.IsValid() && i < mostEndpoints {
			out.Overlay4 = nth(c.Range, uint32(i)+1)
		}
		c.Endpoints = append(c.Endpoints, out)
	}
	return c
}

func under(add conf.Report, path string) conf.Report {
	return func(field, format string, args ...any) { add(path+field, format, args...) }
}

// seen is where each value was first.
type seen map[string]string

func (s seen) once(value, at string, add conf.Report) {
	if value == "" {
		return // reported as such
	}
	if first, twice := s[value]; twice {
		add(at, "%q stands in %s already", value, first)
		return
	}
	s[value] = at
}

func (c *Config) ranges(raw *v1alpha1.HubWireGuardConfig, add conf.Report) {
	own, problem := readRange(raw.Range)
	switch {
	case raw.Range == "":
		add("range", "it is missing: an IPv4 range that nothing else uses, such as 192.168.128.0/22")
	case problem != "":
		add("range", "%s", problem)
	case own.Bits() > longestRange:
		add("range", "%s is too small: the first %d addresses are not for clusters, at most /%d is possible", own, reserved,
			longestRange)
	case own.Overlaps(vpnTransfer()):
		add("range", "%s overlaps %s, which the VPN uses between its two ends", own, vpnTransfer())
	default:
		c.Range = own
	}
	if raw.ParentRange == "" {
		return
	}
	parent, problem := readRange(raw.ParentRange)
	switch {
	case problem != "":
		add("parentRange", "%s", problem)
	case own.IsValid() && own.Overlaps(parent):
		add("parentRange", "%s, that of the seed above, overlaps range %s: the seed has addresses in both", parent, own)
	}
}

// vpnTransfer is the VPN's default for its own addresses.
func vpnTransfer() netip.Prefix { return netip.MustParsePrefix("192.168.123.0/24") }

// readRange reads a range of private or shared IPv4 addresses, or says what is wrong with it.
func readRange(text string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Sprintf("%q is no range in CIDR form, such as 192.168.128.0/22", text)
	}
	if !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Sprintf("%s is not IPv4", p)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Sprintf("%s has bits of a host; the range is %s", p, p.Masked())
	}
	for _, of := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"} {
		if whole := netip.MustParsePrefix(of); whole.Contains(p.Addr()) && p.Bits() >= whole.Bits() {
			return p, ""
		}
	}
	return netip.Prefix{}, fmt.Sprintf("%s is neither private (RFC 1918) nor shared (RFC 6598)", p)
}

func (c *Config) checkServer(add conf.Report) {
	if !strings.Contains(c.VPNServer, id.ClusterMark) {
		add("vpnServer", "%q does not contain %s: all clusters would have one server", c.VPNServer, id.ClusterMark)
	} else if _, err := policy.ParseTarget(c.server("c")); err != nil {
		add("vpnServer", "with the cluster c it is %q: %v", c.server("c"), err)
	}
}

// server is where the VPN server of a cluster is, on the seed's side.
func (c Config) server(cluster string) string {
	return strings.ReplaceAll(c.VPNServer, id.ClusterMark, cluster)
}

// named says whether the endpoint's address has a name that must be resolved.
func (e Endpoint) named() bool {
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}
