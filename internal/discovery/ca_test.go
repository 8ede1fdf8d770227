// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// TestServicesThatShareAStoreShareACA: over etcd none makes its own, and with the
// files of one they are one to a member that has its pin.
func TestServicesThatShareAStoreShareACA(t *testing.T) {
	made := t.TempDir()
	pin, err := CreateCA(made)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateCA(made); !fault.Has(err, fault.CodeUsage) {
		t.Errorf("a CA is written over: %v", err)
	}
	start := func(files ...string) (*Service, func() error) {
		dir := t.TempDir()
		for _, name := range files {
			data, err := os.ReadFile(filepath.Join(made, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		raw := v1alpha1.DiscoveryConfig{
			Listen: "127.0.0.1:0", Admin: v1alpha1.AdminConfig{Listen: "127.0.0.1:0"}, StateDir: dir, RunDir: filepath.Join(dir, "run"),
			Store: v1alpha1.DiscoveryStoreConfig{Etcd: &v1alpha1.DiscoveryEtcdConfig{Endpoints: []string{"http://x"}}},
		}
		opened := func(context.Context, EtcdConfig, *Board, *telemetry.DiscoveryStore) (Store, error) {
			return &away{}, nil
		}
		s := New((&rig{t: t}).valid(raw), Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(), Etcd: opened})
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(t.Context())
		g.Go("service", func(context.Context) error { return s.Run(ctx, ctx) })
		select {
		case <-s.Ready():
		case <-g.Context().Done():
		}
		return s, func() error { cancel(); return g.Wait() }
	}
	for _, files := range [][]string{nil, {caFile}, {caKeyFile}} {
		s, end := start(files...)
		err := end()
		wantFault(t, err, fault.CodeConfig)
		if rest, _ := filepath.Glob(filepath.Join(s.cfg.StateDir, "*")); len(rest) != len(files) {
			t.Errorf("with %v, the state directory holds %v", files, rest)
		}
	}
	for range 2 {
		s, end := start(caFile, caKeyFile)
		if got := s.Status().CAPin; got != pin {
			t.Errorf("the pin is %q, want %q", got, pin)
		}
		end() // the store of this test says that it is closed
	}
}
