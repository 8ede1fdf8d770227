// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// The defaults.
const (
	DefaultRunDir       = "/run/tombolo"
	DefaultServerHealth = "127.0.0.1:8449"
	DefaultClientHealth = "127.0.0.1:8450"
	defaultListen       = ":1194"
	defaultConnect      = ":9443"
	defaultLink         = "tombolo-vpn"
	defaultTable        = 182
	defaultRule         = 32512
	defaultMTU          = 1500
	defaultMTUUDP       = 1400 // a datagram is a packet outside: with what it is wrapped in it has to fit into 1500
	headerReversedVPN   = "Reversed-VPN"
)

// The bounds of an MTU: the least that IPv6 needs (RFC 8200 section 5), and what a TUN takes.
const leastMTU, mostMTU = 1280, 65_520

// defaultTransfer are those of GEP-14, and of Gardener's vpn2.
func defaultTransfer() []string { return []string{"192.168.123.0/24", "fd8f:6d53:b97a:1::/96"} }

// common is what both ends have.
type common struct {
	Version  string // of Tombolo
	Cluster  string
	Identity v1alpha1.VPNIdentity
	// OpenVPN has all but the files and the link of a tunnel.
	OpenVPN      openvpn.Common
	Program      string
	Transfer     transfer
	Table, Rule  int
	HealthListen string
	RunDir       string
	Log          v1alpha1.LogConfig
}

// transfer are networks between a server and its clients; one that is not valid is not there.
type transfer struct{ V4, V6 netip.Prefix }

func (t transfer) all() (out []netip.Prefix) {
	for _, p := range []netip.Prefix{t.V4, t.V6} {
		if p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}

// of is the network of an address.
func (t transfer) of(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return t.V4
	}
	return t.V6
}

// ServerConfig is a valid configuration of a server.
type ServerConfig struct {
	common
	Listen  netip.AddrPort
	Routed  mapping.Table
	Ranges  []mapping.Range
	Connect *connectConfig
	Clients []string // may be reloaded
}

type connectConfig struct {
	Listen                     string
	Certificate, Key, ClientCA string
	Connections                int
}

// ClientConfig is a valid configuration of a client.
type ClientConfig struct {
	common
	Servers    []remote
	ServerName string
	Ranges     []mapping.Range
	Routes     []netip.Prefix
}

// remote is a server as a client dials it.
type remote struct {
	address  string // for people: all of them
	remotes  []openvpn.Remote
	proxy    *openvpn.Proxy
	transfer transfer
}

// ParseServerConfig decodes and validates a file. It returns every problem at once.
func ParseServerConfig(file string, data []byte) (ServerConfig, error) {
	var raw v1alpha1.VPNServerConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return ServerConfig{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindVPNServerConfig, raw.Kind)
	c := configureServer(raw, d.Add)
	return c, d.Err()
}

// ParseClientConfig decodes and validates a file. It returns every problem at once.
func ParseClientConfig(file string, data []byte) (ClientConfig, error) {
	var raw v1alpha1.VPNClientConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return ClientConfig{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindVPNClientConfig, raw.Kind)
	c := configureClient(raw, d.Add)
	return c, d.Err()
}

func configureServer(raw v1alpha1.VPNServerConfig, add conf.Report) ServerConfig {
	c := ServerConfig{common: configure(raw.VPNCommon, raw.Rule, DefaultServerHealth, 15, add)}
	host, port := hostPort("listen", cmp.Or(raw.Listen, defaultListen), add)
	at := netip.IPv6Unspecified()
	if host != "" {
		var err error
		if at, err = netip.ParseAddr(host); err != nil {
			add("listen", "%q is not an address of this machine", host)
		}
	}
	c.Listen = netip.AddrPortFrom(at, port)
	c.Clients = raw.Clients
	for i, name := range raw.Clients {
		if name == "" {
			add(fmt.Sprintf("clients[%d]", i), "it is empty")
		}
	}
	if raw.Identity.Bundle == "" && len(raw.Clients) == 0 {
		add("clients", "there is none: with an identity of files, write the common names that may dial in")
	}
	var parts []network.Part
	c.Ranges, parts = ranges("ranges", raw.Cluster, raw.Ranges, add)
	if len(raw.Ranges) == 0 {
		add("ranges", "there is no range: nothing would be routed to the cluster")
	}
	parts = append(parts, c.Transfer.parts("")...)
	for i, text := range raw.LocalRanges {
		r, err := mapping.Parse("", text, "")
		if err != nil {
			add(fmt.Sprintf("localRanges[%d]", i), "%v", err)
			continue
		}
		parts = append(parts, network.Part{What: "a range of this side", Range: r.There})
	}
	overlaps("ranges", parts, c.Ranges, add)
	c.Routed, _ = mapping.New(c.Ranges) // what overlaps is reported
	if raw.Connect != nil {
		x := *raw.Connect
		c.Connect = &connectConfig{Listen: cmp.Or(x.Listen, defaultConnect), Certificate: x.Certificate, Key: x.Key,
			ClientCA: x.ClientCA, Connections: cmp.Or(x.Connections, connects)}
		add.Listener("connect.listen", c.Connect.Listen)
		if x.Connections < 0 {
			add("connect.connections", "%d is negative", x.Connections)
		}
		if (x.Certificate == "") != (x.Key == "") {
			add("connect.certificate", "certificate and key go together")
		}
		if x.ClientCA == "" && raw.Identity.Bundle == "" {
			add("connect.clientCA", "there is none: with an identity of files, name who has made the certificates of clients")
		}
	}
	return c
}

