// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

const (
	methodHello, methodList = "/sidero.discovery.server.Cluster/Hello", "/sidero.discovery.server.Cluster/List"
	methodWatch             = "/sidero.discovery.server.Cluster/Watch"
	methodAttend            = "/tombolo.discovery.v1.Discovery/Attend"
)

// fill makes a cluster that is as large as the service takes by default.
func (r *rig) fill(id string) {
	r.t.Helper()
	for i := range limit.DiscoveryMembers {
		u := roster.Update{Data: fmt.Appendf(nil, "%0*d", limit.DiscoveryData, i), TTL: long, Most: limit.DiscoveryEndpoints}
		for e := range limit.DiscoveryEndpoints {
			u.Endpoints = append(u.Endpoints, fmt.Appendf(nil, "%0*d", limit.DiscoveryEndpoint, e))
		}
		if err := r.store.Update(context.Background(), Place{Cluster{Sidero, id}, fmt.Sprint(i)}, u); err != nil {
			r.t.Fatal(err)
		}
	}
}

func unboundRates(c *v1alpha1.DiscoveryConfig) {
	many := 1_000_000
	c.Rates.PerSecond, c.Rates.Burst = &many, &many
}

// calls is how many calls of a method had an outcome.
func (r *rig) calls(method, outcome string) int {
	r.t.Helper()
	var m dto.Metric
	if err := r.metrics.Calls.WithLabelValues(method, outcome).Write(&m); err != nil {
		r.t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// TestUnreadListsAreShared: however many callers leave List's answer unread, it is in
// memory once.
func TestUnreadListsAreShared(t *testing.T) {
	const calls = 150
	r := serve(t, unboundRates)
	r.fill("c")
	before := heap()
	d := r.deaf(0)
	for range calls {
		d.call(methodList, &sdr.ListRequest{ClusterId: "c"})
	}
	runtest.Eventually(t, "all are answered", func() bool { return r.calls("List", "ok") == calls })
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("%d unread answers take %d bytes", calls, grown)
	}
}

// TestUnreadListsAreBounded: where each has another content, which no two share.
func TestUnreadListsAreBounded(t *testing.T) {
	const calls = 30
	r := serve(t, unboundRates)
	r.fill("c")
	before := heap()
	d, c := r.deaf(0), r.older()
	for i := range calls {
		d.call(methodList, &sdr.ListRequest{ClusterId: "c"})
		runtest.Eventually(t, "it is answered", func() bool { return r.calls("List", "ok")+r.calls("List", "limit_reached") == i+1 })
		mustUpdate(t, c, affiliateUpdate("0", fmt.Sprint(i)))
	}
	most := int64(discoveryUnread / discoveryShare)
	if grown, n := heap()-before, r.calls("List", "ok"); grown > most+most/4 || n < 2 || n == calls {
		t.Errorf("%d answers are unread, and take %d bytes", n, grown)
	}
	if n := r.answers.unread.Load(); n > most || n < most/2 {
		t.Errorf("%d bytes count as unread", n)
	}
	d.hear()
	runtest.Eventually(t, "they are read", func() bool {
		done, _ := d.ended("0")
		return done == r.calls("List", "ok") && r.answers.unread.Load() == 0 && r.callers.held() <= 2
	})
	if n, _ := d.ended("8"); n != r.calls("List", "limit_reached") {
		t.Errorf("%d calls were refused as exhausted", n)
	}
	if _, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "d"}); err != nil {
		t.Error(err)
	}
}

// TestSmallUnreadAnswersAreBounded: streams cost memory, too, for as long as they have
// not ended.
func TestSmallUnreadAnswersAreBounded(t *testing.T) {
	const most = discoveryUnread / discoveryShare / discoveryAnswer
	r := serve(t, unboundRates)
	for n := 0; n <= most; {
		d := r.deaf(0)
		for range discoveryStreams {
			d.call(methodHello, &sdr.HelloRequest{ClusterId: "c"})
		}
		n += discoveryStreams
		runtest.Eventually(t, "they are answered", func() bool { return r.calls("Hello", "ok")+r.calls("Hello", "limit_reached") == n })
	}
	if n := r.calls("Hello", "ok"); n != most {
		t.Errorf("%d unread answers are kept, want %d", n, most)
	}
	_, err := r.older().Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"})
	wantCode(t, err, codes.ResourceExhausted, "bytes of earlier answers")
}

