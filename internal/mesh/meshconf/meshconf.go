// SPDX-License-Identifier: Apache-2.0

package meshconf

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// DefaultPort is WireGuard's, as everybody has it, and DefaultESPPort that of ESP in UDP (RFC 3948).
const (
	DefaultPort    = 51820
	DefaultESPPort = 4500
	// ipsecMTU is the default with IPsec: what ESP in UDP over IPv6 leaves of 1,500 bytes.
	ipsecMTU = 1418
)

// The engines.
const (
	Userspace = "userspace"
	Kernel    = "kernel"
	Auto      = "auto"  // the kernel's if it has one, else in userspace
	IPsec     = "ipsec" // that of the kernel
)

// None is a pool of no addresses.
const None = "none"

// Config is a valid configuration of the mesh on a machine.
type Config struct {
	Port        uint16           // 0: any that is free
	Options     topology.Options // without Overlay6, which is the cluster's
	Keep        bool             // what is in the kernel stays at the end
	LazyAbove   int
	ClosedFor   time.Duration // for how long the ranges of a member that is gone stay closed
	Shared      bool          // a range may be another member's too
	Engine      string        // Userspace, Kernel, Auto or IPsec
	ESP         ESP
	Offloads    tunnel.Offloads
	PortMapping bool
	STUN        []string // host:port, beside those of hubs and services
	Without     []string // patterns of interfaces; nil: nat.DefaultWithout
	Policies    []string // files of kind AccessPolicy
	Join        string   // the line, or @FILE with it; empty: none
	Hubs        []string // host:port, instead of those of the line
	Proxy       proxy.Setting
}

// Default is the configuration of a machine that was given none.
func Default() Config {
	r := reading{add: func(string, string, ...any) {}}
	return r.config(v1alpha1.MeshOptions{})
}

// Read reads the section of a node that runs the mesh, and refuses what cannot stand
// beside it. File reads a file that others cannot read; nil: it is left unread, as on
// another machine. The error is that of such a file.
func Read(raw v1alpha1.MeshConfig, file func(string) (string, error), add conf.Report) (Config, error) {
	for path, stated := range map[string]bool{
		"announce.publicKey": raw.Announce.PublicKey != "", "announce.privateKeyFile": raw.Announce.PrivateKeyFile != "",
	} {
		if stated {
			add(path, "the mesh has a key of its own, in node.stateDir: leave it out")
		}
	}
	announced(raw.Announce, add)
	return read(raw.Mesh, file, add)
}

// announced looks at the ranges of this node: what nobody may have, and what covers an
// address by which it says itself that it is reached. What is no range or address is told
// by who reads them.
func announced(raw v1alpha1.MeshAnnounce, add conf.Report) {
	var own []netip.Addr
	for _, text := range raw.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			own = append(own, a.Unmap())
		}
	}
	for _, text := range raw.Endpoints {
		if a, err := netip.ParseAddrPort(text); err == nil {
			own = append(own, a.Addr().Unmap())
		}
	}
	for i, text := range raw.Ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			continue
		}
		at := fmt.Sprintf("announce.ranges[%d]", i)
		if why := topology.Never(p); why != "" {
			add(at, "%s is %s: no range of a node", p, why)
			continue
		}
		if k := slices.IndexFunc(own, p.Contains); k >= 0 {
			add(at, "%s covers %s, by which this node is reached without the mesh: announce smaller ranges that leave it out",
				p, own[k])
		}
	}
}

// Check is Read for one that runs no mesh: the section is looked at, and what stands beside
// it is another one's, but for ranges, which peers of a mesh would refuse. The files that it
// names are left unread.
func Check(raw v1alpha1.MeshConfig, add conf.Report) error {
	announced(raw.Announce, add)
	_, err := read(raw.Mesh, nil, add)
	return err
}

func read(raw v1alpha1.MeshOptions, file func(string) (string, error), add conf.Report) (Config, error) {
	r := reading{add: add}
	c := r.config(raw)
	var err error
	c.Proxy, err = proxy.Configure("mesh.", proxy.Named{Proxy: raw.Proxy, File: raw.ProxyFile, Read: file}, add)
	return c, err
}

