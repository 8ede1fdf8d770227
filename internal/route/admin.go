// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/route/names"
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
	for _, a := range r.cfg.Resolver {
		out.Resolver = append(out.Resolver, a.String())
	}
	for _, c := range r.cfg.Clusters {
		one := r.doors[c.Name].status()
		one.Open = r.counts.of(c.Name)
		for _, z := range r.cfg.Names {
			if z.Cluster == c.Name {
				one.DNS = r.dnsOf(z)
			}
		}
		out.Clusters = append(out.Clusters, one)
	}
	return out
}

// dnsOf describes the names of a cluster. Dots at the end are left out, as in the configuration.
func (r *Route) dnsOf(z names.Zone) *admin.RouteDNS {
	return &admin.RouteDNS{Zone: strings.TrimSuffix(z.Here, "."), Domain: strings.TrimSuffix(z.There, "."),
		Server: z.Server.String(), Failed: r.names.failure(z.Cluster)}
}

// Explain says where a connection to an address would lead, or who would be asked for a name.
func (r *Route) Explain(target string) (admin.RouteExplanation, error) {
	out := admin.RouteExplanation{Meta: admin.Meta{APIVersion: v1alpha1.Version, Kind: "RouteExplanation"}, Asked: target}
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		return r.explainName(out)
	}
	out.Asked = to.String()
	if r.names.serves(to) {
		out.Resolver = true
		return out, nil
	}
	found, there, ok := r.cfg.Table.There(to.Addr())
	switch {
	case slices.Contains(r.cfg.Resolver, to.Addr()):
		return out, fault.Newf(fault.CodeNotFound, "at %s is the resolver, and at no other port than %d", to.Addr(), dnsPort)
	case !ok:
		return out, fault.Newf(fault.CodeNotFound, "%s is in no range that is routed to a cluster", to.Addr()).
			Hint("'tombolo route status' lists the ranges")
	}
	out.Range, out.Cluster, out.Target = rangeOf(found), found.Cluster, netip.AddrPortFrom(there, to.Port()).String()
	out.Identity = r.doors[found.Cluster].status().Identity
	return out, nil
}

// explainName says who would be asked for the name of a target, which may have a port: a connection to it begins so.
func (r *Route) explainName(out admin.RouteExplanation) (admin.RouteExplanation, error) {
	name, port, has := strings.Cut(out.Asked, ":")
	_, err := netip.ParseAddr(name)
	if err == nil || has && !isPort(port) {
		return out, notAsked(out.Asked)
	}
	if name, err = names.ParseZone(name); err != nil {
		return out, notAsked(out.Asked)
	}
	z, there, ok := r.names.table.Find(name)
	if !ok {
		return out, fault.Newf(fault.CodeNotFound, "%s is no name of a cluster", strings.TrimSuffix(name, ".")).
			Hint("'tombolo route status' lists the zones; a name has one at its end")
	}
	out.DNS, out.Cluster, out.Target = r.dnsOf(z), z.Cluster, strings.TrimSuffix(there, ".")
	out.Identity = r.doors[z.Cluster].status().Identity
	return out, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func notAsked(target string) error {
	return fault.Newf(fault.CodeRequest, "%q is neither an address with a port nor a name", target).
		Hint("write ADDRESS:PORT, as a connection here would have it, or a name under the zone of a cluster")
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
