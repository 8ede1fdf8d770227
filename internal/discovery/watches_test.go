// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestWatchesAreBounded: those of one address, and those of all, who may have a whole
// network of addresses; whoever watches goes on, and a place that is left is taken.
func TestWatchesAreBounded(t *testing.T) {
	all, each := 5, 2
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.TrustedProxies = []string{"127.0.0.1"}
		c.Limits.Watches, c.Limits.WatchesPerAddress = &all, &each
	})
	c := r.older()
	begin := func(from string, n int) (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(runtest.Within(t), "x-real-ip", from))
		w, err := c.Watch(ctx, &sdr.WatchRequest{ClusterId: fmt.Sprint("cluster", n)})
		if err == nil {
			_, err = w.Recv()
		}
		return cancel, err
	}
	first := mustWatch(t, c) // of the proxy itself
	wantTold(t, first, "")
	leave := func() {}
	for n := range all - 1 {
		cancel, err := begin(fmt.Sprintf("192.0.%d.2", n/each), n)
		if err != nil {
			t.Fatalf("watch %d: %v", n, err)
		}
		leave = cancel
		if n == each-1 {
			_, err := begin("192.0.0.2", n)
			wantCode(t, err, codes.ResourceExhausted, "raise limits.watchesPerAddress")
		}
	}
	_, err := begin("198.51.100.1", all)
	wantCode(t, err, codes.ResourceExhausted, "raise limits.watches of the service")
	if n := r.board.find(Cluster{Sidero, fmt.Sprint("cluster", all)}, false); n != nil {
		t.Error("a watch that was refused left its cluster")
	}
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	wantTold(t, first, "a=x[]")
	leave()
	runtest.Eventually(t, "a place is left", func() bool { return r.watchers.Load() < int64(all) })
	if _, err := begin("198.51.100.1", all); err != nil {
		t.Errorf("a place that was left is not given: %v", err)
	}
}
