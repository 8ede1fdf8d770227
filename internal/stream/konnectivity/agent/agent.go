// SPDX-License-Identifier: Apache-2.0

// Package agent is the agent of kubernetes-sigs/apiserver-network-proxy as a program: its flags, the servers that it
// connects to, probes and metrics around package konnectivity. It does not know the packets.
package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// Deps is what an agent is given.
type Deps struct {
	Log    *slog.Logger
	Reg    *prometheus.Registry
	Getenv func(string) string
	Drain  time.Duration // bounds the drain
}

// Agent is one.
type Agent struct {
	Options
	Deps
	files   *dropin.Files
	metrics *telemetry.KonnectivityAgent
	splicer *splice.Splicer
	unread  *carrier.Budget                    // of all servers
	leases  func(context.Context) (int, error) // nil: they are not counted
	changed chan struct{}                      // a server is gone
	service *lookup                            // nil: none

	mu      sync.Mutex
	servers map[string]*konnectivity.Upstream // by the id of the server
	said    int                               // servers there are, by the newest one
	leased  int                               // by the leases
	listed  int                               // by the endpoints of --proxy-server-service
	found   []place                           // the endpoints
	drained bool
}

// New makes an agent; Run runs it.
func New(o Options, d Deps) (*Agent, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Hosts = slices.Clone(o.Hosts)
	for i, host := range o.Hosts { // as the reference takes an empty one
		o.Hosts[i] = cmp.Or(host, defaultHost)
	}
	o.Sync = cmp.Or(o.Sync, min(syncLeast, o.SyncMost))
	a := &Agent{Options: o, Deps: d, files: &dropin.Files{Cert: o.Cert, Key: o.Key, CA: o.CA},
		metrics: newMetrics(d.Reg), splicer: splice.New(), changed: make(chan struct{}, 1),
		unread: carrier.NewBudget(limit.AgentUnread), servers: map[string]*konnectivity.Upstream{}}
	if _, err := a.files.Client(); err != nil {
		return nil, err
	}
	var err error
	if a.service, err = a.newLookup(); err != nil {
		return nil, err
	}
	if a.service != nil && slices.Equal(a.Hosts, []string{defaultHost}) {
		a.Hosts = nil // nobody has given it
	}
	if o.CountLeases {
		count, err := a.leaseCounter()
		if err != nil {
			return nil, err
		}
		a.leases = count
	}
	return a, nil
}

// Run connects to servers until soft ends and then drains, at most for Drain or until hard ends.
func (a *Agent) Run(soft, hard context.Context) error {
	health, err := listener.Listen(hard, "--health-server-port",
		net.JoinHostPort(a.HealthHost, strconv.Itoa(a.HealthPort)))
	if err != nil {
		return err
	}
	admin, err := listener.Listen(hard, "--admin-server-port",
		net.JoinHostPort(a.AdminAddress, strconv.Itoa(a.AdminPort)))
	if err != nil {
		health.Close()
		return err
	}
	if a.Profiles.Contention {
		runtime.SetBlockProfileRate(1)
	}
	g := run.NewGroup(hard)
	g.Go("health", func(ctx context.Context) error {
		return dropin.HTTP(dropin.Health(a.Reg, a.ready), a.Log).Serve(ctx, health)
	})
	g.Go("admin", func(ctx context.Context) error {
		return dropin.HTTP(dropin.AdminElsewhere(a.HealthPort, a.Profiles), a.Log).Serve(ctx, admin)
	})
	counted := make(chan struct{})
	g.Do(func(ctx context.Context) {
		a.count(ctx)
		close(counted)
		if a.leases != nil || a.service != nil {
			_ = run.Every(ctx, countEvery, func() { a.count(ctx) }) // until ctx ends
		}
	})
	g.Do(func(ctx context.Context) {
		select {
		case <-counted:
		case <-time.After(a.Sync): // an API that does not answer holds nothing up
		case <-ctx.Done():
		}
		a.sync(ctx, soft, g)
	})
	a.Log.Info("konnectivity agent is up", telemetry.AttrAgent, a.AgentID, "health", health.Addr().String(),
		"admin", admin.Addr().String())
	select {
	case <-soft.Done():
		a.drain(g.Context())
	case <-g.Context().Done():
	}
	g.Stop()
	return g.Wait()
}

