// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestDrainWithWatchers: however many watch, beside some who do not read, each that reads is told; and what was taken
// is there at the next start.
func TestDrainWithWatchers(t *testing.T) {
	const members, readers, natives, deaf = 100, 60, 20, 20
	dir, many := t.TempDir(), 1_000_000
	edit := func(c *v1alpha1.DiscoveryConfig) {
		c.StateDir, c.Settle = filepath.Join(dir, "state"), v1alpha1.Duration{Duration: time.Minute}
		c.Rates.PerSecond, c.Rates.Burst = &many, &many
	}
	// An orderly end first, so that the next start is settled.
	if err := serve(t, edit).stop(); err != nil {
		t.Fatal(err)
	}
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		edit(c)
		c.DrainTimeout = v1alpha1.Duration{Duration: time.Hour}
	})
	c := r.older()
	for i := range members {
		mustUpdate(t, c, affiliateUpdate(fmt.Sprint(i), strings.Repeat("x", limit.DiscoveryData)))
	}
	k := newKeys(t)
	var watches []grpc.ServerStreamingClient[sdr.WatchResponse]
	for range readers {
		w := mustWatch(t, c)
		told(t, w)
		watches = append(watches, w)
	}
	var attends []attending
	for range natives {
		a := r.attend()
		a.enter(k, nil)
		attends = append(attends, a)
	}
	small := r.dial(nil, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	for range deaf {
		mustWatch(t, sdr.NewClusterClient(small))
	}
	runtest.Eventually(t, "all watch", func() bool { return r.watchers.Load() == readers+natives+deaf })
	r.soft()
	for _, w := range watches {
		_, err := w.Recv()
		wantCode(t, err, codes.Unavailable, "draining")
	}
	for _, a := range attends {
		a.until("a drain", func(m *pb.FromService) bool { return m.GetDrain() != nil })
		if err := a.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	if err := small.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if n := r.watchers.Load(); n != 0 || strings.Contains(r.log.String(), "the drain is over") {
		t.Errorf("%d watchers are left; the log:\n%s", n, r.log)
	}
	again := serve(t, edit)
	if _, n, _ := again.board.Counts(); n != members || !again.store.State().Settled {
		t.Errorf("%d members are there, settled %v", n, again.store.State().Settled)
	}
}

// TestDrainEnds: who does not read, and who does not leave, keeps nobody beyond the drain timeout.
func TestDrainEnds(t *testing.T) {
	const each = 20
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		unboundRates(c)
		c.DrainTimeout = v1alpha1.Duration{Duration: time.Second}
	})
	c, k := r.older(), newKeys(t)
	for i := range 100 {
		mustUpdate(t, c, affiliateUpdate(fmt.Sprint(i), strings.Repeat("x", limit.DiscoveryData)))
	}
	var stay []attending
	small := sdr.NewClusterClient(r.dial(nil, grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithStaticConnWindowSize(64<<10)))
	for range each {
		a := r.attend()
		a.enter(k, nil)
		stay = append(stay, a)
		mustWatch(t, small)
	}
	runtest.Eventually(t, "all watch", func() bool { return r.watchers.Load() == 2*each })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if n := r.watchers.Load(); n != 0 || !strings.Contains(r.log.String(), "the drain is over") {
		t.Errorf("%d watchers are left; the log:\n%s", n, r.log)
	}
	for _, a := range stay {
		a.wantEnd(codes.Unavailable, "")
	}
}

// TestALoneServiceDoesNotWait: members have nowhere to go, and who does nothing keeps it no longer.
func TestALoneServiceDoesNotWait(t *testing.T) {
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.DrainTimeout = v1alpha1.Duration{Duration: time.Hour} })
	var attends []attending
	for range 3 {
		a := r.attend()
		a.enter(newKeys(t), nil)
		attends = append(attends, a)
	}
	mustUpdate(t, r.older(), affiliateUpdate("a", "x")) // its connection stays, and is idle
	silent, err := net.Dial("tcp", r.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	runtest.Eventually(t, "all attend", func() bool { return r.watchers.Load() == 3 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, a := range attends {
		a.until("a drain", func(m *pb.FromService) bool { return m.GetDrain() != nil })
		a.wantEnd(codes.Unavailable, "draining")
	}
	if strings.Contains(r.log.String(), "the drain is over") {
		t.Errorf("it waited:\n%s", r.log)
	}
}

// TestAnEndAtOnce: a service that is ended the moment it is ready has not failed.
func TestAnEndAtOnce(t *testing.T) {
	for range 20 {
		if err := serve(t, nil).stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDrainBeforeItSettles: a watcher that waits for its first answer does not wait
// for the end of the service.
func TestDrainBeforeItSettles(t *testing.T) {
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.Settle = v1alpha1.Duration{Duration: limit.DiscoverySettle} })
	w := mustWatch(t, r.older())
	runtest.Eventually(t, "it watches", func() bool { return r.watchers.Load() == 1 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	_, err := w.Recv()
	wantCode(t, err, codes.Unavailable, "draining")
}
