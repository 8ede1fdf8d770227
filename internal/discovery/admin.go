// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// Status is the status for operators: numbers, no contents.
func (s *Service) Status() admin.DiscoveryStatus {
	store, l := s.store.State(), s.settings.Load().limits
	out := admin.DiscoveryStatus{
		Meta: admin.Meta{APIVersion: v1alpha1.Version, Kind: "DiscoveryStatus"},
		Name: s.cfg.Name, Version: s.cfg.Version, Since: s.began, Draining: s.isDraining(), Listen: s.listen,
		TLS:         string(s.cfg.TLS),
		Certificate: s.certs.end(), Redirect: s.settings.Load().redirect,
		Store: admin.DiscoveryStore{
			Kind: store.Kind, Settled: store.Settled, Settles: store.Settles, Degraded: store.Degraded, Since: store.Since,
			Saved: store.Saved,
		},
		Watchers: s.watchers.Load(), Connections: s.connections.open.Load(),
		Limits: admin.DiscoveryLimits{Clusters: l.Clusters, Members: l.Members, Endpoints: l.Endpoints, Bytes: l.Bytes,
			Connections: min(l.Connections, s.connections.most)},
	}
	out.STUN = admin.STUN(s.stunServer.Status())
	out.Clusters, out.Members, out.Bytes = s.board.Counts()
	if s.certs != nil && s.certs.own != nil {
		out.CAPin = trust.Pin(s.certs.own.ca.Certificate())
	}
	return out
}

func (s *Service) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// end is when the certificate ends; zero without one.
func (c *certificates) end() time.Time {
	if c == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.Certificates[0].Leaf.NotAfter
}

// clusterCounts counts one cluster: of the native protocol if the id is one of
// that, else of the older one.
func (s *Service) clusterCounts(text string) (*admin.DiscoveryCluster, error) {
	id, protocol := Cluster{Sidero, text}, "sidero"
	if native, err := seal.ParseClusterID(text); err == nil {
		id, protocol = Cluster{Native, string(native[:])}, "native"
	}
	c := s.board.find(id, false)
	if c == nil {
		return nil, fault.New(fault.CodeNotFound, "the service does not know the cluster").
			Whyf("it has neither a member nor a watcher").
			Hint("write the native id (t1-...), or the id of the older protocol as its members send it")
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := &admin.DiscoveryCluster{ID: text, Protocol: protocol, Members: c.listed, Removals: len(c.members) - c.listed,
		Watchers: c.watchers}
	for id, l := range c.members {
		out.Bytes += weight(id, l.Lease)
	}
	return out, nil
}

// api is the admin API, on a socket that its owner alone reaches.
func (s *Service) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		out := s.Status()
		if id := r.URL.Query().Get("cluster"); id != "" {
			var err error
			if out.Cluster, err = s.clusterCounts(id); err != nil {
				admin.WriteFault(w, err)
				return
			}
		}
		admin.WriteJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		admin.WriteFault(w, fault.New(fault.CodeNotFound, "there is no such request").Hint("GET /v1/status is one"))
	})
	return mux
}

func (s *Service) probes() http.Handler {
	return listener.Probes{Ready: s.readyz, Metrics: s.opt.Reg, Pprof: s.cfg.Pprof}.Handler()
}

// readyz reports a service as ready although its store is degraded or not settled: what it knows
// is better than nothing, and callers learn what it does not know.
func (s *Service) readyz(w http.ResponseWriter, _ *http.Request) {
	if s.isDraining() {
		admin.WriteFault(w, drained())
		return
	}
	if why := s.store.State().Degraded; why != "" {
		fmt.Fprintf(w, "ok, degraded: %s\n", why)
		return
	}
	fmt.Fprintln(w, "ok")
}

// page is what a browser gets at the main port: counters, and no names.
func (s *Service) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		admin.WriteFault(w, fault.New(fault.CodeMethod, "there is a page to read here, and gRPC over HTTP/2").Hint("GET /"))
		return
	case r.URL.Path != "/":
		admin.WriteFault(w, fault.New(fault.CodeNotFound, "there is one page, at /"))
		return
	}
	var out strings.Builder
	clusters, members, _ := s.board.Counts()
	err := landing().Execute(&out, map[string]any{
		"Version": s.cfg.Version, "Since": s.began.UTC().Format(time.RFC3339), "Clusters": clusters, "Members": members,
		"Watchers": s.watchers.Load(), "Settled": s.store.State().Settled,
	})
	if err != nil {
		admin.WriteFault(w, err)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, out.String())
}

func landing() *template.Template {
	return template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Tombolo discovery</title></head>
<body>
<h1>Tombolo discovery</h1>
<p>Members of clusters find each other here, over gRPC. Their entries are sealed: this service cannot read them.</p>
<table>
<tr><th scope="row">Clusters</th><td>{{.Clusters}}</td></tr>
<tr><th scope="row">Members</th><td>{{.Members}}</td></tr>
<tr><th scope="row">Watchers</th><td>{{.Watchers}}</td></tr>
<tr><th scope="row">Running since</th><td>{{.Since}}</td></tr>
<tr><th scope="row">Version</th><td>{{.Version}}</td></tr>
</table>
{{if not .Settled}}<p>The service began a moment ago and awaits members.</p>
{{end}}</body>
</html>
`))
}
