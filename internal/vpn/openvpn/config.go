// SPDX-License-Identifier: Apache-2.0

// Package openvpn speaks OpenVPN's languages: it writes configuration files for OpenVPN 2.6, and reads and writes the
// lines of its management interface (doc/management-notes.txt of OpenVPN, versions 2.6 and 2.7). It starts nothing.
package openvpn

import (
	"fmt"
	"net/netip"
	"strings"
)

// The protocols.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Common is what a server and a client have in common.
type Common struct {
	Link       string // name of the TUN device, which is there already
	MTU        int    // of the TUN device
	Protocol   string // TCP or UDP
	Management string // path of the Unix socket that the process connects to
	// The files.
	CA, Certificate, Key string
	TLSAuth, TLSCrypt    string // keys; empty: none
	// User and Group are what the process becomes after its start; empty: it stays who it is.
	User, Group string
}

// Server is the configuration of a server.
type Server struct {
	Common
	Listen netip.AddrPort
	IPv6   bool // the machine has IPv6: an unspecified address is both families
	// Transfer4 and Transfer6 are the networks between server and clients; the server has the first address.
	Transfer4, Transfer6 netip.Prefix
	Clients              int // most connections at a time, also of those that have not shown a certificate yet
	Hosts                int // most addresses behind a client that are used at a time
	// Track has the names of clients told: off for those of a CA that has common names only.
	Track bool
}

// Client is the configuration of a client.
type Client struct {
	Common
	Remotes []Remote // of the one server, by the order in which they are tried
	Proxy   *Proxy
	// ServerName is the common name of the server's certificate, ServerPrefix what it begins with; empty: any that the CA
	// has made for a server.
	ServerName, ServerPrefix string
}

// Remote is where a server is dialled. As an event it is the one of several that is dialled next, and waits for
// AcceptRemote.
type Remote struct {
	Host string
	Port uint16
}

// Proxy is an HTTP proxy with a header that names the server.
type Proxy struct {
	Host          string
	Port          uint16
	Header, Value string
}

// The bounds of hosts: OpenVPN's own one, and as many as a table of it may have.
const (
	fewestHosts = 256
	mostHosts   = 1 << 20
)

// file collects directives.
type file struct{ b strings.Builder }

// add writes a directive. Words are quoted as options.c of OpenVPN reads them: within quotes a backslash escapes.
func (f *file) add(words ...string) {
	for i, w := range words {
		if i > 0 {
			f.b.WriteByte(' ')
		}
		if i == 0 || w != "" && strings.Trim(w, plain) == "" {
			f.b.WriteString(w)
			continue
		}
		f.b.WriteByte('"')
		f.b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", "", "\r", "").Replace(w))
		f.b.WriteByte('"')
	}
	f.b.WriteByte('\n')
}

// plain are the bytes of a word that needs no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/_-@+,="

func (c Common) write(f *file, server bool) {
	f.add("dev", c.Link)
	f.add("dev-type", "tun")
	f.add("persist-tun")
	f.add("persist-key")
	f.add("ifconfig-noexec") // addresses and routes are not its business
	f.add("route-noexec")
	f.add("script-security", "0")
	f.add("disable-dco")
	f.add("management", c.Management, "unix")
	f.add("management-client")
	f.add("management-hold")
	f.add("tun-mtu", fmt.Sprint(c.MTU))
	f.add("mssfix", "0") // the segments of TCP are clamped by the kernel
	f.add("data-ciphers", "AES-256-GCM")
	f.add("auth", "SHA256")
	f.add("tls-version-min", "1.3")
	f.add("ca", c.CA)
	f.add("cert", c.Certificate)
	f.add("key", c.Key)
	direction := "1"
	if server {
		direction = "0"
	}
	if c.TLSAuth != "" {
		f.add("tls-auth", c.TLSAuth, direction)
	}
	if c.TLSCrypt != "" {
		f.add("tls-crypt", c.TLSCrypt)
	}
	if c.Protocol == TCP {
		f.add("tcp-nodelay")
	}
	if c.User != "" {
		f.add("user", c.User)
		f.add("group", c.Group)
	}
	f.add("verb", "2")
	f.add("mute", "20")
}

