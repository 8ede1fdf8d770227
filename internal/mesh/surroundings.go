// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func servicesOf(stun, hubs []string, services []endpoint.Server) []topology.Service {
	var out []topology.Service
	add := func(what, hostPort string) {
		host, _, err := net.SplitHostPort(hostPort)
		if err != nil {
			return
		}
		a, err := netip.ParseAddr(host)
		a = a.Unmap().WithZone("")
		same := func(s topology.Service) bool { return s.Addr == a }
		if err == nil && !a.IsLoopback() && !a.IsUnspecified() && !slices.ContainsFunc(out, same) {
			out = append(out, topology.Service{Addr: a, What: what + " " + hostPort})
		}
	}
	for _, h := range hubs {
		add("the hub", h)
	}
	for _, s := range services {
		add("the discovery service", s.HostPort)
	}
	for _, s := range stun {
		add("the STUN server", s)
	}
	return out
}

func serversOf(texts, hubs []string, services []endpoint.Server) []endpoint.Server {
	var out []endpoint.Server
	for _, t := range texts {
		out = append(out, endpoint.Server{Name: t, HostPort: t})
	}
	for _, a := range hubs {
		out = append(out, endpoint.Server{Name: "hub " + a, HostPort: a})
	}
	return append(out, services...)
}

func relaysOf(a *attach.Attach) []netcheck.Relay {
	var out []netcheck.Relay
	for _, hub := range a.Addresses() {
		out = append(out, netcheck.Relay{Name: hub, Measure: a.Measure(hub)})
	}
	return out
}