func configureClient(raw v1alpha1.VPNClientConfig, add conf.Report) ClientConfig {
	c := ClientConfig{common: configure(raw.VPNCommon, raw.Rule, DefaultClientHealth, 13, add), ServerName: raw.ServerName}
	var parts []network.Part
	c.Ranges, parts = ranges("ranges", raw.Cluster, raw.Ranges, add)
	for i, text := range raw.Routes {
		r, err := mapping.Parse("", text, "")
		if err != nil {
			add(fmt.Sprintf("routes[%d]", i), "%v", err)
			continue
		}
		c.Routes = append(c.Routes, r.There)
		parts = append(parts, network.Part{What: fmt.Sprintf("routes[%d]", i), Range: r.There})
	}
	if len(raw.Ranges)+len(raw.Routes) == 0 {
		add("ranges", "there is no range: nothing could be reached")
	}
	if len(raw.Servers) == 0 {
		add("servers", "there is no server to dial")
	}
	if len(raw.Routes) > 0 && len(raw.Servers) > 1 {
		add("routes", "with several servers it is not clear which one leads there: write one server")
	}
	prefer := own("prefer", raw.Prefer, add)
	for i, s := range raw.Servers {
		path := fmt.Sprintf("servers[%d]", i)
		r := remote{transfer: c.Transfer}
		r.address, r.remotes = dialled(path, s, prefer, add)
		if len(s.Transfer) > 0 {
			r.transfer = networks(path+".transfer", s.Transfer, add)
		}
		parts = append(parts, r.transfer.parts(fmt.Sprintf(" of %s", path))...)
		if p := s.Proxy; p != nil {
			host, port := hostPort(path+".proxy.address", p.Address, add)
			r.proxy = &openvpn.Proxy{Host: host, Port: port, Header: p.Header, Value: p.Destination}
			if p.Destination != "" && p.Header == "" {
				r.proxy.Header = headerReversedVPN
			}
			if p.Destination == "" && p.Header != "" {
				add(path+".proxy.destination", "there is none for the header %s", p.Header)
			}
			if c.OpenVPN.Protocol == openvpn.UDP {
				add(path+".proxy", "a proxy carries no udp")
			}
		}
		c.Servers = append(c.Servers, r)
	}
	c.checkRoutes(add)
	overlaps("ranges", parts, c.Ranges, add)
	if last := c.Table + len(c.Servers) - 1; c.Table < 253 && last >= 253 {
		add("table", "%d tunnels need as many tables, and %d is the machine's own: begin with 256 or a lower one",
			len(c.Servers), last)
	}
	if c.Rule+len(c.Servers)-1 > 32765 {
		add("rule", "%d tunnels need as many priorities before 32766", len(c.Servers))
	}
	return c
}

// own reads an address of this machine by which endpoints are preferred; not valid: there is none.
func own(path, text string, add conf.Report) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		add(path, "%q is no address", text)
	}
	return a.Unmap()
}

// dialled are the addresses of a server, by the order in which they are tried, and as one text.
func dialled(path string, s v1alpha1.VPNServer, prefer netip.Addr, add conf.Report) (string, []openvpn.Remote) {
	texts, at := s.Addresses, func(i int) string { return fmt.Sprintf("%s.addresses[%d]", path, i) }
	switch {
	case s.Address != "" && len(texts) > 0:
		add(path+".addresses", "address and addresses exclude each other")
	case len(texts) > addresses:
		add(path+".addresses", "there are %d, at most %d are allowed", len(texts), addresses)
		return "", nil
	case len(texts) > 0 && s.Proxy != nil:
		add(path+".proxy", "a proxy leads to one address: write address")
	}
	if len(texts) == 0 {
		texts, at = []string{s.Address}, func(int) string { return path + ".address" }
	}
	var all []openvpn.Remote
	seen := map[openvpn.Remote]bool{}
	for i, text := range texts {
		host, port := hostPort(at(i), text, add)
		r := openvpn.Remote{Host: host, Port: port}
		switch {
		case host == "" && text != "" && port != 0:
			add(at(i), "%q has no host", text)
		case seen[r] && host != "":
			add(at(i), "%q stands there twice", text)
		}
		seen[r] = true
		all = append(all, r)
	}
	out := make([]openvpn.Remote, 0, len(all))
	words := make([]string, 0, len(all))
	order := network.Order(prefer, len(all))
	for _, i := range order {
		out, words = append(out, all[i]), append(words, texts[i])
	}
	return strings.Join(words, ","), out
}

