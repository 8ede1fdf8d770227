// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

func operations(t *testing.T, socket string) *listener.Operations {
	t.Helper()
	o := &listener.Operations{
		Health: listener.Health{Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Ready: func() *fault.Fault { return nil }},
		API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
	}
	if err := o.Listen(t.Context(), "127.0.0.1:0", socket); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOperations are served until the context ends, or what runs beside them has failed: then it drains, and all ends.
func TestOperations(t *testing.T) {
	broken := errors.New("broken")
	for _, fails := range []bool{false, true} {
		socket := filepath.Join(t.TempDir(), "run", "x.sock")
		o := operations(t, socket)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		inner, stop := context.WithCancel(t.Context())
		g, drains, fail := run.NewGroup(inner), 0, make(chan struct{})
		g.Go("work", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-fail:
				return broken
			}
		})
		ended := make(chan error)
		go func() { ended <- o.Until(ctx, g, func() { drains++; stop() }) }()
		tr := &http.Transport{DisableKeepAlives: true}
		get := func(url string) int {
			t.Helper()
			answer, err := (&http.Client{Transport: tr}).Get(url)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			return answer.StatusCode
		}
		if code := get("http://" + o.HealthAt() + "/readyz"); code != http.StatusOK {
			t.Errorf("the health port says %d", code)
		}
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
		if code := get("http://admin/"); code != http.StatusTeapot {
			t.Errorf("the admin socket says %d", code)
		}
		if fails {
			close(fail)
		} else {
			cancel()
		}
		if err := <-ended; errors.Is(err, broken) != fails || !fails && err != nil || drains != 1 {
			t.Errorf("it ended with %v, drained %d times", err, drains)
		}
		if err := o.Close(); err != nil {
			t.Errorf("closed once more: %v", err)
		}
		if err := operations(t, socket).Close(); err != nil { // nothing holds the lock
			t.Error(err)
		}
	}
}

// TestOperationsWithoutAPort: what was opened before is closed.
func TestOperationsWithoutAPort(t *testing.T) {
	taken := operations(t, "")
	defer taken.Close()
	socket := filepath.Join(t.TempDir(), "run", "x.sock")
	o := &listener.Operations{}
	if err := o.Listen(t.Context(), taken.HealthAt(), socket); !fault.Has(err, fault.CodeAddressBusy) {
		t.Error(err)
	}
	if err := operations(t, socket).Close(); err != nil {
		t.Error(err)
	}
	if err := o.Listen(t.Context(), "127.0.0.1:0", "/proc/none/x.sock"); err == nil {
		t.Error("there is no such folder")
	}
	if err := listener.Close(nil); err != nil {
		t.Error(err)
	}
}