// Fixed names the settings that differ from those of a running mesh and need a restart. The
// others it takes over: accept, exclude, bypass, closedFor, shared, policies, lazyAbove, stun and without.
func (c Config) Fixed(next Config) []string {
	a, b := c.Options, next.Options
	return conf.Settings{
		{"mesh.port", c.Port == next.Port},
		{"mesh.link", a.Link == b.Link},
		{"mesh.mtu", a.MTU == b.MTU},
		{"mesh.overlay4", a.Overlay4 == b.Overlay4},
		{"mesh.marks", a.Marks == b.Marks},
		{"mesh.table", a.Table == b.Table},
		{"mesh.rule", a.Rule == b.Rule},
		{"mesh.filter", a.Filter == b.Filter},
		{"mesh.keep", c.Keep == next.Keep},
		{"mesh.engine", c.Engine == next.Engine},
		{"mesh.ipsec", c.ESP == next.ESP},
		{"mesh.offloads", c.Offloads == next.Offloads},
		{"mesh.portMapping", c.PortMapping == next.PortMapping},
		{"mesh.hubs", slices.Equal(c.Hubs, next.Hubs)},
		{"mesh.proxy", c.Proxy.Same(next.Proxy)},
	}.Changed()
}

// Take is the configuration of a running mesh after a change of the file: what needs a
// restart is as it was. A join line is read at a start only, and is no change.
func (c Config) Take(next Config) Config {
	c.Options.Accept, c.Options.Exclude, c.Options.Bypass = next.Options.Accept, next.Options.Exclude, next.Options.Bypass
	c.Options.Masquerade = next.Options.Masquerade
	c.Policies, c.LazyAbove, c.STUN, c.Without = next.Policies, next.LazyAbove, next.STUN, next.Without
	c.ClosedFor, c.Shared = next.ClosedFor, next.Shared
	return c
}

// reading collects a configuration; add gets every problem with its place.
type reading struct{ add conf.Report }

func (r reading) config(raw v1alpha1.MeshOptions) Config {
	c := Config{
		Port: uint16(r.number("mesh.port", raw.Port, DefaultPort, 65535)), Options: r.options(raw), Keep: raw.Keep,
		LazyAbove: r.number("mesh.lazyAbove", raw.LazyAbove, limit.MeshLazy, limit.MeshLazyMost),
		ClosedFor: cmp.Or(raw.ClosedFor.Duration, meshClosed), Shared: raw.Shared,
		Engine: cmp.Or(raw.Engine, Userspace), ESP: r.esp(raw.IPsec), PortMapping: or(raw.PortMapping, true),
		Offloads: tunnel.Offloads{
			UDPGSO: or(raw.Offloads.UDPGSO, true), UDPGRO: or(raw.Offloads.UDPGRO, true),
			TunTSO: or(raw.Offloads.TUNTSO, true), TunGRO: or(raw.Offloads.TUNGRO, true),
		},
		STUN: r.servers("mesh.stun", raw.STUN, meshServers), Without: r.patterns(raw.Without),
		Policies: r.files(raw.Policies),
		Join:     raw.Join, Hubs: r.servers("mesh.hubs", raw.Hubs, limit.RelayHubs),
	}
	if engines := []string{Userspace, Kernel, Auto, IPsec}; !slices.Contains(engines, c.Engine) {
		r.add("mesh.engine", "%q is neither userspace, kernel, auto nor ipsec%s", c.Engine, conf.Meant(c.Engine, engines...))
	}
	if c.ClosedFor < 0 || c.ClosedFor > meshClosedMost {
		r.add("mesh.closedFor", "%v is not within 0s and %v", c.ClosedFor, meshClosedMost)
		c.ClosedFor = meshClosed
	}
	if c.Engine == IPsec && !c.ESP.Only {
		r.beside(c)
	}
	r.join(c.Join)
	return c
}

// beside looks at what WireGuard beside IPsec needs: a link and a port of its own.
func (r reading) beside(c Config) {
	if len(c.Options.Link) == 15 {
		r.add("mesh.link", "%q is too long with mesh.engine ipsec, which has a second link of this name with a w behind it: "+
			"at most 14 characters, or 15 with mesh.ipsec.only", c.Options.Link)
	}
	if c.Port == c.ESP.Port {
		r.add("mesh.port", "%d is mesh.ipsec.port too: with mesh.engine ipsec the first one is WireGuard's, for nodes "+
			"without IPsec; choose another one, or set mesh.ipsec.only", c.Port)
	}
}

