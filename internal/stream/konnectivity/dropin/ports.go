// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// Profiles says which profiles the admin port serves.
type Profiles struct{ Enabled, Contention bool }

// Health are the probes and the metrics of the health port.
func Health(reg prometheus.Gatherer, ready http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics(reg))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("/ready", ready)
	mux.HandleFunc("/readyz", ready)
	return mux
}

func metrics(reg prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: limit.Dial})
}

// Admin is the admin port of the server, which has metrics too.
func Admin(reg prometheus.Gatherer, p Profiles) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics(reg))
	profiles(mux, p)
	return mux
}

// AdminElsewhere is that of the agent, whose metrics are on the health port.
func AdminElsewhere(healthPort int, p Profiles) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		to := *r.URL
		to.Host = net.JoinHostPort(host, strconv.Itoa(healthPort))
		http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
	})
	profiles(mux, p)
	return mux
}

func profiles(mux *http.ServeMux, p Profiles) {
	if !p.Enabled {
		return
	}
	mux.HandleFunc("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// HTTP is a server of these.
func HTTP(h http.Handler, log *slog.Logger) listener.HTTP {
	return listener.HTTP{Handler: h, Header: limit.RequestHeader, Log: log}
}
