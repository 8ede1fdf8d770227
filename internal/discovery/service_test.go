// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// rig is a service that runs.
type rig struct {
	*Service
	t    *testing.T
	raw  v1alpha1.DiscoveryConfig
	log  *runtest.Transcript
	stop func() error // begins the drain and waits for the end
	soft context.CancelFunc
	hard context.CancelFunc
}

func serve(t *testing.T, edit func(*v1alpha1.DiscoveryConfig)) *rig {
	t.Helper()
	return serveWith(t, Options{}, edit)
}

func serveWith(t *testing.T, opt Options, edit func(*v1alpha1.DiscoveryConfig)) *rig {
	t.Helper()
	dir := t.TempDir()
	raw := v1alpha1.DiscoveryConfig{
		Listen: "127.0.0.1:0", StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Admin: v1alpha1.AdminConfig{Listen: "127.0.0.1:0"}, TLS: v1alpha1.DiscoveryTLSConfig{None: true},
		Settle: v1alpha1.Duration{Duration: time.Millisecond}, DrainTimeout: v1alpha1.Duration{Duration: runtest.Patience},
	}
	if edit != nil {
		edit(&raw)
	}
	r := &rig{t: t, raw: raw, log: &runtest.Transcript{}}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opt.Log, opt.Reg = log, prometheus.NewRegistry()
	r.Service = New(r.valid(raw), opt)
	soft, cancelSoft := context.WithCancel(context.Background())
	hard, cancelHard := context.WithCancel(context.Background())
	r.soft, r.hard = cancelSoft, cancelHard
	g := run.NewGroup(context.Background())
	g.Go("service", func(context.Context) error { return r.Run(soft, hard) })
	r.stop = sync.OnceValue(func() error {
		cancelSoft()
		return g.Wait()
	})
	t.Cleanup(func() {
		cancelHard()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-r.Ready():
	case <-g.Context().Done():
		t.Fatal(g.Wait())
	}
	return r
}

func (r *rig) valid(raw v1alpha1.DiscoveryConfig) Config {
	r.t.Helper()
	cfg := validate(raw, func(path, format string, args ...any) { r.t.Errorf(path+": "+format, args...) })
	cfg.Version = "test"
	return cfg
}

// dial is a connection of gRPC; cfg nil is clear text.
func (r *rig) dial(cfg *tls.Config, options ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	c := insecure.NewCredentials()
	if cfg != nil {
		c = credentials.NewTLS(cfg)
	}
	conn, err := grpc.NewClient(r.Listen(), append(options, grpc.WithTransportCredentials(c))...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) older() sdr.ClusterClient { return sdr.NewClusterClient(r.dial(nil)) }

func wantCode(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if s := status.Convert(err); err == nil || s.Code() != code || !strings.Contains(s.Message(), part) {
		t.Fatalf("the answer is %v, want %v with %q", err, code, part)
	}
}

// get asks an HTTP/1.1 server over a connection.
func get(t *testing.T, conn net.Conn, path string) (status int, body string, head http.Header) {
	t.Helper()
	client := &http.Client{Timeout: runtest.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	res, err := client.Get("http://service" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

func (r *rig) connect(network, at string) net.Conn {
	r.t.Helper()
	conn, err := net.DialTimeout(network, at, runtest.Patience)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}