// Config writes the file of a server: that of Gardener's vpn-seed-server, but for who changes addresses and routes, and
// who decides on clients, which the management interface is asked about.
func (s Server) Config() string {
	f := &file{}
	family := "4"
	if a := s.Listen.Addr(); a.Is6() && (s.IPv6 || !a.IsUnspecified()) {
		family = "6" // of an unspecified address the kernel gives it both families
	}
	f.add("mode", "server")
	f.add("tls-server")
	if s.Protocol == TCP {
		f.add("proto", "tcp"+family+"-server")
	} else {
		f.add("proto", "udp"+family)
	}
	if !s.Listen.Addr().IsUnspecified() {
		f.add("local", s.Listen.Addr().String())
	}
	f.add("port", fmt.Sprint(s.Listen.Port()))
	s.write(f, true)
	f.add("topology", "subnet")
	f.add("push", "topology subnet")
	if s.Transfer4.IsValid() {
		f.add("ifconfig", First(s.Transfer4).String(), mask(s.Transfer4))
		f.add("push", "route-gateway "+First(s.Transfer4).String())
	}
	if s.Transfer6.IsValid() {
		first := First(s.Transfer6)
		f.add("ifconfig-ipv6", netip.PrefixFrom(first, s.Transfer6.Bits()).String(), first.Next().String())
		f.add("push", "tun-ipv6")
	}
	f.add("keepalive", "10", "30")
	f.add("dh", "none")
	f.add("remote-cert-tls", "client")
	f.add("verify-client-cert", "require")
	f.add("auth-user-pass-optional")
	f.add("management-client-auth")
	if s.Track {
		f.add("x509-track", "subjectAltName")
	}
	f.add("hand-window", "20") // who does not finish its handshake takes a place for so many seconds
	f.add("max-clients", fmt.Sprint(s.Clients))
	f.add("max-routes-per-client", fmt.Sprint(min(max(s.Hosts, fewestHosts), mostHosts)))
	return f.b.String()
}

// Config writes the file of a client: that of Gardener's vpn-shoot, but for who changes addresses and routes. Of what a
// server pushes it takes what the tunnel itself needs, and nothing that would route.
func (c Client) Config() string {
	f := &file{}
	f.add("client")
	proto := c.Protocol
	if c.Protocol == TCP {
		proto = "tcp-client"
	}
	f.add("proto", proto)
	if len(c.Remotes) == 1 {
		f.add("remote", c.Remotes[0].Host, fmt.Sprint(c.Remotes[0].Port))
	}
	f.add("nobind")
	if len(c.Remotes) > 1 { // what does not answer soon is left for the next one
		f.add("resolv-retry", "2")
		f.add("connect-retry", "1", "2")
		f.add("connect-timeout", "4")
	} else {
		f.add("resolv-retry", "infinite")
		f.add("connect-retry", "1", "5")
		f.add("connect-timeout", "10")
	}
	c.write(f, false)
	if c.Proxy != nil {
		f.add("http-proxy", c.Proxy.Host, fmt.Sprint(c.Proxy.Port))
		if c.Proxy.Header != "" {
			f.add("http-proxy-option", "CUSTOM-HEADER", c.Proxy.Header, c.Proxy.Value)
		}
	}
	f.add("remote-cert-tls", "server")
	switch {
	case c.ServerName != "":
		f.add("verify-x509-name", c.ServerName, "name")
	case c.ServerPrefix != "":
		f.add("verify-x509-name", c.ServerPrefix, "name-prefix")
	}
	for _, option := range pushed() {
		f.add("pull-filter", "accept", option)
	}
	f.add("pull-filter", "ignore", "")
	if c.Protocol == UDP {
		f.add("explicit-exit-notify", "1")
	}
	if len(c.Remotes) > 1 {
		f.add("management-query-remote") // names alone would not say which one was reached
		for _, r := range c.Remotes {
			f.b.WriteString("<connection>\n")
			f.add("remote", r.Host, fmt.Sprint(r.Port), proto)
			f.b.WriteString("</connection>\n")
		}
	}
	return f.b.String()
}

// pushed are what a server may push; the last word may go on.
func pushed() []string {
	return []string{"ifconfig ", "ifconfig-ipv6 ", "topology subnet", "route-gateway ", "tun-ipv6", "tun-mtu ", "ping ",
		"ping-restart ", "peer-id ", "cipher ", "protocol-flags ", "key-derivation "}
}

// First is the first address of a transfer network, the server's.
func First(p netip.Prefix) netip.Addr { return p.Addr().Next() }

// mask is the netmask of an IPv4 network.
func mask(p netip.Prefix) string {
	m := ^uint32(0) << (32 - p.Bits())
	return netip.AddrFrom4([4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}).String()
}
