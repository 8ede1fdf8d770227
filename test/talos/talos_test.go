// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a discovery service that can be started again.
type service struct {
	t    *testing.T
	at   string
	dir  string
	text string // of its configuration, beyond what all have
	stop func()
}

func newService(t *testing.T, text string) *service {
	t.Helper()
	s := &service{t: t, at: runtest.Address(8446), dir: runtest.Dir(t), text: text}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *service) start() {
	s.t.Helper()
	cfg, err := discovery.ParseConfig("x.yaml", fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
listen: %[1]q
admin: {listen: "127.0.0.1:0"}
stateDir: %[2]q
runDir: %[3]q
stun: {listen: none, second: none}
tls: {none: true}
settle: 1ms
%[4]s`, s.at, filepath.Join(s.dir, "state"), filepath.Join(s.dir, "run"), s.text))
	if err != nil {
		s.t.Fatal(err)
	}
	service := discovery.New(cfg, discovery.Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	soft, end := context.WithCancel(context.Background())
	g := run.NewGroup(context.Background())
	g.Go("service", func(ctx context.Context) error { return service.Run(soft, ctx) })
	s.stop = sync.OnceFunc(func() {
		end()
		if err := g.Wait(); err != nil {
			s.t.Error(err)
		}
	})
	select {
	case <-service.Ready():
	case <-g.Context().Done():
		s.t.Fatal(g.Wait())
	}
}

func dial(at string) (*grpc.ClientConn, error) {
	return grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// site is nodes of one cluster behind one address.
type site struct {
	t     *testing.T
	nodes []*Node
	work  *run.Group
}

func newSite(t *testing.T, at string, nodes int) *site {
	s := &site{t: t, work: run.NewGroup(context.Background())}
	t.Cleanup(func() {
		s.work.Stop()
		if err := s.work.Wait(); err != nil {
			t.Error(err)
		}
	})
	for range nodes {
		s.add(at)
	}
	return s
}

func (s *site) add(at string) *Node {
	n := &Node{Dial: dial, At: at, Cluster: "c", ID: fmt.Sprintf("node-%03d", len(s.nodes)), Data: make([]byte, 300)}
	s.nodes = append(s.nodes, n)
	s.work.Go("node", n.Run)
	return n
}

// meets waits until all know all, and gives how long that took.
func (s *site) meets(within time.Duration) time.Duration {
	s.t.Helper()
	begin := time.Now()
	for {
		pairs, all := 0, len(s.nodes)*(len(s.nodes)-1)
		for _, n := range s.nodes {
			pairs += n.Peers()
		}
		took := time.Since(begin)
		if pairs == all {
			return took
		}
		if took > within {
			s.t.Fatalf("%d of %d pairs know each other after %v; %d updates failed, such as %v", pairs, all, took, len(s.failed()), s.failed()[:min(1, len(s.failed()))])
		}
		run.Wait(s.t.Context(), 20*time.Millisecond)
	}
}

func (s *site) failed() (out []error) {
	for _, n := range s.nodes {
		out = append(out, n.Failed()...)
	}
	return out
}

// few are rates with which the nodes of these tests have to wait for their turns.
const few = "rates: {perSecond: 15, burst: 60}\n"

// TestNodesBehindOneAddress make more calls than its rate allows at once: they wait for
// their turns, and no node loses half a lease.
func TestNodesBehindOneAddress(t *testing.T) {
	for _, nodes := range []int{30, 50} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, newService(t, few).at, nodes)
			t.Logf("all pairs after %v", s.meets(time.Minute))
			if failed := s.failed(); len(failed) > 0 {
				t.Errorf("%d updates failed: %v", len(failed), failed[0])
			}
		})
	}
}

// TestANewNodeDuringARestart: all come again at once, and all learn of it.
func TestANewNodeDuringARestart(t *testing.T) {
	t.Parallel()
	service := newService(t, few)
	s := newSite(t, service.at, 40)
	s.meets(time.Minute)
	service.stop()
	s.add(service.at)
	service.start()
	t.Logf("all pairs after %v", s.meets(time.Minute))
	for _, n := range s.nodes {
		if n.Forgot() > 0 || len(n.Failed()) > 0 {
			t.Errorf("%s forgot others %d times; its updates: %v", n.ID, n.Forgot(), n.Failed())
		}
	}
}

// TestARedirectMovesNodes to another service, and from it they find each other.
func TestARedirectMovesNodes(t *testing.T) {
	t.Parallel()
	to := newService(t, "")
	from := newService(t, fmt.Sprintf("redirect: %q\n", to.at))
	s := newSite(t, from.at, 3)
	s.add(to.at)
	s.meets(time.Minute)
}

// TestARefusedUpdateCostsHalfALease: what these nodes do that makes refusals dear.
func TestARefusedUpdateCostsHalfALease(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	service := newService(t, "limits: {members: 1}\n")
	first := newSite(t, service.at, 1)
	runtest.Eventually(t, "the first is there", func() bool { return first.nodes[0].Updates() == 1 })
	n := &Node{Dial: dial, At: service.at, Cluster: "c", ID: "second", Data: []byte("x"), Lease: lease}
	begin := time.Now()
	first.work.Go("node", n.Run)
	runtest.Eventually(t, "it has tried again", func() bool { return len(n.Failed()) == 2 })
	if took := time.Since(begin); took < lease/2 || n.Watches() != 2 {
		t.Errorf("it tried again after %v, with %d watches", took, n.Watches())
	}
}
