// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// The targets that a simulated agent knows; it dials nothing for them.
const (
	targetHold   = "192.0.2.1:1" // nothing happens
	targetEcho   = "192.0.2.1:2" // what comes goes back
	targetSource = "192.0.2.1:3" // bytes without end
)

// simulated is one agent of one cluster: what the product's agent says and does
// on the network, without its state on disk, its health port and its dials.
type simulated struct {
	fleet  *fleet
	cert   *tls.Certificate
	source net.Addr // of its connections

	mu   sync.Mutex
	link carrier.Session // nil: none
	held []carrier.Stream
}

// fleet is what all agents of a process have in common.
type fleet struct {
	hub string
	ca  *trust.Authority
	key *ecdsa.PrivateKey
	// The parent of the agents' own budgets: a process of agents shares its buffers.
	unread *carrier.Budget
}

// newSimulated issues the certificate of a cluster's agent. All have the same
// key, which costs a handshake the same, and each its own certificate.
func (f *fleet) newSimulated(cluster int) (*simulated, error) {
	name, err := id.ParseCluster(clusterName(cluster))
	if err != nil {
		return nil, err
	}
	leaf, err := f.ca.Issue(trust.Request{
		Identity: id.Identity{Role: id.RoleAgent, Cluster: name, Name: "agent-1"}, Key: f.key.Public(), Life: limit.AgentCertificate,
	}, time.Now())
	if err != nil {
		return nil, err
	}
	// Several addresses of loopback, because the ports of one are too few.
	from := &net.TCPAddr{IP: net.IPv4(127, 8, byte(cluster>>12), byte(cluster>>8&15+1))}
	return &simulated{fleet: f, source: from, cert: &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: f.key, Leaf: leaf}}, nil
}

func clusterName(n int) string { return fmt.Sprintf("c%d", n) }

// shake dials an address and makes TLS of it, as the product's agent does.
func (a *simulated) shake(ctx context.Context, address string) (*tls.Conn, error) {
	d := carrier.Dialer()
	d.LocalAddr = a.source
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	check := func() trust.Check {
		return trust.Check{Roots: a.fleet.ca.Roots(), TrustDomain: a.fleet.ca.TrustDomain(), Now: time.Now()}
	}
	conn := tls.Client(carrier.Wrap(raw), trust.HubClientConfig(check, a.cert, trust.ALPNSession))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// greeted has a connection with Hello and Welcome exchanged.
func (a *simulated) greeted(ctx context.Context, secret []byte) (*tls.Conn, *pb.Welcome, error) {
	conn, err := a.shake(ctx, a.fleet.hub)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	defer stop()
	hello := &pb.Hello{
		VersionMin: wire.Version, VersionMax: wire.Version, Software: "tombolo scale", Instance: rand.Text(),
		UnixMillis: time.Now().UnixMilli(), Attach: secret, Capabilities: wire.Offer(), Ranges: []string{"192.0.2.0/24"},
	}
	var m pb.Control
	err = wire.Write(conn, &pb.Control{Frame: &pb.Control_Hello{Hello: hello}})
	if err == nil {
		err = wire.Read(conn, limit.ControlFrame, &m)
	}
	welcome := m.GetWelcome()
	if f := wire.FromFault(welcome.GetRefusal()); err == nil && f != nil {
		err = f
	}
	if err == nil && welcome == nil {
		err = errors.New("the first frame is no Welcome")
	}
	if err != nil {
		conn.NetConn().Close()
		return nil, nil, err
	}
	return conn, welcome, nil
}

// connect holds a session from now on, and returns when the hub has answered its first ping.
func (a *simulated) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake+limit.Hello)
	defer cancel()
	conn, welcome, err := a.greeted(ctx, nil)
	if err != nil {
		return err
	}
	o := carrier.Options{
		Incoming: limit.StreamsPerSession, Budget: a.fleet.unread.Another(limit.AgentUnread),
		Connections: max(1, int(min(welcome.GetConnections(), limit.Connections))),
	}
	if secret := welcome.GetSecret(); o.Connections > 1 && len(secret) > 0 {
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			more, _, err := a.greeted(ctx, secret)
			if err != nil {
				return nil, err
			}
			return more, nil
		}
	}
	link, err := carrier.Client(conn, o)
	if err != nil {
		conn.Close()
		return err
	}
	control, err := link.OpenStream(ctx, nil)
	if err != nil {
		link.Close()
		return err
	}
	answered := make(chan struct{})
	beat := heartbeat.New(heartbeat.Options{
		Stream: control, Done: link.Done(), End: func() { link.Close() },
		Next:         func(ctx context.Context) (heartbeat.Stream, error) { return link.OpenStream(ctx, nil) },
		LastReceived: func() time.Time { return link.Traffic().LastReceived },
		OnFrame: func(f *pb.Control) {
			if f.GetGoodbye() != nil {
				link.Close()
			}
		},
		OnRTT: func() func(time.Duration) {
			var once sync.Once
			return func(time.Duration) { once.Do(func() { close(answered) }) }
		}(),
	})
	a.mu.Lock()
	a.link, a.held = link, nil
	a.mu.Unlock()
	go beat.Run(context.Background())
	go a.accept(link, beat)
	select {
	case <-answered:
		return nil
	case <-link.Done():
		return fault.New(fault.CodeSessionLost, "the session ended at once")
	case <-ctx.Done():
		link.Close()
		return context.Cause(ctx)
	}
}

// done is closed when the agent holds no session.
func (a *simulated) done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return a.link.Done()
}

func (a *simulated) accept(link carrier.Session, beat *heartbeat.Beat) {
	for {
		stream, err := link.AcceptStream(context.Background())
		if err != nil {
			return // the session has ended
		}
		go a.serve(stream, beat)
	}
}

// serve answers a dial and plays its target. A stream that is held needs no
// goroutine, and so nobody notices when it ends: it is kept until the session does.
func (a *simulated) serve(stream carrier.Stream, beat *heartbeat.Beat) {
	stream.SetReadDeadline(time.Now().Add(limit.Hello))
	d, err := wire.ReadDial(stream)
	stream.SetReadDeadline(time.Time{})
	if err == nil {
		err = wire.Write(stream, wire.Reply(d.Address, nil))
	}
	if err != nil {
		stream.Reset(0)
		return
	}
	beat.Busy(+1)
	if d.Address == targetHold {
		a.mu.Lock()
		a.held = append(a.held, stream)
		a.mu.Unlock()
		return
	}
	defer beat.Busy(-1)
	defer stream.Close()
	if d.Address == targetSource {
		stream.CopyFrom(zeros{}, nil)
		return
	}
	if _, err := io.Copy(stream, struct{ io.Reader }{stream}); err == nil {
		stream.CloseWrite()
	}
}

// zeros gives bytes without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	b = b[:min(len(b), limit.CopyBuffer)]
	clear(b)
	return len(b), nil
}