func configure(raw v1alpha1.VPNCommon, rule int, health string, linkMost int, add conf.Report) common {
	c := common{
		Cluster: raw.Cluster, Identity: raw.Identity, Program: cmp.Or(raw.Program, "openvpn"),
		OpenVPN: openvpn.Common{Link: cmp.Or(raw.Link, defaultLink), MTU: cmp.Or(raw.MTU, defaultMTU),
			Protocol: cmp.Or(raw.Protocol, openvpn.TCP), TLSAuth: raw.TLSAuth, TLSCrypt: raw.TLSCrypt},
		Table: cmp.Or(raw.Table, defaultTable), Rule: cmp.Or(rule, defaultRule),
		HealthListen: cmp.Or(raw.HealthListen, health), RunDir: cmp.Or(raw.RunDir, DefaultRunDir), Log: raw.Log,
	}
	if raw.MTU == 0 && c.OpenVPN.Protocol == openvpn.UDP {
		c.OpenVPN.MTU = defaultMTUUDP
	}
	if _, err := id.ParseCluster(raw.Cluster); err != nil {
		add("cluster", "%v", err)
	}
	if p := c.OpenVPN.Protocol; p != openvpn.TCP && p != openvpn.UDP {
		add("protocol", "%q is neither tcp nor udp", p)
	}
	i := raw.Identity
	switch {
	case i.Bundle != "" && i.Certificate+i.Key+i.CA != "":
		add("identity", "bundle excludes certificate, key and ca")
	case i.Bundle == "" && (i.Certificate == "" || i.Key == "" || i.CA == ""):
		add("identity", "bundle is missing, made by 'tombolo certificate issue'; or all of certificate, key and ca")
	}
	if raw.TLSAuth != "" && raw.TLSCrypt != "" {
		add("tlsCrypt", "tlsAuth and tlsCrypt exclude each other")
	}
	if m := c.OpenVPN.MTU; m < leastMTU || m > mostMTU {
		add("mtu", "%d is not between %d and %d", m, leastMTU, mostMTU)
	}
	if !regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`).MatchString(c.OpenVPN.Link) || len(c.OpenVPN.Link) > linkMost {
		add("link", "%q is not the name of a link: 1 to %d letters, digits, '.', '_' and '-'", c.OpenVPN.Link, linkMost)
	}
	if c.Table < 1 || c.Table > 1<<31-1 || c.Table >= 253 && c.Table <= 255 {
		add("table", "%d is not the number of a table of its own: 1 to 252, or 256 and above", c.Table)
	}
	if c.Rule < 1 || c.Rule > 32765 {
		add("rule", "%d is not a priority before that of the table main: 1 to 32765", c.Rule)
	}
	add.Listener("healthListen", c.HealthListen)
	if !filepath.IsAbs(c.RunDir) {
		add("runDir", "%q is not an absolute path", c.RunDir)
	}
	add.Log(raw.Log.Format, raw.Log.Level)
	if raw.Transfer == nil {
		raw.Transfer = defaultTransfer()
	}
	c.Transfer = networks("transfer", raw.Transfer, add)
	return c
}

func hostPort(path, text string, add conf.Report) (host string, port uint16) {
	if len(text) > 0 && text[0] == ':' {
		n, err := strconv.ParseUint(text[1:], 10, 16)
		if err != nil || n == 0 {
			add(path, "%q has no port", text)
		}
		return "", uint16(n)
	}
	t, err := policy.ParseTarget(text)
	if err != nil {
		add(path, "%v", err)
		return "", 0
	}
	if t.Name != "" {
		return t.Name, t.Port
	}
	return t.Addr.String(), t.Port
}

// fixedChanges names the settings that differ but cannot be taken over by a running process.
func (c ServerConfig) fixedChanges(next ServerConfig) []string {
	return conf.Settings{
		{"listen", c.Listen == next.Listen},
		{"ranges", reflect.DeepEqual(c.Ranges, next.Ranges)},
		{"connect", reflect.DeepEqual(c.Connect, next.Connect)},
		{"others", reflect.DeepEqual(c.common, next.common)},
	}.Changed()
}

// admits reports whether a client of a name may dial in; with no list everybody does whom the certificate lets in.
func admits(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
