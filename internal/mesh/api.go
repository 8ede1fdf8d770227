// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// AdminSocket is where a node with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "mesh", "mesh.sock") }

func meta(kind string) admin.Meta { return admin.Meta{APIVersion: v1alpha1.Version, Kind: kind} }

// Handler is the admin API over HTTP.
//
//	GET  /v1/status             how this node and its peers are
//	GET  /v1/explain?ip=        how a packet to an address goes
//	GET  /v1/netcheck           what the network in front of this node lets through
//	POST /v1/ping?peer=&wait=   one echo through the tunnel, and the path that it took
//	POST /v1/links/check?wait=  whether linked clusters are reached; cluster= and dns=NAME=ADDRESS
//	POST /v1/forget?node=       closed ranges of a node that is gone are opened
//	POST /v1/keys/rotate        a new key pair takes the old one's place
func (m *Mesh) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.Status()) })
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		ip, err := netip.ParseAddr(r.URL.Query().Get("ip"))
		if err != nil {
			refuse(w, fault.Newf(fault.CodeRequest, "%.60q is no address", r.URL.Query().Get("ip")))
			return
		}
		e, err := m.Explain(r.Context(), ip.Unmap())
		reply(w, e, err)
	})
	mux.HandleFunc("GET /v1/netcheck", func(w http.ResponseWriter, r *http.Request) {
		n, err := m.Netcheck(r.Context())
		reply(w, n, err)
	})
	mux.HandleFunc("POST /v1/ping", func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if err != nil || wait <= 0 || wait > limit.MeshPing {
			refuse(w, fault.Newf(fault.CodeRequest, "wait=%.40q is not within 0s and %v", r.URL.Query().Get("wait"),
				limit.MeshPing))
			return
		}
		p, err := m.Ping(r.Context(), r.URL.Query().Get("peer"), wait)
		reply(w, p, err)
	})
	mux.HandleFunc("POST /v1/links/check", func(w http.ResponseWriter, r *http.Request) {
		q, err := linkQuestion(r)
		if err != nil {
			refuse(w, fault.From(err))
			return
		}
		c, err := m.CheckLinks(r.Context(), q)
		reply(w, c, err)
	})
	mux.HandleFunc("POST /v1/keys/rotate", func(w http.ResponseWriter, _ *http.Request) {
		done, err := m.RotateKey()
		reply(w, done, err)
	})
	mux.HandleFunc("POST /v1/forget", func(w http.ResponseWriter, r *http.Request) {
		done, err := m.Forget(r.URL.Query().Get("node"))
		reply(w, done, err)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, fault.New(fault.CodeNotFound, "there is no such request").
			Hint("'tombolo mesh --help' lists what can be asked of a node"))
	})
	return mux
}

// Serve serves the API until ctx ends.
func (m *Mesh) Serve(ctx context.Context, ln net.Listener) error {
	shed := func() { m.log.Debug("a connection of the admin socket lost its place to a newer one") }
	return listener.HTTP{Handler: listener.Served(m.Handler()), Header: limit.RequestHeader, Log: m.log,
		Conn: listener.WithFew}.
		Serve(ctx, listener.Few(ln, limit.DiscoveryPages, shed))
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, fault.From(err))
		return
	}
	answer(w, v)
}

func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

func refuse(w http.ResponseWriter, f *fault.Fault) {
	w.Header().Set("Tombolo-Fault", string(f.Code))
	write(w, admin.HTTPStatus(fault.ClassOf(f.Code)), admin.BodyOf(f))
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v) // whoever has gone is not there to be told
}
