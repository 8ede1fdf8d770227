// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// subscription keeps a session to one service for one secret.
//
//	begin ─▶ session ─ready─▶ live ─drain─▶ begin another one, and end this when it is ready
//	  ▲         │ fails         │ ends
//	  └─backoff─┴───────────────┘
type subscription struct {
	subscriptionParts
	service    Service
	keys       seal.Keys
	secret     int          // its place in the configuration when it was made
	older      *olderBook   // nil: there is no id for the older protocol
	alike      []*olderBook // of the session that speaks: those of the other secrets at the same service
	connErrors connErrors

	taken    chan struct{} // an announcement was taken, of takenOf
	takenOf  atomic.Pointer[seal.MemberID]
	retired  atomic.Pointer[seal.MemberID] // the old key of ours that this service knows to be over
	left     chan struct{}                 // closed when a farewell was taken
	leftOnce sync.Once
	status   statusBoard
}

// subscriptionParts are what all subscriptions of a client share.
type subscriptionParts struct {
	*news
	self           *announcer // nil: it only watches
	native         *nativeBook
	nativeServices *nativeServices
	dial           dialer
	log            *slog.Logger
	metrics        *telemetry.DiscoveryClient
	agent          string // software and version, for people
}

func newSubscription(parts subscriptionParts, s Service, clusterID string, secrets []seal.Secret,
	secret int) *subscription {
	keys := secrets[secret].Keys()
	c := &subscription{
		subscriptionParts: parts, service: s, keys: keys, secret: secret,
		left: make(chan struct{}), taken: make(chan struct{}, 1),
	}
	c.native.presence(keys.Cluster(), s.Name) // it is asked, from now on
	if clusterID != "" {
		c.older = newOlderBook(s.Name, clusterID, secrets[secret].Sidero())
		for i, other := range secrets {
			if i != secret {
				c.older.others = append(c.older.others, other.Sidero())
			}
		}
	}
	c.status.init(Status{
		Source: s.Name, Kind: KindService, URL: s.URL(), Protocol: s.Protocol,
		Cluster: keys.Cluster().String(), State: StateOff,
	})
	return c
}

// session is one connection to a service, and its state.
type session struct {
	ready   chan struct{} // closed when the service has sent its list, and has our entry
	drained chan struct{} // closed when another one shall take over
	done    chan struct{} // closed at its end; err is why
	err     error
	stop    context.CancelFunc
	gone    atomic.Bool // another one has taken over: its end changes nothing

	readyOnce, drainOnce sync.Once
}

func (s *session) isReady() { s.readyOnce.Do(func() { close(s.ready) }) }
func (s *session) drain()   { s.drainOnce.Do(func() { close(s.drained) }) }

func (s *session) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// run keeps sessions until ctx ends.
func (c *subscription) run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	if c.self != nil {
		g.Do(c.retire)
	}
	c.keep(ctx, g)
	g.Stop()
	err := g.Wait()
	c.status.set(StateOff, nil)
	return err
}

func (c *subscription) keep(ctx context.Context, g *run.Group) {
	var live *session
	var began time.Time
	for tries := 0; ctx.Err() == nil; {
		next := c.begin(g)
		select {
		case <-next.ready:
			if live != nil { // make before break
				live.gone.Store(true)
				live.stop()
			}
			c.attends(live == nil)
			live, began = next, time.Now()
			c.metrics.Attempts.WithLabelValues(telemetry.Outcome("")).Inc()
		case <-next.done:
			c.failed(next, live == nil || live.over())
			if !run.Wait(ctx, run.Backoff(tries, limit.DiscoveryBackoff, rand.Float64())) {
				return
			}
			tries++
			continue
		case <-ctx.Done():
			return
		}
		select {
		case <-live.drained:
		case <-live.done:
			c.failed(live, true)
			live = nil
		case <-ctx.Done():
			return
		}
		if time.Since(began) >= sessionLived { // one that ends at once is no success
			tries = 0
		}
		// all nodes of a cluster are redirected at once
		if !run.Wait(ctx, run.Backoff(tries, limit.DiscoveryBackoff, rand.Float64())) {
			return
		}
		tries++
	}
}

// attends logs once that a service reports members, and again after it was away.
func (c *subscription) attends(anew bool) {
	if s := c.status.get(); anew {
		c.log.Info("attending the discovery service", "service", c.service.Name, "protocol", s.Protocol,
			telemetry.AttrCluster, c.keys.Cluster().String())
	}
}

