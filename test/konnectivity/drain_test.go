// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestATunnelOutlivesItsServer: a caller with many dials on one connection goes to the next server as soon as the first
// one drains, loses no dial, and keeps what it has with the first one.
func TestATunnelOutlivesItsServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.ours("grpc", false, "--graceful-shutdown-timeout=10m"), w.ours("grpc", false)
	ourAgent(w, first.agentPort)
	ourAgent(w, second.agentPort)
	first.ready()
	second.ready()
	var at atomic.Pointer[string]
	at.Store(&first.socket)
	tunnel, err := client.CreateGRPCTunnel(t.Context(), "passthrough:///proxy",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", *at.Load())
		}))
	w.must(err)
	defer tunnel.Close()
	dial := func() net.Conn {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		conn, err := tunnel.DialContext(ctx, "tcp", runtest.Echo(t).Addr())
		w.must(err)
		return conn
	}
	old := dial()
	defer old.Close()
	echoes(t, old, 1000)

	at.Store(&second.socket)
	for i := range 200 {
		if i == 20 {
			first.soft() // while dials are under way
		}
		conn := dial()
		echoes(t, conn, 1000)
		conn.Close()
	}
	eventually(t, "the first server drains", func() bool { return strings.Contains(first.log.String(), "draining") })
	const dials = "konnectivity_network_proxy_server_dial_duration_seconds_count"
	before := metric(second.healthPort, dials)
	echoes(t, dial(), 1000)
	if after := metric(second.healthPort, dials); after == before {
		t.Errorf("the second server has %s dials, as before", after)
	}
	echoes(t, old, 100_000)
	old.Close()
	w.must(<-first.ended)
	first.ended <- nil // for whoever cleans up
}
