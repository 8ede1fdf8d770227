// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/finder"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/tell"
)

func newAnnounceCommand() *cobra.Command {
	var file string
	var leave bool
	cmd := &cobra.Command{
		Use: "announce --config FILE", Short: "Run a member: announce this node, and keep what is known of the others", Args: exactArgs(),
		Long: `Announce this node to the discovery services of the configuration until SIGTERM,
and keep the cache of the others. Others know the node until its lease ends, so
that a restart is no farewell; with --leave a SIGTERM is one.`,
		Example: "  tombolo discovery announce --config /etc/tombolo/mesh.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage("--config is missing", "tombolo discovery announce --config FILE; see 'tombolo config print --role mesh'")
			}
			return runAnnounce(cmd, file, leave)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (kind MeshConfig; see 'tombolo config print --role mesh')")
	cmd.Flags().BoolVar(&leave, "leave", false, "say farewell at the end: the others forget this node at once")
	return cmd
}

func runAnnounce(cmd *cobra.Command, file string, leave bool) error {
	load := func() (finder.Config, error) {
		data, err := readConfig(file)
		if err != nil {
			return finder.Config{}, err
		}
		return finder.ParseConfig(file, data)
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	log, err := tell.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	reg := newRegistry()
	member, err := finder.New(cfg, finder.Options{Log: log, Reg: reg, Version: version})
	if err != nil {
		return err
	}
	reload := func() error {
		next, err := load()
		if err != nil {
			return err
		}
		fixed, err := member.Reload(next)
		if len(fixed) > 0 {
			log.Warn("some settings are taken over at the next start only", "settings", fixed)
		}
		return err
	}
	return runRole(cmd.Context(), file, log, reload, func(soft, hard context.Context) error {
		return announceUntil(soft, hard, member, announcing{cfg.HealthListen, leave, log, reg})
	})
}

type announcing struct {
	listen string
	leave  bool
	log    *slog.Logger
	reg    *prometheus.Registry
}

func announceUntil(soft, hard context.Context, member *finder.Finder, a announcing) error {
	ln, err := carrier.ListenTCP(soft, a.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.Newf(fault.CodeAddressBusy, "the address %s is in use", a.listen).Whyf("another process listens there").Hint("stop it, or choose another healthListen")
	}
	if err != nil {
		return fault.Newf(fault.CodeConfig, "cannot listen on %s", a.listen).Because(err).Hint("correct healthListen")
	}
	g := run.NewGroup(context.WithoutCancel(soft))
	serveMember(g, ln, member, a)
	g.Go("discovery", member.Run)
	for _, c := range member.Clusters() {
		a.log.Info("announcing this node", tell.AttrCluster, c.String())
	}
	select {
	case <-soft.Done():
		if a.leave {
			ctx, cancel := context.WithTimeout(hard, limit.FinderLeave)
			if err := member.Leave(ctx); err != nil {
				a.log.Warn("the farewell did not arrive everywhere", tell.AttrReason, err)
			}
			cancel()
		}
	case <-g.Context().Done(): // a part failed; Wait says which
	}
	g.Stop()
	return g.Wait()
}

// serveMember serves probes and metrics.
func serveMember(g *run.Group, ln net.Listener, member *finder.Finder, a announcing) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if member.Ready() {
			w.Write([]byte("ok\n"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		json.NewEncoder(w).Encode(map[string]string{"code": string(fault.CodeServiceAway), "what": "no source of members answers"})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: limit.Dial}))
	srv := &http.Server{
		Handler: carrier.Served(mux), ConnContext: carrier.WithFew, ReadHeaderTimeout: limit.RequestHeaderTime, ReadTimeout: limit.RequestHeaderTime,
		IdleTimeout: 2 * limit.DeadIdle, MaxHeaderBytes: limit.RequestHeader,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	g.Go("health", func(ctx context.Context) error {
		stop := run.OnDone(ctx, func() { srv.Close() })
		defer stop()
		few := carrier.Few(ln, carrier.Probes(carrier.Descriptors()), func() { a.log.Debug("a connection of the health port lost its place to a newer one") })
		if err := srv.Serve(few); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}