// failed notes why a session has ended; alone if no other one lives beside it.
func (c *subscription) failed(s *session, alone bool) {
	f := fault.From(s.err)
	if f == nil {
		f = fault.New(fault.CodeServiceAway, "the discovery service has ended the session")
	}
	c.metrics.Attempts.WithLabelValues(telemetry.Outcome(f.Code)).Inc()
	if alone {
		if c.status.set(StateAway, f) {
			c.log.Warn("discovery service away; while none reports members, known ones stay for a day as stale",
				"service", c.service.Name, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		}
	}
	c.changed()
}

func (c *subscription) begin(g *run.Group) *session {
	s := &session{ready: make(chan struct{}), drained: make(chan struct{}), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(g.Context())
	s.stop = cancel
	c.status.begin()
	g.Do(func(context.Context) {
		defer close(s.done)
		defer cancel()
		s.err = c.attend(ctx, s)
	})
	return s
}

// attend runs a session in the configured protocol. With auto the native one is tried each time,
// as a service may have been replaced. A service that has spoken it once is not believed to know
// only the older one, in which anyone who knows the cluster's id may write.
func (c *subscription) attend(ctx context.Context, s *session) error {
	if c.service.Protocol == ProtocolSidero {
		return c.attendOlder(ctx, s)
	}
	conn, err := c.connect(c.service.place, ProtocolNative)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = c.attendNative(ctx, conn, s)
	if c.service.Protocol != ProtocolAuto || status.Code(unwrapped(err)) != codes.Unimplemented {
		return c.explain(err)
	}
	if c.nativeServices.has(c.service.URL()) {
		return fault.Newf(fault.CodeVersion, "the discovery service %s speaks the older protocol only", c.service.Name).
			Whyf("it has spoken the native one with this node before; 'tombolo discovery downgrade %s' permits it",
				c.service.URL()).
			Hint("see which service answers at %s", c.service.URL())
	}
	if c.older == nil {
		return fault.Newf(fault.CodeVersion, "the discovery service %s speaks the older protocol only", c.service.Name).
			Whyf("there is no id of the cluster for it").Hint("set cluster.id in the configuration")
	}
	conn.Close()
	return c.attendOlder(ctx, s)
}

// unwrapped finds the status within what explain wraps.
func unwrapped(err error) error {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Err()
	}
	return nil
}

// explain makes a fault of what a call gave.
func (c *subscription) explain(err error) error {
	var f *fault.Fault
	if err == nil || errors.As(err, &f) {
		return err
	}
	code, hint := fault.CodeServiceAway, "see whether the service runs and can be reached from here; "+
		"known members stay for a day, as stale when their leases are over"
	st, _ := status.FromError(err)
	text := st.Message()
	switch st.Code() {
	case codes.Unavailable:
		if why, next := c.connErrors.why(); why != "" {
			text, hint = why, cmp.Or(next, hint)
		}
	case codes.ResourceExhausted:
		code, hint = fault.CodeLimit, "the service's bounds are reached; it is tried again"
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		code, hint = fault.CodeRequest, "the service does not take what is announced: see why"
	case codes.Unimplemented:
		code, hint = fault.CodeVersion, "see whether a discovery service answers at this address, and set its protocol"
	case codes.PermissionDenied, codes.Unauthenticated:
		code, hint = fault.CodeUnauthorized, "see to the rights of this node at the service"
	case codes.Aborted:
		code, hint = fault.CodeWatchLost, "it is asked again"
	}
	// The cause is kept out of the chain: its text is untrusted.
	return fault.Newf(code, "the discovery service %s could not be used", c.service.Name).Whyf("%s", shown(text)).
		Hint("%s", hint)
}

// speaksNative notes that the service does.
func (c *subscription) speaksNative() {
	if err := c.nativeServices.note(c.service.URL()); err != nil && c.status.get().Protocol != ProtocolNative {
		f := fault.From(err)
		c.log.Warn("it is not kept that a discovery service speaks the native protocol", "service", c.service.Name,
			telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
	}
}

func (c *subscription) hasLeft() { c.leftOnce.Do(func() { close(c.left) }) }

// connect makes a connection of its own for a session, so that a load balancer
// may choose another service for the next one.
func (c *subscription) connect(to place, p Protocol) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+to.address, c.service.options(to, c.dial, ping(p), &c.connErrors)...)
	if err != nil {
		return nil, fault.Newf(fault.CodeConfig, "the discovery service %s cannot be called", c.service.Name).Because(err)
	}
	return conn, nil
}

// received is what a stream of a service gave.
type received[T any] struct {
	frame T
	err   error
}

// receive reads a stream of either protocol until it fails or the group ends.
func receive[T any](g *run.Group, next func() (T, error)) <-chan received[T] {
	out := make(chan received[T])
	g.Do(func(ctx context.Context) {
		for {
			frame, err := next()
			select {
			case out <- received[T]{frame, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return out
}
