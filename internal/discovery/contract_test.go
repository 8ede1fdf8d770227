// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/discoverytest"
)

func TestMemoryIsAStore(t *testing.T) {
	for name, body := range discoverytest.Contract() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			body(t, func(t *testing.T, b *discovery.Board) (discovery.Store, func()) {
				m, err := discovery.OpenMemory(discovery.MemoryConfig{Board: b, Dir: dir, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				g := run.NewGroup(t.Context())
				g.Go("store", m.Run)
				return m, func() {
					g.Stop()
					if err := errors.Join(g.Wait(), m.Close()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
