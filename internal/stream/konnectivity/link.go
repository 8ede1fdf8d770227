// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// messages is a gRPC stream, at either end of it.
type messages interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// link is one stream of AgentService.Connect, at the server's end or at the agent's. Many
// connections share it, each a flow:
//
//	flow.Write ──────────────── DATA ──►┐ one at a time
//	controls ── what must not wait ────►┴─► gRPC ══► peer
//	flow.queue ◄── handle ◄── receive ◄──── gRPC ◄══ peer
//
// receive never sends: two ends that both wait for the other to read would stand still.
type link struct {
	stream  messages
	observe Observer
	log     *slog.Logger
	atAgent bool               // this is the agent's end
	agent   string             // its id, at the server's end
	skips   func(*packet) bool // not nil: a control that is to be sent no more
	ending  func()             // not nil: called before the end, perhaps several times at once, with no lock of the link
	pool    mem.BufferPool     // of what is read to be sent
	budget  *carrier.Budget    // counts what came and was not read yet; nil at the agent's end

	sending sync.Mutex // held while a packet is sent
	wake    chan struct{}
	done    chan struct{} // closed by end
	late    lateness      // receive's own

	mu       sync.Mutex
	flows    map[int64]*flow
	controls []*packet
	ended    *fault.Fault
}

func newLink(stream messages, observe Observer, atAgent bool) *link {
	if observe == nil {
		observe = unobserved{}
	}
	return &link{stream: stream, observe: observe, log: slog.New(slog.DiscardHandler), atAgent: atAgent,
		wake: make(chan struct{}, 1), done: make(chan struct{}), flows: map[int64]*flow{}, pool: newPool()}
}

// receive hands each packet to handle until the stream or the link ends.
func (l *link) receive(handle func(*packet)) {
	for {
		p := new(packet)
		if err := l.stream.RecvMsg(p); err != nil {
			l.observe.Failed(l.inbound(), -1, err)
			if l.atAgent && status.Code(err) == codes.PermissionDenied {
				l.end(refusedBy(err))
			}
			l.end(fault.New(fault.CodeSessionLost, "the konnectivity tunnel was lost").Because(err))
			return
		}
		l.observe.Packet(l.inbound(), p.kind)
		handle(p)
		select {
		case <-l.done:
			return
		default:
		}
	}
}

// sendControls sends what control was given, until the link ends.
func (l *link) sendControls(ctx context.Context) {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		all := l.controls
		l.controls = nil
		l.mu.Unlock()
		for _, p := range all {
			if l.skips != nil && l.skips(p) {
				continue
			}
			if l.send(p) != nil {
				return
			}
		}
	}
}

// control has a packet sent soon, and does not wait.
func (l *link) control(p *packet) {
	l.mu.Lock()
	l.controls = append(l.controls, p)
	full := len(l.controls) > mostControls
	l.mu.Unlock()
	if full {
		l.end(fault.New(fault.CodeSessionLost, "the konnectivity tunnel was given up").
			Whyf("%d packets wait to be sent on it", mostControls))
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// send sends a packet and waits until gRPC has taken it.
func (l *link) send(p *packet) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	select {
	case <-l.done:
		return l.why()
	default:
	}
	l.observe.Packet(l.outbound(), p.kind)
	if err := l.stream.SendMsg(p); err != nil {
		l.observe.Failed(l.outbound(), p.kind, err)
		l.end(fault.New(fault.CodeSessionLost, "the konnectivity tunnel was lost").Because(err))
		return l.why()
	}
	return nil
}

// end ends the link and every flow on it; the first reason stands.
func (l *link) end(why *fault.Fault) {
	if l.ending != nil {
		l.ending()
	}
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	l.ended = why
	flows := l.flows
	l.flows = map[int64]*flow{}
	close(l.done)
	l.mu.Unlock()
	for _, f := range flows {
		f.lost(why)
	}
}

func (l *link) why() *fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// open adds a flow to a target; false where the link has ended or has one of this id.
func (l *link) open(id int64, target string) (*flow, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.flows[id] != nil {
		return nil, false
	}
	f := newFlow(l, id, target)
	l.flows[id] = f
	return f, true
}

func (l *link) flow(id int64) *flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows[id]
}

// forget frees the id of a flow.
func (l *link) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flows, id)
}

func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flows)
}

// closing is the packet that ends a connection, as this end of the link says it.
func (l *link) closing(id int64, why string) *packet {
	if l.atAgent {
		return &packet{kind: closeResponse, body: body{connectID: id, errText: why}}
	}
	return &packet{kind: closeRequest, body: body{connectID: id}}
}

func (l *link) inbound() Segment {
	if l.atAgent {
		return ToAgent
	}
	return FromAgent
}

func (l *link) outbound() Segment {
	if l.atAgent {
		return FromAgent
	}
	return ToAgent
}
