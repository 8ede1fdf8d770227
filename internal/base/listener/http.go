// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// HTTP is a server with bounds on everything that a caller controls.
type HTTP struct {
	Handler http.Handler
	Header  int           // bytes of a request's head
	Read    time.Duration // for a whole request; 0: left to the handler
	Log     *slog.Logger  // for errors of callers, at debug
	Conn    func(context.Context, net.Conn) context.Context
}

// Serve owns ln. It serves until ctx ends, which ends every request.
func (h HTTP) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           Prompt(h.Handler),
		ReadHeaderTimeout: limit.RequestHeaderTime,
		ReadTimeout:       h.Read,
		IdleTimeout:       2 * limit.DeadIdle,
		MaxHeaderBytes:    h.Header,
		ErrorLog:          slog.NewLogLogger(telemetry.Texts(h.Log, "http"), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       h.Conn,
	}
	stop := run.OnDone(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Probes answers liveness and readiness probes, and scrapes of metrics.
type Probes struct {
	Ready   http.HandlerFunc
	Metrics prometheus.Gatherer
	Pprof   bool // serve profiles too
}

// Handler makes the handler.
func (p Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", p.Ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: limit.Dial}))
	if p.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return Served(mux)
}

// Health is the health port of a program without an admin port.
type Health struct {
	Ready   func() *fault.Fault // nil: always ready
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Serve owns ln. It serves until ctx ends, with at most Spare connections.
func (h Health) Serve(ctx context.Context, ln net.Listener) error {
	probes := Probes{Ready: h.ready, Metrics: h.Metrics}
	srv := HTTP{Handler: probes.Handler(), Header: limit.RequestHeader, Read: limit.RequestHeaderTime, Log: h.Log,
		Conn: WithFew}
	shed := func() { h.Log.Debug("a silent connection of the health port was closed for a newer one") }
	return srv.Serve(ctx, Few(ln, Spare(socket.Descriptors()), shed))
}

func (h Health) ready(w http.ResponseWriter, _ *http.Request) {
	why := h.Ready()
	if why == nil {
		w.Write([]byte("ok\n"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	body := map[string]string{"code": string(why.Code), "what": why.What}
	if why.Why != "" {
		body["why"] = why.Why
	}
	json.NewEncoder(w).Encode(body)
}
