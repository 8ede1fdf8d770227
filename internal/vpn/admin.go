// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// The ends.
const (
	endServer = "server"
	endClient = "client"
)

func (c common) status(end, version string, unready *fault.Fault, who identity) admin.VPNStatus {
	out := admin.VPNStatus{Meta: admin.Meta{APIVersion: v1alpha1.Version, Kind: "VPNStatus"}, Version: c.Version,
		OpenVPN: version, End: end, Cluster: c.Cluster, Identity: who.name}
	if who.leaf != nil {
		out.Expires = who.expires()
	}
	if unready != nil {
		out.Unready, out.Next = unready.Explain(), unready.Next
	}
	return out
}

func rangesOf(all []mapping.Range) []admin.RouteRange {
	out := []admin.RouteRange{}
	for _, r := range all {
		one := admin.RouteRange{Range: r.There.String()}
		if r.Mapped() {
			one.As = r.Here.String()
		}
		out = append(out, one)
	}
	return out
}

func texts[T fmt.Stringer](all []T) []string {
	out := []string{}
	for _, one := range all {
		out = append(out, one.String())
	}
	return out
}

// Status describes the server for operators.
func (s *Server) Status() admin.VPNStatus {
	unready := s.unready()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.cfg.status(endServer, s.version, unready, s.who)
	out.Since, out.Draining, out.HealthListen = s.began, s.draining.Load(), s.healthAt
	out.Listen, out.Open, out.Ranges = s.cfg.Listen.String(), int(s.open.Load()), rangesOf(s.cfg.Ranges)
	if s.cfg.Connect != nil {
		out.Connect = s.cfg.Connect.Listen
	}
	t := s.cfg.tunnel()
	out.Tunnels = []admin.VPNTunnel{{Link: t.Link, Table: t.Table, Addresses: texts(t.Addresses), State: s.state}}
	if s.down != nil {
		out.Tunnels[0].Unready = s.down.Explain()
	}
	for _, p := range s.peers {
		out.Peers = append(out.Peers, admin.VPNPeer{Name: p.name, From: p.from, Active: p.active,
			Addresses: texts(p.addresses(s.cfg.Transfer)), Since: p.since, Answered: p.answered, In: p.in, Out: p.out})
	}
	return out
}

// Status describes the client for operators.
func (c *Client) Status() admin.VPNStatus {
	out := c.cfg.status(endClient, c.version, c.unready(), c.ends[0].identity())
	out.Since, out.Draining, out.HealthListen = c.began, c.draining.Load(), c.healthAt
	out.Ranges, out.Routes = rangesOf(c.cfg.Ranges), texts(c.cfg.Routes)
	for _, e := range c.ends {
		out.Tunnels = append(out.Tunnels, e.status())
	}
	return out
}

func (e *end) identity() identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.who
}

func (e *end) status() admin.VPNTunnel {
	unready := e.unready()
	e.mu.Lock()
	defer e.mu.Unlock()
	out := admin.VPNTunnel{Link: e.link, Table: e.cfg.Table + e.number, Server: e.remote.address,
		Addresses: texts(e.address), State: e.state, Since: e.since, Heard: e.heard, In: e.in, Out: e.out}
	if len(e.remotes) > 1 && e.state == openvpn.Connected && e.by.IsValid() {
		out.By = e.by.String()
	}
	if e.proxy != nil {
		out.Proxy = net.JoinHostPort(e.proxy.Host, strconv.Itoa(int(e.proxy.Port)))
	}
	if unready != nil {
		out.Unready = unready.Explain()
	}
	return out
}

// api is the admin API, on a socket that its owner alone reaches.
func api(status func() admin.VPNStatus) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, status())
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteFault(w, fault.New(fault.CodeNotFound, "there is no such request").Hint("GET /v1/status is one"))
	})
	return listener.Served(mux)
}

func (s *Server) api() http.Handler { return api(s.Status) }

func (c *Client) api() http.Handler { return api(c.Status) }
