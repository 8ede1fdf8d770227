// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// UpstreamOptions are those of an agent's tunnels.
type UpstreamOptions struct {
	Log         *slog.Logger
	Observe     Observer // nil: nobody
	AgentID     string
	Identifiers string
	Token       string // empty: none is sent
	Splicer     *splice.Splicer
	// Budget bounds what came on native sessions and was not read yet; nil: each has its own.
	Budget *carrier.Budget
	// Dial reaches a target; nil: from this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Upstream is a tunnel to a server, at the agent's end.
//
//	DIAL_REQ ── dial ──► DIAL_RSP(id), flow ── splice ──► CLOSE_RSP
//	   └ DIAL_CLS: the dial is given up   └ CLOSE_REQ: answered, and the target reads what is left
type Upstream struct {
	*link
	UpstreamOptions
	ServerID string
	Count    int // servers that an agent shall connect to

	stop    context.CancelFunc // of the stream
	group   *run.Group
	next    atomic.Int64
	open    atomic.Int64 // connections
	waiting *run.Limiter
	native  *tls.Conn     // not nil: a session on it carries the connections, and not the link
	drains  chan struct{} // closed by Drain, of a session
	drained sync.Once

	asking  sync.Mutex
	dialing map[int64]context.CancelFunc
}

// Link is how a connection to a server reads and writes.
func Link() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithWriteBufferSize(linkWrite), grpc.WithReadBufferSize(linkRead),
		experimental.WithBufferPool(newPool())}
}

// Connect opens a tunnel over a connection to a server. It waits for what the server says about itself.
func Connect(ctx context.Context, cc *grpc.ClientConn, o UpstreamOptions) (*Upstream, error) {
	return begin(metadata.AppendToOutgoingContext(ctx, o.head()...), func(ctx context.Context) (*Upstream, error) {
		return connect(ctx, cc, o)
	})
}

// head is what an agent says about itself.
func (o *UpstreamOptions) head() []string {
	head := []string{headAgentID, o.AgentID, headIdentifiers, o.Identifiers}
	if o.Token != "" {
		head = append(head, headToken, bearer+o.Token)
	}
	return head
}

// begin bounds what connects.
func begin(ctx context.Context, connect func(context.Context) (*Upstream, error)) (*Upstream, error) {
	ctx, stop := context.WithCancel(ctx)
	late := time.AfterFunc(limit.Dial, stop)
	u, err := connect(ctx)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if f := refusedBy(err); f != nil {
		stop()
		return nil, f
	}
	if err != nil {
		stop()
		return nil, fault.New(fault.CodeHubAway, "the konnectivity server cannot be reached").Because(err).
			Hint("compare --proxy-server-host, --proxy-server-port and the certificates with the server's")
	}
	u.stop = stop
	return u, nil
}

// refusal is what a server of ours says why it does not take an agent.
type refusal struct{ *fault.Fault }

// refusedBy is why a server has refused this agent; nil if err is anything else. Over gRPC it has the text, and no code
// but gRPC's.
func refusedBy(err error) *fault.Fault {
	var own refusal
	if errors.As(err, &own) {
		return own.Fault
	}
	code, ok := map[codes.Code]fault.Code{codes.PermissionDenied: fault.CodeUnauthorized,
		codes.ResourceExhausted: fault.CodeLimit, codes.InvalidArgument: fault.CodeRequest}[status.Code(err)]
	if !ok {
		return nil
	}
	return fault.New(code, "the konnectivity server has refused this agent").
		Whyf("%s", untrusted.Text(status.Convert(err).Message(), limit.FaultText))
}

func connect(ctx context.Context, cc *grpc.ClientConn, o UpstreamOptions) (*Upstream, error) {
	desc := &grpc.StreamDesc{StreamName: "Connect", ServerStreams: true, ClientStreams: true}
	s, err := cc.NewStream(ctx, desc, "/AgentService/Connect", grpc.ForceCodecV2(newCodec(newPool())),
		grpc.MaxCallRecvMsgSize(limit.KonnectivityPacket))
	if err != nil {
		return nil, err
	}
	head, err := s.Header()
	if err != nil {
		return nil, err
	}
	u, err := newUpstream(ctx, s, head, o)
	if err != nil && len(head.Get(headServerID)) == 0 {
		var refused packet
		if err := s.RecvMsg(&refused); err != nil { // the reason, of a server that has refused
			return nil, err
		}
	}
	return u, err
}

