// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http"
	"path/filepath"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// AdminSocket is where an edge with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "edge", "edge.sock") }

// Status describes the edge for operators.
func (e *Edge) Status() admin.EdgeStatus {
	files := e.files.Status()
	out := admin.EdgeStatus{
		Meta:    admin.Meta{APIVersion: v1alpha1.Version, Kind: "EdgeStatus"},
		Version: e.cfg.Version, Since: e.began, Draining: e.draining.Load(), HealthListen: e.healthAt,
		Tenants: admin.EdgeTenants{InForce: e.tenants.Len(), Refused: files.Refused},
		Ejected: e.upstreams.Failing(),
		Tunnels: admin.EdgeTunnels{Open: e.counts.total(), Limit: e.settings.Load().Total},
	}
	out.Tunnels.Most, out.Tunnels.Clusters = e.counts.most(clustersListed)
	out.Unguarded.Ways, out.Unguarded.Clusters = unguarded(e.tenants.All(), e.table)
	for i, l := range e.cfg.Listeners {
		protocol := "tls"
		if l.Connect {
			protocol = "connect"
		}
		out.Listeners = append(out.Listeners, admin.EdgeListener{Name: l.Name, Protocol: protocol, Listen: e.portsAt[i]})
	}
	for _, r := range files.Refusals {
		out.Tenants.Refusals = append(out.Tenants.Refusals, admin.PolicyRefusal(r))
	}
	for _, f := range e.feeds {
		st := f.Status()
		out.Tenants.Refused += st.Refused
		if st.Away != "" {
			out.Tenants.Away = append(out.Tenants.Away, admin.EdgeSource{Source: f.Source, Reason: st.Away})
		}
		for _, r := range st.Refusals {
			out.Tenants.Refusals = append(out.Tenants.Refusals, admin.PolicyRefusal(r))
		}
	}
	if e.table.Configured() {
		st := e.policies.Status()
		st.Version = e.table.Whole().String()
		out.Policy = &st
	}
	return out
}

// api is the admin API, on a socket that its owner alone reaches.
func (e *Edge) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, e.Status())
	})
	mux.HandleFunc("GET /v1/coverage", func(w http.ResponseWriter, r *http.Request) {
		cluster := r.URL.Query().Get("cluster")
		out := Coverage(e.tenants.All(), e.table, cluster)
		if cluster != "" && out.Tenants == 0 {
			admin.WriteFault(w, NoTenant(cluster))
			return
		}
		admin.WriteJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		out, err := e.explain(r.URL.Query())
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

// adminServer serves the API with bounds on what its callers may take.
func (e *Edge) adminServer() listener.HTTP {
	return listener.HTTP{Handler: e.api(), Header: limit.RequestHeader, Log: e.log, Conn: listener.WithFew}
}

// NoTenant is the fault of a question about a cluster without a tenant.
func NoTenant(cluster string) error {
	return fault.Newf(fault.CodeNotFound, "there is no tenant %q", cluster).
		Hint("'tombolo edge status' shows refused files")
}
