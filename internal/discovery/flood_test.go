// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestFloodsLeaveNothing: callers who begin TLS and go no further, and who watch, in
// both protocols, and do not read. The former are ended although they hold on, the latter
// keep their places until they read. Everybody else is served meanwhile, and afterwards
// nothing is left of them.
func TestFloodsLeaveNothing(t *testing.T) {
	const halves, lines, each, natives = 200, 8, 60, 40
	dir := t.TempDir()
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.TLS, c.StateDir = v1alpha1.DiscoveryTLSConfig{}, dir
		many := 1_000_000
		c.Rates.PerSecond, c.Rates.Burst = &many, &many
	})
	data, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(data)
	honest := sdr.NewClusterClient(r.dial(cfg))
	k := newKeys(t)
	id := k.Cluster()
	version := uint64(0)
	// churn is a change of each member, of which there are more than windows hold.
	churn := func() {
		version++
		text := []byte(fmt.Sprintf("%0*d", limit.DiscoveryData, version))
		for i := range 100 {
			for _, p := range []Place{{Cluster{Sidero, "c"}, fmt.Sprint(i)}, {Cluster{Native, string(id[:])}, fmt.Sprint(i)}} {
				u := roster.Update{Data: text, TTL: long}
				if p.Protocol == Native {
					u.Version = version
				}
				if err := r.store.Update(context.Background(), p, u); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	churn()
	mustUpdate(t, honest, affiliateUpdate("honest", "x"))
	goroutines, memory := runtime.NumGoroutine(), heap()

	var open []io.Closer
	for range halves {
		conn := r.connect("tcp", r.Listen())
		if _, err := conn.Write([]byte("\x16\x03\x01\x02\x00\x01")); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	ctx, cancel := context.WithCancel(runtest.Within(t))
	var watches []grpc.ServerStreamingClient[sdr.WatchResponse]
	var attends []attending
	for range lines {
		conn := r.dial(cfg, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		open = append(open, conn)
		for range each {
			w, err := sdr.NewClusterClient(conn).Watch(ctx, &sdr.WatchRequest{ClusterId: "c"})
			if err != nil {
				t.Fatal(err)
			}
			watches = append(watches, w)
		}
	}
	for range natives {
		conn := r.dial(cfg, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		open = append(open, conn)
		s, err := pb.NewDiscoveryClient(conn).Attend(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a := attending{s, t}
		a.prove(k, nil, nil)
		attends = append(attends, a)
	}
	runtest.Eventually(t, "all watch", func() bool { return r.watchers.Load() == lines*each+natives })
	mustUpdate(t, honest, affiliateUpdate("honest", "y"))
	peak, taken := runtime.NumGoroutine(), heap()
	if peak < goroutines+lines*each || taken < memory+8<<20 {
		t.Fatalf("the flood is none: %d goroutines became %d, %d bytes %d", goroutines, peak, memory, taken)
	}
	for range 2 * discoveryLogTimes { // more than is kept for who is behind
		churn()
	}
	if n := r.watchers.Load(); n != lines*each+natives {
		t.Errorf("%d places are held by %d that gRPC has messages of", n, lines*each+natives)
	}
	mustUpdate(t, honest, affiliateUpdate("honest", "z"))
	wantTold(t, mustWatchOf(t, honest, "another"), "")
	for _, w := range watches { // each hears why, once it reads
		err := error(nil)
		for err == nil {
			_, err = w.Recv()
		}
		wantCode(t, err, codes.Aborted, "watch_lost")
	}
	for _, a := range attends {
		a.wantEnd(codes.Aborted, "watch_lost")
	}
	runtest.Eventually(t, "the places are given back", func() bool { return r.watchers.Load() <= 1 })
	_, body, _ := get(t, r.connect("tcp", r.Admin()), "/metrics")
	for method, n := range map[string]int{"Watch": lines * each, "Attend": natives} {
		if want := fmt.Sprintf("tombolo_discovery_calls_total{method=%q,outcome=\"watch_lost\"} %d\n", method, n); !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, half := range open[:halves] { // the service ends them, not we
		if n, err := io.Copy(io.Discard, half.(net.Conn)); n > 100 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("half a handshake is answered by %d bytes, %v", n, err)
		}
	}
	cancel()
	for _, c := range open {
		c.Close()
	}
	watches, attends, open = nil, nil, nil
	runtest.Eventually(t, "nothing is left", func() bool {
		return r.connections.open.Load() <= 1 && r.callers.held() <= 2 && runtime.NumGoroutine() < goroutines+(peak-goroutines)/20 && heap() < memory+4<<20
	})
}

func mustWatchOf(t *testing.T, c sdr.ClusterClient, cluster string) grpc.ServerStreamingClient[sdr.WatchResponse] {
	t.Helper()
	w, err := c.Watch(runtest.Within(t), &sdr.WatchRequest{ClusterId: cluster})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// held is how many things all addresses hold.
func (c *callers) held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.known {
		for _, h := range one.holds {
			n += h
		}
	}
	return n
}
