// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/http"
	"net/netip"
	"path/filepath"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// AdminSocket is where a process with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "route", "route.sock") }

// Status describes it for operators.
func (r *Route) Status() admin.RouteStatus {
	out := admin.RouteStatus{
		Meta:    admin.Meta{APIVersion: v1alpha1.Version, Kind: "RouteStatus"},
		Version: r.cfg.Version, Since: r.began, Draining: r.draining.Load(), Link: r.cfg.Link, Table: r.cfg.RouteTable,
		Rule: r.cfg.Rule, HealthListen: r.healthAt, Open: r.counts.total(), Limit: r.settings.Load().Connections,
	}
	for _, a := range r.cfg.Addresses {
		out.Addresses = append(out.Addresses, a.String())
	}
	for _, c := range r.cfg.Clusters {
		one := r.doors[c.Name].status()
		one.Open = r.counts.of(c.Name)
		out.Clusters = append(out.Clusters, one)
	}
	return out
}

// Explain says where a connection to an address would lead.
func (r *Route) Explain(target string) (out admin.RouteExplanation, err error) {
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		return out, fault.Newf(fault.CodeRequest, "%q is not an address with a port", target).
			Hint("write ADDRESS:PORT, as a connection here would have it")
	}
	found, there, ok := r.cfg.Table.There(to.Addr())
	if !ok {
		return out, fault.Newf(fault.CodeNotFound, "%s is in no range that is routed to a cluster", to.Addr()).
			Hint("'tombolo route status' lists the ranges")
	}
	return admin.RouteExplanation{
		Meta:  admin.Meta{APIVersion: v1alpha1.Version, Kind: "RouteExplanation"},
		Asked: to.String(), Range: rangeOf(found), Cluster: found.Cluster,
		Target: netip.AddrPortFrom(there, to.Port()).String(), Identity: r.doors[found.Cluster].status().Identity,
	}, nil
}

// api is the admin API, on a socket that its owner alone reaches.
func (r *Route) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, r.Status())
	})
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, q *http.Request) {
		out, err := r.Explain(q.URL.Query().Get("target"))
		if err != nil {
			admin.WriteFault(w, fault.From(err))
			return
		}
		admin.WriteJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteFault(w, fault.New(fault.CodeNotFound, "there is no such request").Hint("GET /v1/status is one"))
	})
	return listener.Served(mux)
}