// TestWhoDoesNotReadLosesTheConnection: whichever answer it is that is not read, and
// whether HTTP/2 or TCP holds it back.
func TestWhoDoesNotReadLosesTheConnection(t *testing.T) {
	serveImpatient := func(t *testing.T) *rig {
		r := serveWith(t, Options{patience: 100 * time.Millisecond}, unboundRates)
		r.fill("c")
		return r
	}
	for method, asked := range map[string]proto.Message{
		methodList: &sdr.ListRequest{ClusterId: "c"}, methodHello: &sdr.HelloRequest{ClusterId: "c"},
		methodWatch: &sdr.WatchRequest{ClusterId: "c"}, methodAttend: &pb.FromMember{},
	} {
		t.Run(path.Base(method), func(t *testing.T) {
			r := serveImpatient(t)
			d := r.deaf(0)
			d.call(method, asked)
			d.mu.Lock()
			d.write(method, asked) // unless the connection has already ended
			d.mu.Unlock()
			runtest.Eventually(t, "the connection is ended", func() bool {
				_, over := d.ended("")
				return over != nil
			})
			runtest.Eventually(t, "nothing is left", func() bool {
				return r.answers.unread.Load() == 0 && r.watchers.Load() == 0 && r.callers.held() == 0 && r.connections.open.Load() == 0
			})
			if _, body, _ := get(t, r.connect("tcp", r.Admin()), "/metrics"); !strings.Contains(body, "tombolo_discovery_unread_connections_total 1\n") {
				t.Error("it is not counted")
			}
		})
	}
	t.Run("TCP", func(t *testing.T) {
		r := serveImpatient(t)
		d := r.deaf(1 << 30)
		d.mu.Lock() // it reads no more
		defer d.mu.Unlock()
		runtest.Eventually(t, "the connection is ended", func() bool {
			if r.connections.open.Load() == 0 {
				return true
			}
			d.write(methodList, &sdr.ListRequest{ClusterId: "c"}) // until the kernel takes no more
			return false
		})
		runtest.Eventually(t, "nothing is left", func() bool { return r.answers.unread.Load() == 0 && r.callers.held() == 0 })
	})
}

// TestWhoReadsSlowlyStays, and so does a proxy's connection.
func TestWhoReadsSlowlyStays(t *testing.T) {
	r := serve(t, nil)
	for name, c := range map[string]struct {
		proxies []string
		takes   bool
		stays   bool
	}{
		"reads nothing":              {},
		"reads slowly":               {takes: true, stays: true},
		"reads nothing over a proxy": {proxies: []string{"127.0.0.1"}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := r.raw
			raw.TrustedProxies = c.proxies
			r.Reload(r.valid(raw))
			to := &greeted{Conn: r.connect("tcp", r.Admin())}
			ended := false
			m, err := r.answers.newSending(packed{make([]byte, 3*discoveryPart)}, to, func() { ended = true })
			if err != nil {
				t.Fatal(err)
			}
			m.timer.Stop()
			if c.takes {
				m.data[1].Free()
			}
			m.look()
			m.timer.Stop()
			if ended == c.stays {
				t.Fatalf("it is ended: %v", ended)
			}
			if c.takes {
				m.look()
				if !ended {
					t.Error("it may stop after its first part")
				}
			}
		})
	}
}

// TestASnapshotIsOlderWhereThereIsNoRoom for another one: what it lacks follows, and only
// who could not catch up is refused.
func TestASnapshotIsOlderWhereThereIsNoRoom(t *testing.T) {
	b := NewBoard(Bounds{})
	c := sidero("").Cluster
	mustSet(t, b, sidero("a"), "x")
	taken := 0
	claim := func(n int) (func(), error) {
		if taken > 0 {
			return nil, fault.New(fault.CodeLimit, "full")
		}
		taken += n
		return func() { taken -= n }, nil
	}
	first, second, third := watching(t, b, c), watching(t, b, c), watching(t, b, c)
	one, err := first.Snapshot(olderSnapshot, claim)
	if err != nil {
		t.Fatal(err)
	}
	mustSet(t, b, sidero("b"), "x")
	two, err := second.Snapshot(olderSnapshot, claim)
	if err != nil || two != one {
		t.Fatalf("there is no room, and the old one is not shared: %v", err)
	}
	if got := next(t, second); !slices.Equal(ids(got), []string{"b"}) {
		t.Errorf("then it is told %q", ids(got))
	}
	if _, err := b.Rendered(c, olderSnapshot, claim); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a list is as old as a snapshot: %v", err)
	}
	for n := range 2 * discoveryLogFew {
		mustSet(t, b, sidero("b"), fmt.Sprint(n))
	}
	if _, err := third.Snapshot(olderSnapshot, claim); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("the old one is too old, and is given: %v", err)
	}
	one.Done()
	two.Done()
	if taken != 0 {
		t.Errorf("%d bytes count when nobody has it", taken)
	}
	if _, err := third.Snapshot(olderSnapshot, claim); err != nil {
		t.Error(err)
	}
}

// TestWhatComesBehindTheEndOfACallIsNotUnread: of a caller that has given up just before it
// was answered. gRPC drops that without a word, and the connection would be ended for it.
func TestWhatComesBehindTheEndOfACallIsNotUnread(t *testing.T) {
	r := serve(t, nil)
	live, cancel := context.WithCancel(t.Context())
	over := false
	answered := func(ctx context.Context) *sending {
		over = false
		m, err := r.answers.newSending(raw("x"), &greeted{}, func() { over = true })
		if err != nil {
			t.Fatal(err)
		}
		gone{}.HandleRPC(ctx, &stats.OutPayload{Payload: m})
		return m
	}
	m := answered(live)
	if over {
		t.Error("an answer that may be read counts no more")
	}
	m.over()
	cancel()
	if answered(live); !over {
		t.Error("an answer that nobody can read counts")
	}
}
