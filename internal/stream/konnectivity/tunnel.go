// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// The metadata of AgentService.Connect.
const (
	headAgentID     = "agentid"
	headIdentifiers = "agentidentifiers"
	headToken       = "authorization"
	headServerID    = "serverid"
	headServerCount = "servercount"
	bearer          = "Bearer "
)

// agentIdentity is who an agent says it is, and whose credential it has.
type agentIdentity struct {
	agent  string
	holder Holder // of its certificate or token
	token  string // empty: none was asked for
	near   Identifiers
}

// certified is the TLS of a stream; empty if there is none.
func certified(ctx context.Context) tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return t.State
		}
	}
	return tls.ConnectionState{}
}

// admit reads what an agent sends along, and judges its token.
func (a *Agents) admit(ctx context.Context, head metadata.MD,
	secure tls.ConnectionState) (who agentIdentity, err error) {
	ids, near, tokens := head.Get(headAgentID), head.Get(headIdentifiers), head.Get(headToken)
	switch {
	case len(ids) != 1 || ids[0] == "" || len(ids[0]) > mostAgentID:
		return who, fault.New(fault.CodeRequest, "the agent cannot be told from others").
			Whyf("%d agent ids came, and one of at most %d characters is expected", len(ids), mostAgentID)
	case len(near) > 1:
		return who, fault.New(fault.CodeRequest, "the agent's identifiers cannot be read").
			Whyf("they came %d times", len(near))
	}
	who.agent = untrusted.Text(ids[0], mostAgentID)
	if len(near) == 1 {
		if who.near, err = ParseIdentifiers(near[0]); err != nil {
			return who, err
		}
	}
	if len(secure.PeerCertificates) > 0 {
		who.holder = holderOf(secure.PeerCertificates[0])
	}
	if a.Authorize == nil {
		return who, nil
	}
	if len(tokens) != 1 || !strings.HasPrefix(tokens[0], bearer) {
		return who, fault.New(fault.CodeUnauthorized, "the agent has no token").
			Hint("give the agent --service-account-token-path")
	}
	who.token = strings.TrimSpace(strings.TrimPrefix(tokens[0], bearer))
	who.holder, err = a.Authorize(ctx, who.token)
	return who, err
}

func grpcCode(f *fault.Fault) codes.Code {
	switch f.Code {
	case fault.CodeUnauthorized:
		return codes.PermissionDenied
	case fault.CodeRequest:
		return codes.InvalidArgument
	case fault.CodeLimit:
		return codes.ResourceExhausted
	}
	return codes.Unavailable
}

// tunnel is one stream of an agent, at the server's end.
//
//	dial ── DIAL_REQ ──► pending ── DIAL_RSP(id) ──► flow
//	                       ├ DIAL_RSP(error), DIAL_CLS, the end of the tunnel ──► refused
//	                       └ the caller is gone ── DIAL_CLS ──► late: CLOSE_REQ
type tunnel struct {
	*link
	agents   *Agents
	who      agentIdentity
	ready    atomic.Bool // the agent knows the server
	draining atomic.Bool
	shared   *atomic.Bool    // other agents have the same credential
	open     atomic.Int64    // connections
	session  carrier.Session // not nil: it carries the connections, and not the link
	waiting  atomic.Int64    // dials of the session that have not been answered
	since    time.Time

	asking  sync.Mutex
	pending map[int64]*asked
}

// asked is a dial that has not been answered.
type asked struct {
	target string
	sent   atomic.Bool
	answer chan answer // of one
}

type answer struct {
	flow *flow
	err  *fault.Fault
}

func newTunnel(a *Agents, who agentIdentity, s messages) *tunnel {
	t := &tunnel{link: newLink(s, a.Observe, false), agents: a, who: who, pending: map[int64]*asked{},
		since: time.Now(), shared: new(atomic.Bool)}
	t.link.agent, t.link.budget = who.agent, a.Budget
	t.link.ending = func() { a.gone(t) } // first: whoever learns of the end and dials again is not to choose it
	if a.Log != nil {
		t.link.log = a.Log.With(telemetry.AttrAgent, who.agent)
	}
	t.skips = func(p *packet) bool {
		if p.kind != dialRequest {
			return false
		}
		t.asking.Lock()
		defer t.asking.Unlock()
		q := t.pending[p.random]
		if q != nil {
			q.sent.Store(true)
		}
		return q == nil // the caller is gone
	}
	return t
}

func (t *tunnel) pendingCount() int {
	t.asking.Lock()
	defer t.asking.Unlock()
	return len(t.pending) + int(t.waiting.Load())
}

