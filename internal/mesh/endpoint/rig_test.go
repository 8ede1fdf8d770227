// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what is around a node: its kernel, its router, names and STUN servers. It is
// its socket too.
type world struct {
	t *testing.T
	e *Endpoints
	p Parts

	mu       sync.Mutex
	addrs    []nat.Address
	routes   []machine.Default
	kernel   error // what it says instead
	watching error // what ends a watch
	tell     chan struct{}
	sleep    chan time.Duration
	sees     func(server netip.AddrPort) netip.AddrPort // not valid: no answer
	asked    map[netip.AddrPort][]time.Time
	unsent   bool
	names    map[string][]netip.Addr
	lookups  map[string]int
	lease    portmap.Lease // zero: the router refuses
	n        tally
}

// tally is how often something happened.
type tally struct{ maps, unmaps, moved, changed int }

const own = "192.168.1.2"

func link(name, prefix string) nat.Address {
	return nat.Address{Interface: name, Prefix: netip.MustParsePrefix(prefix), Up: true}
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, tell: make(chan struct{}, 8), sleep: make(chan time.Duration, 8), asked: map[netip.AddrPort][]time.Time{},
		addrs: []nat.Address{link("lo", "127.0.0.1/8"), link("eth0", own+"/24")}, routes: []machine.Default{{Interface: 2, Gateway: ip("192.168.1.1")}},
		names: map[string][]netip.Addr{}, lookups: map[string]int{}, sees: func(netip.AddrPort) netip.AddrPort { return netip.AddrPort{} },
	}
	w.p = Parts{
		Socket: w, Resolver: w, Machine: w, Ways: []portmap.Mapper{w}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Metrics: telemetry.NewEndpoint(prometheus.NewRegistry()),
		Moved:   func() { w.e.List(); w.count(&w.n.moved) }, Changed: func() { w.e.List(); w.e.Status(); w.count(&w.n.changed) },
	}
	return w
}

func (w *world) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// set changes the world.
func (w *world) set(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

func (w *world) tally() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *world) requestsTo(server string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked[at(server)])
}

// run runs a node within a bubble, and ends it after the play.
func (w *world) run(play func()) {
	w.t.Helper()
	var err error
	if w.e, err = New(w.p); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.e.Run(ctx) }()
	play()
	stop()
	if err := <-ended; err != nil {
		w.t.Error(err)
	}
	synctest.Wait()
}

// after lets time go by.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) want(list ...string) {
	w.t.Helper()
	if got := texts(w.e.Status().Endpoints); !slices.Equal(got, list) {
		w.t.Errorf("%q, want %q", got, list)
	}
}

func (w *world) requests() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for list := range maps.Values(w.asked) {
		n += len(list)
	}
	return n
}

func (w *world) failures(reason string) int {
	return int(figure(w.p.Metrics.Failures.WithLabelValues(reason)))
}

// Send is the socket's: what it takes is STUN, and answers come after 10 ms.
func (w *world) Send(to netip.AddrPort, _ netip.Addr, b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unsent {
		return errors.New("network is unreachable")
	}
	w.asked[to] = append(w.asked[to], time.Now())
	m, err := nat.Parse(b)
	if err != nil {
		w.t.Error(err)
	}
	if seen := w.sees(to); seen.IsValid() {
		answer := nat.Answer(m, seen, netip.AddrPort{})
		time.AfterFunc(10*time.Millisecond, func() { w.e.STUN(to, answer) })
	}
	return nil
}

// figure is what a counter or gauge says.
func figure(c prometheus.Metric) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

func (w *world) Has(netip.Addr) bool { return true }
func (w *world) Port() uint16        { return 51820 }

func (w *world) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups[host]++
	if network != "ip" {
		w.t.Errorf("asked for %s", network)
	}
	if addrs, ok := w.names[host]; ok {
		return slices.Clone(addrs), nil
	}
	return nil, errors.New("no such host")
}

func (w *world) Addresses() ([]nat.Address, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.addrs), w.kernel
}

func (w *world) Defaults() ([]machine.Default, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.routes), w.kernel
}

func (w *world) Gateway() (netip.Addr, netip.Addr, error) {
	return ip("192.168.1.1"), ip(own), nil
}

func (w *world) Watch(ctx context.Context, tell func()) error {
	w.mu.Lock()
	err := w.watching
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for tell(); ; {
		select {
		case <-w.tell:
			tell()
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *world) Sleeps(ctx context.Context, tell func(time.Duration)) error {
	for {
		select {
		case d := <-w.sleep:
			tell(d)
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *world) Method() string { return "nat-pmp" }

func (w *world) Map(context.Context, portmap.Router, uint16) (portmap.Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n.maps++
	if !w.lease.External.IsValid() {
		return portmap.Lease{}, errors.New("the router refuses")
	}
	return w.lease, nil
}

func (w *world) Unmap(_ context.Context, r portmap.Router, port uint16) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n.unmaps++
	if r.Own != ip(own) || port != 51820 {
		w.t.Errorf("unmapped %v %d", r, port)
	}
	return nil
}