// options reads what topology plans with. What it refuses of them has the name of the field.
func (r reading) options(raw v1alpha1.MeshOptions) topology.Options {
	o := topology.Defaults()
	if raw.Engine == IPsec {
		o.MTU, o.IPsec = ipsecMTU, true
	}
	o.Link, o.Filter, o.Bypass = cmp.Or(raw.Link, o.Link), cmp.Or(raw.Filter, o.Filter), raw.Bypass
	o.MTU, o.Table, o.Rule = or(raw.MTU, o.MTU), or(raw.Table, o.Table), or(raw.Rule, o.Rule)
	for _, m := range []struct {
		into *uint32
		from v1alpha1.Mark
	}{{&o.Marks.Own, raw.Marks.Own}, {&o.Marks.Mesh, raw.Marks.Mesh}, {&o.Marks.Mask, raw.Marks.Mask}} {
		*m.into = cmp.Or(uint32(m.from), *m.into)
	}
	if raw.Overlay4 == None {
		o.Overlay4 = netip.Prefix{}
	} else if raw.Overlay4 != "" {
		o.Overlay4 = r.prefix("mesh.overlay4", raw.Overlay4)
	}
	if raw.Accept != nil {
		o.Accept = r.prefixes("mesh.accept", raw.Accept)
	}
	o.Exclude = r.prefixes("mesh.exclude", raw.Exclude)
	o.Masquerade = r.prefixes("mesh.masquerade", raw.Masquerade)
	if o.Link != "" && len(o.Link) <= 15 && (o.Link == "." || o.Link == ".." || strings.ContainsFunc(o.Link, notInLink)) {
		r.add("mesh.link", "%q is no name of a link: letters, digits, '.', '_' and '-' are expected", o.Link)
	}
	if len(o.Filter) > limit.MeshFilter || strings.ContainsFunc(o.Filter, notInFilter) ||
		strings.Contains("0123456789", o.Filter[:1]) {
		r.add("mesh.filter", "%q is no name of a table: at most %d of a-z, A-Z, 0-9 and '_' are expected, "+
			"the first a letter or '_'", short(o.Filter), limit.MeshFilter)
	}
	for i, p := range o.Accept { // one by one, to name the place
		one := topology.Defaults()
		one.Accept = []netip.Prefix{p}
		if p.IsValid() {
			r.faults(one.Check(), func(string) string { return fmt.Sprintf("mesh.accept[%d]", i) })
		}
	}
	rest := o
	rest.Accept = nil
	r.faults(rest.Check(), func(field string) string { return field })
	return o
}

func (r reading) faults(all []*fault.Fault, place func(field string) string) {
	for _, f := range all {
		r.add(place(f.What), "%s", f.Why)
	}
}

func notInLink(c rune) bool { return notInFilter(c) && c != '-' && c != '.' }

func notInFilter(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_'
}

// join looks at the line. What is wrong is said without it: there is a secret in it.
func (r reading) join(line string) {
	if strings.HasPrefix(line, "@") {
		if len(line) == 1 {
			r.add("mesh.join", "there is no file behind the @")
		}
		return
	}
	if line == "" {
		return
	}
	if _, err := trust.ParseJoin(line); err != nil {
		r.add("mesh.join", "%s; copy the whole line again from 'tombolo token create --node', or write @FILE",
			fault.From(err).Why)
	}
}

func (r reading) servers(path string, in []string, most int) []string {
	r.bound(path, len(in), most)
	for i, s := range in {
		if _, err := policy.ParseTarget(s); err != nil {
			r.add(fmt.Sprintf("%s[%d]", path, i), "%q is not host:port", short(s))
		}
	}
	return in
}

func (r reading) patterns(in []string) []string {
	r.bound("mesh.without", len(in), meshPatterns)
	for i, p := range in {
		if _, err := nat.CheckPatterns(in[i : i+1]); err != nil || p == "" {
			r.add(fmt.Sprintf("mesh.without[%d]", i), "%q is no pattern of names: tombolo*, br-[0-9]* and eth? are", short(p))
		}
	}
	return in
}

func (r reading) files(in []string) []string {
	r.bound("mesh.policies", len(in), meshPolicies)
	for i, f := range in {
		at := fmt.Sprintf("mesh.policies[%d]", i)
		if f == "" {
			r.add(at, "it is empty")
		} else if first := slices.Index(in, f); first < i {
			r.add(at, "%q stands at mesh.policies[%d] too", short(f), first)
		}
	}
	return in
}

func (r reading) prefixes(path string, in []string) []netip.Prefix {
	r.bound(path, len(in), meshRanges)
	out := make([]netip.Prefix, 0, len(in))
	for i, s := range in {
		out = append(out, r.prefix(fmt.Sprintf("%s[%d]", path, i), s))
	}
	return out
}

func (r reading) prefix(path, s string) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		r.add(path, "%q is no range: a CIDR is expected", short(s))
	case p != p.Masked():
		r.add(path, "%s has bits beyond its length; %s is meant?", p, p.Masked())
	default:
		return p
	}
	return netip.Prefix{}
}

func (r reading) number(path string, n *int, otherwise, most int) int {
	v := or(n, otherwise)
	if v < 0 || v > most {
		r.add(path, "%d is not within 0 and %d", v, most)
		return otherwise
	}
	return v
}

func (r reading) bound(path string, n, most int) {
	if n > most {
		r.add(path, "there are %d, at most %d are allowed", n, most)
	}
}

func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// short keeps what was written from filling a line.
func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