// newUpstream reads what the server says about itself.
func newUpstream(ctx context.Context, s messages, head metadata.MD, o UpstreamOptions) (*Upstream, error) {
	ids, counts := head.Get(headServerID), head.Get(headServerCount)
	if len(ids) != 1 || len(counts) != 1 {
		return nil, errors.New("the server has not said its id and how many there are")
	}
	count, err := strconv.Atoi(counts[0])
	if err != nil {
		return nil, errors.New("the server's count of servers is no number")
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	l := newLink(s, o.Observe, true)
	if o.Log != nil {
		l.log = o.Log
	}
	return &Upstream{link: l, UpstreamOptions: o, ServerID: untrusted.Text(ids[0], mostAgentID),
		Count: count, group: run.NewGroup(ctx), waiting: run.NewLimiter(limit.PendingDials), drains: make(chan struct{}),
		dialing: map[int64]context.CancelFunc{}}, nil
}

// Serve dials for the server until the tunnel ends, and waits for its connections.
func (u *Upstream) Serve() error {
	if u.native != nil {
		return u.serveNative()
	}
	u.group.Do(u.sendControls)
	u.group.Do(func(ctx context.Context) {
		select {
		case <-u.done:
		case <-ctx.Done():
		}
		u.end(fault.New(fault.CodeSessionLost, "the konnectivity tunnel was closed"))
		u.stop()
	})
	u.receive(u.handle)
	u.group.Stop()
	u.group.Wait() // its functions end without an error
	return u.why()
}

// Close ends the tunnel and its connections; Serve returns.
func (u *Upstream) Close() { u.stop() }

// Drain asks the server to dial through others.
func (u *Upstream) Drain() {
	if u.native != nil {
		u.drained.Do(func() { close(u.drains) })
		return
	}
	u.control(&packet{kind: drain})
}

// Open is the number of connections and of dials under way.
func (u *Upstream) Open() int {
	u.asking.Lock()
	defer u.asking.Unlock()
	return int(u.open.Load()) + len(u.dialing)
}

// Opened is how many connections there have been.
func (u *Upstream) Opened() int64 { return u.next.Load() }

// handle takes a packet of the server. It does not wait, but for deliver.
func (u *Upstream) handle(p *packet) {
	switch p.kind {
	case dialRequest:
		u.asked(p)
	case closeDial:
		u.asking.Lock()
		giveUp := u.dialing[p.random]
		u.asking.Unlock()
		if giveUp != nil {
			giveUp()
		}
	case data:
		if f := u.flow(p.connectID); f != nil {
			f.deliver(p)
			return
		}
		if p.connectID != 0 {
			u.control(u.closing(p.connectID, "unrecognized connectID"))
		}
	case closeRequest:
		why := "Unknown connectID"
		if f := u.flow(p.connectID); f != nil {
			f.ends("")
			why = ""
		}
		u.control(u.closing(p.connectID, why))
	}
	p.free() // unknown types are ignored, as the reference does
}

// asked begins a dial.
func (u *Upstream) asked(p *packet) {
	random, network, address := p.random, p.protocol, p.address
	refuse := func(why string) {
		u.observe.DialFailed(TargetUnknown)
		u.control(&packet{kind: dialResponse, body: body{random: random, errText: why}})
	}
	switch {
	case network != "tcp":
		refuse("this agent dials tcp, and not " + strconv.Quote(untrusted.Text(network, 32)))
		return
	case !u.waiting.TryAcquire():
		refuse("too many dials are under way at this agent")
		return
	}
	u.group.Do(func(ctx context.Context) {
		defer u.waiting.Release()
		ctx, cancel := context.WithTimeout(ctx, targetDial)
		defer cancel()
		u.asking.Lock()
		u.dialing[random] = cancel
		u.asking.Unlock()
		conn, f := u.dial(ctx, random, address)
		u.asking.Lock()
		delete(u.dialing, random)
		u.asking.Unlock()
		if f != nil {
			u.group.Do(func(context.Context) {
				f.settle()
				u.carry(conn, f)
			})
		}
	})
}

// dial reaches a target and answers the server.
func (u *Upstream) dial(ctx context.Context, random int64, address string) (net.Conn, *flow) {
	start := time.Now()
	conn, err := u.reach(ctx, address)
	if err != nil {
		u.send(&packet{kind: dialResponse, body: body{random: random, errText: strings.ToValidUTF8(err.Error(), " ")}})
		return nil, nil
	}
	f, fresh := u.link.open(u.next.Add(1), address)
	if !fresh { // the tunnel has ended
		conn.Close()
		return nil, nil
	}
	u.observe.Dialled(time.Since(start))
	f.onClosed(u.opened())
	u.send(&packet{kind: dialResponse, body: body{random: random, connectID: f.id}}) // if it fails, f has ended
	return conn, f
}

// carry copies between a target and the server. Its goroutines are its own: the stack on which a dial was made is
// several times larger than what a connection that is idle needs.
func (u *Upstream) carry(conn net.Conn, far splice.Conn) {
	ctx, done := u.group.Begin()
	u.Splicer.Start(ctx, splice.Net(conn), far, splice.Options{}, func(splice.Result) { done() })
}

// reach dials a target.
func (u *Upstream) reach(ctx context.Context, address string) (net.Conn, error) {
	conn, err := u.Dial(ctx, "tcp", address)
	if err != nil {
		reason := TargetUnknown
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			reason = TargetTimeout
		}
		u.observe.DialFailed(reason)
		u.Log.Info("a target was not reached", "address", untrusted.Text(address, limit.AuthorityLength),
			telemetry.AttrReason, err)
	}
	return conn, err
}

// opened counts a connection until its end is told.
func (u *Upstream) opened() (ended func()) {
	u.open.Add(1)
	u.observe.Connections(+1)
	return func() {
		u.open.Add(-1)
		u.observe.Connections(-1)
	}
}
