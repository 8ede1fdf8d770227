// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestWhatWasListedIsTold only when who listens has it: he decides by what there is, once all
// is told.
func TestWhatWasListedIsTold(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(kubetest.Members, name(0), object(1, 0))
	source, err := kube.New(s.Client(t, "reader"), kube.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handed, on := make(chan int, 16), make(chan struct{})
	g := run.NewGroup(t.Context())
	g.Go("source", func(ctx context.Context) error {
		return source.Run(ctx, func(said []roster.Said) {
			handed <- len(said)
			<-on
		})
	})
	t.Cleanup(func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	if n := <-handed; n != 1 {
		t.Errorf("%d members are handed out", n)
	}
	if p := source.Parts()[0]; p.Contact.IsZero() || p.Told {
		t.Errorf("before who listens has it: %+v", p)
	}
	close(on)
	runtest.Eventually(t, "it is told", func() bool { return source.Parts()[0].Told })
}
