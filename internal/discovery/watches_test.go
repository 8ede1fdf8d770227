// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
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

// TestWatchesThatAreNotReadKeepTheirPlaces, in little memory, however often they fall
// behind: nobody gets their places, and others watch.
func TestWatchesThatAreNotReadKeepTheirPlaces(t *testing.T) {
	const lines, each, members, most = 4, 250, 60, 24 << 10
	places := lines * each
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		unboundRates(c)
		c.Limits.WatchesPerAddress = &places
	})
	version := 0
	churn := func() {
		version++
		for i := range members {
			u := roster.Update{Data: fmt.Appendf(nil, "%0*d", limit.DiscoveryData, version), TTL: long}
			if err := r.store.Update(t.Context(), sidero(fmt.Sprint(i)), u); err != nil {
				t.Fatal(err)
			}
		}
	}
	churn()
	before := memory()
	var all []*deaf
	for round := range 3 {
		for range lines {
			d := r.deaf(64 << 10)
			all = append(all, d)
			for range each {
				d.call(methodWatch, &sdr.WatchRequest{ClusterId: "c"})
			}
		}
		runtest.Eventually(t, "each call is taken or refused", func() bool {
			return r.watchers.Load() == int64(places) && r.calls("Watch", "limit_reached") == round*places
		})
		for range 3 * discoveryLogTimes { // more than is kept for who is behind
			churn()
		}
	}
	if n, ended := r.watchers.Load(), r.calls("Watch", "watch_lost"); n != int64(places) || ended != 0 {
		t.Errorf("%d places are held, and %d watches have ended, which gRPC has messages of", n, ended)
	}
	if taken := (memory() - before) / int64(places); taken > most {
		t.Errorf("a watch that is not read takes %d bytes", taken)
	} else {
		t.Logf("a watch that is not read takes %d bytes", taken)
	}
	for _, d := range all[:lines] {
		d.hear()
	}
	runtest.Eventually(t, "they are told why, and leave", func() bool {
		return r.watchers.Load() == 0 && r.calls("Watch", "watch_lost") == places
	})
	runtime.KeepAlive(all)
}

// memory is heap with the stacks of goroutines.
func memory() int64 {
	taken := heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return taken + int64(m.StackInuse)
}

// TestWatchersShareWhatChanged, and get it in small messages.
func TestWatchersShareWhatChanged(t *testing.T) {
	const members = 100
	b := NewBoard(Bounds{})
	c := sidero("").Cluster
	first, second := watching(t, b, c), watching(t, b, c)
	want := map[string]bool{}
	for i := range members {
		id := fmt.Sprint(i)
		want[id] = true
		mustSet(t, b, sidero(id), strings.Repeat("x", limit.DiscoveryData))
	}
	mustSet(t, b, sidero("0"), "y")
	rendered := 0
	render := func(all []Listing) [][]byte {
		rendered++
		return olderChanges(all)
	}
	for n := 0; ; n++ {
		one, _, err := first.changes(render)
		if err != nil {
			t.Fatal(err)
		}
		two, _, err := second.changes(render)
		if err != nil || one != two {
			t.Fatalf("two who have seen the same do not share what changed: %v", err)
		}
		if one == nil {
			if n < 2 || n != rendered {
				t.Errorf("%d messages are rendered %d times", n, rendered)
			}
			break
		}
		for _, m := range one.messages {
			if len(m) > discoveryDelta+2*limit.DiscoveryData {
				t.Errorf("a message has %d bytes", len(m))
			}
			var is sdr.WatchResponse
			if err := proto.Unmarshal(m, &is); err != nil {
				t.Fatal(err)
			}
			for _, a := range is.GetAffiliates() {
				delete(want, a.GetId())
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("%d members are not told", len(want))
	}
}
