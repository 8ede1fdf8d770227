// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// vpnMost is how many servers there are, and how many clients: what is beyond two protects from nothing more.
const vpnMost = 2

// vpn checks what both ends have, and says which families the ranges have. identities is how many the Secret holds.
func (p *problems) vpn(o VPNOptions, pods string, servers, identities int) families {
	if o.HostNetwork {
		p.add("host-network", "would route for the whole node: run 'tombolo vpn' there as a service of the system")
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume that is claimed")
	}
	p.label("cluster", o.Cluster, 63)
	if o.Pods < 1 || o.Pods > vpnMost {
		p.add(pods, "%d is neither 1 nor %d", o.Pods, vpnMost)
	}
	p.oneOf("protocol", o.Protocol, "tcp", "udp")
	p.oneOf("handshake", o.Handshake, HandshakeAuth, HandshakeCrypt, HandshakeNone)
	p.vpnIdentity(o, identities)
	if n := len(o.Transfer); n > 0 && n != servers {
		p.add("transfer", "stands %d times, and there are %d servers: each has networks of its own", n, servers)
	}
	used := map[string]bool{}
	for _, text := range o.Transfer {
		for one := range strings.SplitSeq(text, ",") {
			if !isNetwork(one) {
				p.add("transfer", "%q is no CIDR", one)
			}
			if used[one] {
				p.add("transfer", "%s stands twice: each server has networks of its own", one)
			}
			used[one] = true
		}
	}
	_, f := p.routeRanges(RouteOptions{Cluster: o.Cluster, Ranges: o.Ranges, Maps: o.Maps})
	return f
}

func (p *problems) vpnIdentity(o VPNOptions, identities int) {
	p.optionalName("secret", o.Secret)
	switch {
	case o.Secret != "":
		p.meaningless("with --secret, which has it", given{"identity", len(o.Bundles) > 0},
			given{"static-key", o.StaticKey != ""})
	case o.ForeignCA:
		p.add("foreign-ca", "needs --secret: make one with tls.crt, tls.key and ca.crt")
	case len(o.Bundles) == 0:
		p.add("identity", "is missing: name a file of 'tombolo certificate issue', or a Secret with --secret")
	case len(o.Bundles) != identities:
		p.add("identity", "stands %d times, %d are needed: OpenVPN lets in only one client of a name", len(o.Bundles),
			identities)
	}
	switch {
	case o.Handshake == HandshakeNone:
		p.meaningless("with --handshake none", given{"static-key", o.StaticKey != ""})
	case o.Secret == "" && o.StaticKey == "":
		p.add("static-key", "is missing: name a file of 'tombolo vpn key', or say --handshake none")
	}
}

// vpnServer checks what only a server has, and returns the annotations of its Services.
func (p *problems) vpnServer(o VPNServerOptions) map[string]string {
	if o.ForeignCA && len(o.Clients) == 0 {
		p.add("client", "is missing: with --foreign-ca, write the common names that may dial in")
	}
	if o.Pods > 1 && o.NodePort != 0 {
		p.add("node-port", "is one, and there are %d servers", o.Pods)
	}
	return p.exposed(o.Exposed)
}

// vpnClient checks what only a client has.
func (p *problems) vpnClient(o VPNClientOptions) {
	if n := len(o.Servers); n < 1 || n > vpnMost {
		p.add("server", "there are %d, 1 to %d are needed: HOST:PORT", n, vpnMost)
	}
	for _, s := range o.Servers {
		if _, err := policy.ParseTarget(s); err != nil {
			p.add("server", "%v", err)
		}
	}
	if o.Proxy == "" {
		p.meaningless("without --proxy", given{"destination", len(o.Destinations) > 0}, given{"header", o.Header != ""})
		return
	}
	if _, err := policy.ParseTarget(o.Proxy); err != nil {
		p.add("proxy", "%v", err)
	}
	if o.Protocol == "udp" {
		p.add("proxy", "carries no udp: leave --protocol at tcp")
	}
	if n := len(o.Destinations); n > 0 && n != len(o.Servers) {
		p.add("destination", "stands %d times, and --server %d times: each has its own", n, len(o.Servers))
	}
	if slices.ContainsFunc(o.Destinations, func(s string) bool { return s == "" || hasControl(s) }) {
		p.add("destination", "is empty, or has control characters")
	}
	if o.Header != "" && len(o.Destinations) == 0 {
		p.add("header", "means nothing without --destination")
	}
}
