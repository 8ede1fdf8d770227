// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	together "github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
	"github.com/tombolo-io/tombolo/test/talos"
)

// TestTalosNodesOutliveAStallOfEtcd of 20 s: nodes that renew meanwhile, and who come
// then, have their updates taken once it goes on, and none loses half a lease. Times are
// those of a service as it comes; the test waits most of them.
func TestTalosNodesOutliveAStallOfEtcd(t *testing.T) {
	t.Parallel()
	const stall = 20 * time.Second
	server := Start(t, Options{})
	server.Client()
	dir, at := runtest.Dir(t), runtest.Address(8446)
	cfg, err := discovery.ParseConfig("x.yaml", fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
listen: %[1]q
admin: {listen: "127.0.0.1:0"}
stateDir: %[2]s/state
runDir: %[2]s/run
stun: {listen: none, second: none}
tls: {none: true}
settle: 1ms
store: {etcd: {endpoints: [%[3]q]}}
`, at, dir, server.URL))
	must(t, err)
	service := discovery.New(cfg, discovery.Options{
		Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(),
		Etcd: func(ctx context.Context, c discovery.EtcdConfig, b *discovery.Board, m *telemetry.DiscoveryStore) (discovery.Store, error) {
			return store.Open(ctx, store.Config{Endpoints: c.Endpoints, Prefix: c.Prefix, Tell: m, Times: store.Times{Settle: c.Settle}}, b)
		},
	})
	services, nodes := together.NewGroup(t.Context()), together.NewGroup(t.Context())
	soft, end := context.WithCancel(t.Context())
	services.Go("service", func(ctx context.Context) error { return service.Run(soft, ctx) })
	defer func() {
		nodes.Stop()
		must(t, nodes.Wait())
		end()
		must(t, services.Wait())
	}()
	<-service.Ready()
	var all []*talos.Node
	join := func(lease time.Duration) {
		n := &talos.Node{At: at, Cluster: "c", ID: fmt.Sprint("node", len(all)), Data: []byte("x"), Lease: lease,
			Dial: func(at string) (*grpc.ClientConn, error) {
				return grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
			}}
		all = append(all, n)
		nodes.Go("node", n.Run)
	}
	met := func() bool {
		for _, n := range all {
			if n.Peers() != len(all)-1 {
				return false
			}
		}
		return true
	}
	for range 10 {
		join(2 * stall) // each renews within the stall
	}
	runtest.Eventually(t, "all know all", met)
	server.Stop()
	over := time.After(stall)
	for range 10 {
		join(0)
	}
	<-over
	server.Go()
	runtest.Eventually(t, "all know all after the stall", met)
	for _, n := range all {
		if len(n.Failed()) > 0 {
			t.Errorf("an update of %s failed: %v", n.ID, n.Failed()[0])
		}
	}
}