// answered takes a dial out of those that wait.
func (t *tunnel) answered(random int64) *asked {
	t.asking.Lock()
	defer t.asking.Unlock()
	q := t.pending[random]
	delete(t.pending, random)
	return q
}

// dial asks the agent to dial, and waits for its answer.
func (t *tunnel) dial(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	if t.session != nil {
		return t.dialNative(ctx, d)
	}
	start := time.Now()
	q := &asked{target: d.Address, answer: make(chan answer, 1)}
	t.asking.Lock()
	random := rand.Int64()
	for t.pending[random] != nil || random == 0 {
		random = rand.Int64()
	}
	t.pending[random] = q
	t.asking.Unlock()
	t.control(&packet{kind: dialRequest, body: body{protocol: d.Network, address: d.Address, random: random}})
	var got answer
	select {
	case got = <-q.answer:
	case <-t.done:
		got = t.givenUp(random, q, BackendClose, t.why)
	case <-ctx.Done():
		reason := FrontendClose
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason = BackendTimeout
		}
		got = t.givenUp(random, q, reason, func() *fault.Fault { return t.tooLate(reason, q) })
		if got.err != nil {
			t.control(&packet{kind: closeDial, body: body{random: random}})
		}
	}
	if got.err != nil {
		return nil, got.err
	}
	t.agents.Observe.Dialled(time.Since(start))
	return got.flow, nil
}

// givenUp ends a dial that has no answer; one that came meanwhile counts.
func (t *tunnel) givenUp(random int64, q *asked, reason string, why func() *fault.Fault) answer {
	if t.answered(random) == nil {
		return <-q.answer
	}
	t.agents.Observe.DialFailed(reason)
	return answer{err: why()}
}

// tooLate is why a dial ends before its answer. An agent that did not even take the
// request is given up: it would take none of the next.
func (t *tunnel) tooLate(reason string, q *asked) *fault.Fault {
	if reason != BackendTimeout {
		return fault.New(fault.CodeDialCanceled, "the dial was given up by its caller")
	}
	why := fault.New(fault.CodeDialTimeout, "the agent has not answered the dial").
		Hint("is the target there? Look at the agent's log")
	if !q.sent.Load() {
		why.Whyf("its tunnel takes nothing; it is closed")
		t.end(fault.New(fault.CodeSessionLost, "the agent's konnectivity tunnel was given up").
			Whyf("it took no packet within the time of a dial"))
	}
	return why
}

// handle takes a packet of the agent. It does not wait, but for deliver.
func (t *tunnel) handle(p *packet) {
	switch p.kind {
	case dialResponse:
		t.dialled(p)
	case closeDial:
		if q := t.answered(p.random); q != nil {
			t.agents.Observe.DialFailed(BackendClose)
			q.answer <- answer{err: fault.New(fault.CodeDialCanceled, "the agent has given the dial up")}
		}
	case data:
		if f := t.flow(p.connectID); f != nil {
			f.deliver(p)
			return
		}
		if p.connectID != 0 {
			t.control(&packet{kind: closeRequest, body: body{connectID: p.connectID}})
		}
	case closeResponse:
		if f := t.flow(p.connectID); f != nil {
			f.ends(p.errText)
		}
	case drain:
		t.agents.leaves(t)
	}
	p.free() // unknown types are ignored, as the reference does
}

// dialled takes the answer to a dial.
func (t *tunnel) dialled(p *packet) {
	q := t.answered(p.random)
	switch {
	case q == nil:
		t.agents.Observe.DialFailed(UnrecognizedResponse)
		if p.connectID != 0 && t.flow(p.connectID) == nil {
			t.control(&packet{kind: closeRequest, body: body{connectID: p.connectID}})
		}
		return
	case p.errText != "":
		t.agents.Observe.DialFailed(ErrorResponse)
		q.answer <- answer{err: fault.New(fault.CodeDialUnreachable, "the agent could not reach the target").
			Whyf("%s", untrusted.Text(p.errText, limit.FaultText))}
		return
	}
	f, fresh := t.link.open(p.connectID, q.target)
	if !fresh || p.connectID == 0 {
		t.agents.Observe.DialFailed(ErrorResponse)
		q.answer <- answer{err: fault.New(fault.CodeFrameInvalid, "the agent's answer to a dial makes no sense").
			Whyf("it names connection %d", p.connectID)}
		return
	}
	t.open.Add(1)
	f.onClosed(func() { t.open.Add(-1) })
	q.answer <- answer{flow: f}
}
