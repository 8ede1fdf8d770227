// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// AdminSocket is where a member with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "announce", "announce.sock") }

// Serve serves the API until the group ends; watchers are sent the end.
func (a *API) Serve(g *run.Group, ln net.Listener, log *slog.Logger) {
	srv := &http.Server{
		Handler: listener.Served(a.Handler()), ConnContext: listener.WithFew,
		ReadHeaderTimeout: limit.RequestHeaderTime, // no ReadTimeout: it would end watches
		IdleTimeout:       2 * limit.DeadIdle, MaxHeaderBytes: limit.RequestHeader,
		ErrorLog: slog.NewLogLogger(telemetry.Texts(log, "admin socket"), slog.LevelDebug),
	}
	g.Go("admin socket", func(ctx context.Context) error {
		over := run.NewGroup(context.WithoutCancel(ctx))
		over.Do(func(inner context.Context) {
			select {
			case <-ctx.Done():
			case <-inner.Done(): // Serve has ended by itself
			}
			close(a.ending)
			bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			if srv.Shutdown(bound) != nil { // a watcher that does not read is not waited for
				srv.Close()
			}
		})
		shed := func() { log.Debug("a connection of the admin socket lost its place to a newer one") }
		err := srv.Serve(listener.Few(ln, limit.DiscoveryPages, shed))
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		if err != nil {
			over.Stop()
		}
		return errors.Join(err, over.Wait())
	})
}
