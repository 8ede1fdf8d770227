// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// nodeToken makes a join line for nodes; name is empty for any.
func (h *testHub) nodeToken(cluster, name string, uses int) trust.Join {
	h.t.Helper()
	var out admin.Token
	h.call("POST", "/v1/tokens", admin.TokenRequest{Cluster: cluster, TTLSeconds: 900, Uses: uses, Nodes: true, Node: name}, &out)
	plantJoin(h.t, out.Join)
	line, err := trust.ParseJoin(out.Join)
	if err != nil {
		h.t.Fatal(err)
	}
	return line
}

func enroller(t *testing.T, now func() time.Time, name string) enrol.Client {
	if now == nil {
		now = time.Now
	}
	return enrol.Client{Dial: carrier.Dialer().DialContext, Now: now, Log: (&journal{}).logger(), Role: "node", Node: name}
}

// node gets a node its certificate.
func (h *testHub) node(cluster, name string) *enrol.Identity {
	h.t.Helper()
	me, err := enroller(h.t, nil, name).Join(runtest.Within(h.t), h.nodeToken(cluster, "", 1), newKey(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	return me
}

func relayTLS(me *enrol.Identity) *tls.Config {
	return trust.HubClientConfig(me.Check(time.Now), me.TLS(), trust.ALPNRelay)
}

// datagram looks like one of WireGuard.
func datagram(n uint64, size int) []byte {
	b := make([]byte, max(size, 12))
	b[0] = 4
	binary.BigEndian.PutUint64(b[4:], n)
	return b
}

// relayNode is a node with a client of the relay.
type relayNode struct {
	*relay.Client
	*process
	me *enrol.Identity

	mu     sync.Mutex
	got    []string // "source n"
	absent []string
}

func (n *relayNode) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

func (n *relayNode) missed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.absent)
}

func (n *relayNode) identity() *enrol.Identity {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.me
}

// relayed starts a client of a node.
func relayed(t *testing.T, me *enrol.Identity, addresses ...string) *relayNode {
	t.Helper()
	n := &relayNode{me: me}
	log := &journal{}
	n.Client = relay.New(relay.Config{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return carrier.Dialer().DialContext(ctx, "tcp", address)
		},
		TLS: func() (*tls.Config, error) { return relayTLS(n.identity()), nil },
		Log: log.logger(), Random: func() float64 { return 0 },
	})
	to := relay.Handlers{
		Receive: func(_, peer string, d []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.got = append(n.got, fmt.Sprint(peer, " ", binary.BigEndian.Uint64(d[4:])))
		},
		Absent: func(_, peer string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.absent = append(n.absent, peer)
		},
	}
	n.Use(addresses)
	n.process = start(func(soft, _ context.Context) error { return n.Run(soft, to) })
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("node's log:\n%s", tail(log.String()))
		}
	})
	return n
}

// say sends by the hub that the node knows.
func (n *relayNode) say(peer string, datagrams ...[]byte) int {
	return n.Send(n.Status()[0].Hub, peer, datagrams...)
}

func (n *relayNode) up(t *testing.T) *relayNode {
	t.Helper()
	runtest.Eventually(t, "the node is connected to the relay", func() bool { return n.Status()[0].Connected })
	return n
}

// raw connects below the client.
func rawRelay(t *testing.T, h *testHub, cfg *tls.Config) *tls.Conn {
	t.Helper()
	c, err := carrier.Dialer().DialContext(runtest.Within(t), "tcp", h.listen)
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(c, cfg)
	t.Cleanup(func() { conn.NetConn().Close() })
	if err := conn.HandshakeContext(runtest.Within(t)); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	return conn
}

// next reads one frame.
func next(conn *tls.Conn) (kind relayproto.Type, body []byte, err error) {
	var b []byte
	for {
		kind, body, _, need, err := relayproto.Next(b)
		if err != nil || need == 0 {
			return kind, body, err
		}
		piece := make([]byte, need-len(b))
		n, err := conn.Read(piece)
		if b = append(b, piece[:n]...); err != nil && n == 0 {
			return 0, nil, err
		}
	}
}

// refusal reads the end that a hub tells.
func refusal(t *testing.T, conn *tls.Conn) fault.Code {
	t.Helper()
	for {
		kind, body, err := next(conn)
		if err != nil {
			t.Fatalf("no reason: %v", err)
		}
		if kind == relayproto.End {
			r, err := relayproto.ParseEnd(body)
			if err != nil {
				t.Fatal(err)
			}
			return fault.Code(r.Code)
		}
	}
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	plantKey(t, "a node's key", key)
	return key
}
