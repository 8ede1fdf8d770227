// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// AgentsOptions are those of Agents.
type AgentsOptions struct {
	Log        *slog.Logger
	Observe    Observer // nil: nobody
	ServerID   string
	Count      func() int // servers that an agent shall connect to
	Strategies []Strategy
	TLS        *tls.Config // nil: none
	Keepalive  time.Duration
	Dial       time.Duration // bounds a dial; 0: limit.Dial
	// Budget counts what came from agents and was not read yet, and bounds it on native sessions; nil: that of a cluster.
	Budget *carrier.Budget
	// Authorize, if not nil, judges an agent's token and names whose it is.
	Authorize func(ctx context.Context, token string) (Holder, error)
	// Watch, if not nil, judges the token of an agent while it is connected, until ctx ends or nothing more can be
	// said. An error is why the agent is let go.
	Watch func(ctx context.Context, token string) error
	// Refused, if not nil, counts an agent that was refused.
	Refused func(fault.Code)
}

// Agents serves the reference's agents, and dials through them.
type Agents struct {
	AgentsOptions

	mu      sync.Mutex
	tunnels []*tunnel            // in the order of arrival
	ids     map[string][]*tunnel // those of an agent id, in the same order
	holders map[Holder]*holding
	near    nearby // of tunnels that are ready
}

// NewAgents makes it.
func NewAgents(o AgentsOptions) *Agents {
	if o.Observe == nil {
		o.Observe = unobserved{}
	}
	if o.Budget == nil {
		o.Budget = carrier.NewBudget(limit.ClusterUnread)
	}
	o.Dial = cmp.Or(o.Dial, limit.Dial)
	return &Agents{AgentsOptions: o, ids: map[string][]*tunnel{}, holders: map[Holder]*holding{},
		near: newNearby(o.Strategies)}
}

// Serve accepts agents on ln until ctx ends; it owns ln.
func (a *Agents) Serve(ctx context.Context, ln net.Listener) error {
	g := run.NewGroup(ctx)
	pool := newPool()
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(pool)),
		experimental.BufferPool(pool),
		grpc.WriteBufferSize(linkWrite), grpc.ReadBufferSize(linkRead),
		grpc.ConnectionTimeout(limit.Handshake),
		grpc.MaxHeaderListSize(limit.RequestHeader),
		grpc.MaxRecvMsgSize(limit.KonnectivityPacket),
		grpc.MaxConcurrentStreams(linkStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: a.Keepalive, Timeout: keepaliveTimeout,
			MaxConnectionIdle: silentAgent}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
	if a.TLS != nil {
		options = append(options, grpc.Creds(&dispatcher{TransportCredentials: credentials.NewTLS(a.TLS),
			native: func(conn *tls.Conn) {
				g.Do(func(ctx context.Context) { a.serveNative(ctx, conn) })
			}}))
	}
	srv := grpc.NewServer(options...)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "AgentService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Connect", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return a.connect(s, g) },
		}},
	}, a)
	stop := run.OnDone(ctx, srv.Stop)
	err := srv.Serve(ln)
	stop()
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	g.Stop()
	srv.Stop()
	return errors.Join(err, g.Wait())
}

// connect serves one stream of an agent.
func (a *Agents) connect(s grpc.ServerStream, g *run.Group) error {
	var t *tunnel
	head, _ := metadata.FromIncomingContext(s.Context())
	who, err := a.admit(s.Context(), head, certified(s.Context()))
	if err == nil {
		t, err = a.attach(who, s)
	}
	if err != nil {
		f := a.refused(who, err)
		return explain(grpcCode(f), f)
	}
	defer a.detach(t)
	a.Observe.Stream(MethodConnect, +1)
	defer a.Observe.Stream(MethodConnect, -1)
	if err := s.SendHeader(a.head()); err != nil {
		return err
	}
	a.Log.Info("agent connected", telemetry.AttrAgent, who.agent, "holder", who.holder.String())
	a.arrived(t)
	// RecvMsg returns at the latest when this handler has, so that receive outlives it by a moment.
	g.Do(func(context.Context) { t.receive(t.handle) })
	g.Do(t.sendControls)
	g.Do(func(context.Context) { a.watch(s.Context(), t) })
	select {
	case <-t.done:
	case <-s.Context().Done():
	case <-g.Context().Done():
	}
	t.end(fault.New(fault.CodeSessionLost, "the agent's konnectivity tunnel was lost").
		Hint("its agent connects again; try again"))
	why := t.why()
	a.Log.Info("agent gone", telemetry.AttrAgent, who.agent, telemetry.AttrReason, why.Error())
	if why.Code == fault.CodeUnauthorized {
		return explain(grpcCode(why), why)
	}
	return nil
}

// watch lets an agent go whose token is not good any more. ctx ends with the tunnel.
func (a *Agents) watch(ctx context.Context, t *tunnel) {
	if a.Watch == nil {
		return
	}
	if err := a.Watch(ctx, t.who.token); err != nil {
		f := fault.From(err)
		a.Log.Warn("an agent is let go", telemetry.AttrAgent, t.who.agent, "holder", t.who.holder.String(),
			telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		t.end(f)
	}
}

// refused notes that an agent was.
func (a *Agents) refused(who agentIdentity, err error) *fault.Fault {
	f := fault.From(err)
	if a.Refused != nil { // first: whoever reads the log finds it counted
		a.Refused(f.Code)
	}
	a.Log.Warn("an agent was refused", telemetry.AttrAgent, who.agent, telemetry.AttrCode, f.Code,
		telemetry.AttrReason, f.Error())
	return f
}

// head is what the server says about itself.
func (a *Agents) head() metadata.MD {
	return metadata.Pairs(headServerID, a.ServerID, headServerCount, strconv.Itoa(max(a.Count(), 1)))
}

func (a *Agents) live() (out []*tunnel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tunnels {
		if t.ready.Load() {
			out = append(out, t)
		}
	}
	return out
}

// Ready is how many agents a strategy can choose from.
func (a *Agents) Ready(s Strategy) int {
	agents := map[string]bool{}
	for _, t := range a.live() {
		if t.who.near.serves(s) {
			agents[t.who.agent] = true
		}
	}
	return len(agents)
}

// Counts are the tunnels, the dials under way and the connections.
func (a *Agents) Counts() (tunnels, pending, established int) {
	for _, t := range a.live() {
		tunnels++
		pending += t.pendingCount()
		established += int(t.open.Load())
	}
	return tunnels, pending, established
}

// Dial opens a connection to d.Address through the agent that the strategies choose.
func (a *Agents) Dial(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	if d.Network != wire.NetworkTCP {
		return nil, fault.Newf(fault.CodeRequest, "the network %q is not dialled through agents", d.Network).
			Hint("dial tcp")
	}
	host, _, err := net.SplitHostPort(d.Address)
	if err != nil {
		return nil, fault.Newf(fault.CodeRequest, "%q is no host:port", d.Address)
	}
	a.mu.Lock()
	t := a.chooseLocked(host, time.Now(), rand.IntN)
	a.mu.Unlock()
	if t == nil {
		a.Observe.DialFailed(NoAgent)
		return nil, fault.New(fault.CodeNoAgent, "No agent available"). // the reference's words, which people search for
										Whyf("%d agents are connected, and none is for %s by the strategies %v", len(a.live()), host, a.Strategies).
										Hint("look at the agents' logs and /readyz, or add the strategy default")
	}
	ctx, cancel := context.WithTimeout(ctx, a.AgentsOptions.Dial)
	defer cancel()
	return t.dial(ctx, d)
}