// drain asks the servers to dial through others, and waits until there are no connections and no new ones come: servers
// that have no other agent dial through one that drains.
func (a *Agent) drain(ctx context.Context) {
	a.mu.Lock()
	a.drained = true
	for _, u := range a.servers {
		u.Drain()
	}
	a.mu.Unlock()
	a.Log.Info("draining", "timeout", a.Drain.String())
	ctx, cancel := context.WithTimeout(ctx, a.Drain)
	defer cancel()
	const enough = int(drainQuiet / drainLook)
	uses, quiet := a.uses(), 0 // looks, not time: while the process stood still nobody had a chance to dial
	for quiet < enough && run.Wait(ctx, drainLook) {
		quiet++
		if n := a.uses(); n != uses || a.open() > 0 {
			uses, quiet = n, 0
		}
	}
	if quiet < enough && ctx.Err() != nil {
		a.Log.Warn("the time to drain is over", "connections", a.open())
	}
}

func (a *Agent) open() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.servers {
		n += u.Open()
	}
	return n
}

// uses is a number that changes with each connection.
func (a *Agent) uses() (n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.servers {
		n += u.Opened()
	}
	return n
}

// wanted is how many servers the agent shall have.
func wanted(said, leased int, leases bool, source string) int {
	n := said
	if leases {
		n = leased
		if source == "max" {
			n = max(said, leased)
		}
	}
	return max(n, 1)
}

// counts are the servers that the agent has and shall have.
func (a *Agent) counts() (have, want int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have, want = len(a.servers), max(wanted(a.said, a.leased, a.leases != nil, a.CountSource), a.listed)
	a.metrics.Servers.Set(float64(have))
	a.metrics.Wanted.Set(float64(want))
	return have, want
}

// count asks Kubernetes how many servers there are, and where.
func (a *Agent) count(ctx context.Context) {
	a.countLeases(ctx)
	a.lookAtService(ctx)
}

// sync connects to servers until soft or ctx ends.
func (a *Agent) sync(ctx, soft context.Context, g *run.Group) {
	d := directory{dns: net.DefaultResolver}
	pause := a.Sync
	for soft.Err() == nil && ctx.Err() == nil {
		have, want := a.counts()
		if a.SyncForever || have < want {
			err := a.connectOnce(ctx, g, &d)
			if err != nil {
				a.Log.Warn("no further server", telemetry.AttrReason, fault.From(err).Explain(), "have", have, "want", want)
				pause = min(pause+pause/2, a.SyncMost)
			} else {
				pause = a.Sync
			}
		}
		a.counts()
		timer := time.NewTimer(pause + rand.N(pause/10+1))
		select {
		case <-timer.C:
		case <-a.changed:
			run.Wait(ctx, a.Sync) // its end is seen above
		case <-soft.Done():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// ready says whether the agent has the servers that it wants.
func (a *Agent) ready(w http.ResponseWriter, r *http.Request) {
	have, want := a.counts()
	var out bytes.Buffer
	fmt.Fprintln(&out, "[+]ping ok")
	if have < want {
		fmt.Fprintf(&out, "[-]server-connected failed: connected to %d of %d servers\n", have, want)
	} else {
		fmt.Fprintf(&out, "[+]server-connected ok\n")
	}
	switch {
	case have < want:
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write(out.Bytes())
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(&out, "servers: %d of %d\nconnections: %d\ncheck passed\n", have, want, a.open())
		w.Write(out.Bytes())
	default:
		io.WriteString(w, "ok")
	}
}
