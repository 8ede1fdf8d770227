// SPDX-License-Identifier: Apache-2.0

// Package talos is a node as Talos runs it, for tests of discovery services: it speaks
// the older protocol, and does what the client of Talos does where that is unkind.
//
//	wait (backoff) ─► Hello ─► Watch ─► update ─► follow, and update at half of the lease
//	  ▲                 │        │        └─ failed: the watch is cancelled, and nothing
//	  └─────────────────┴────────┘           happens until the next update is due
package talos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/run"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// The times of Talos.
const (
	Lease       = 30 * time.Minute
	helloWithin = 10 * time.Second
	// updatesWithin is for an update and for those of other members' endpoints together.
	updatesWithin = 30 * time.Second
	firstWait     = 500 * time.Millisecond
	longestWait   = time.Minute
)

// Node is one node. Its fields are set before Run.
type Node struct {
	Dial      func(at string) (*grpc.ClientConn, error)
	At        string // where the service is; a redirect changes it
	Cluster   string
	ID        string
	Data      []byte
	Endpoints [][]byte
	Lease     time.Duration // 0: Lease

	mu      sync.Mutex
	peers   map[string]bool
	at      string
	watches int
	updates int
	failed  []error
	forgot  int
}

// heard is a message of a watch, or its end.
type heard struct {
	first bool
	said  *sdr.WatchResponse
	err   error
}

// Run lives until ctx ends. An error is one of Dial.
func (n *Node) Run(ctx context.Context) error {
	if n.Lease == 0 {
		n.Lease = Lease
	}
	conn, err := n.Dial(n.At)
	if err != nil {
		return err
	}
	defer func() { conn.Close() }()
	renew := time.NewTicker(n.Lease / 2)
	defer renew.Stop()
	work := run.NewGroup(ctx)
	defer work.Wait()
	defer work.Stop()

	var watch chan heard
	cancel := func() {}
	defer func() { cancel() }()
	for due, tries := true, 0; ctx.Err() == nil; {
		if watch == nil {
			if !run.Wait(ctx, backoff(tries, rand.Float64())) {
				return nil
			}
			tries++
			to, err := n.hello(ctx, conn)
			if err != nil || to != "" { // it begins anew, there or here
				if conn.Close(); to != "" {
					n.moved(to)
				}
				if conn, err = n.Dial(n.where()); err != nil {
					return err
				}
				continue
			}
			watching, end := context.WithCancel(ctx)
			cancel = end
			watch = make(chan heard, 1)
			into, client := watch, sdr.NewClusterClient(conn)
			work.Do(func(context.Context) { n.watch(watching, client, into) })
		}
		if due {
			if err := n.update(ctx, conn); err != nil {
				cancel() // and it waits below
				watch = nil
				n.refused(err)
			} else {
				due, tries = false, 0
				n.updated()
			}
		}
		select {
		case <-ctx.Done():
		case <-renew.C:
			due = true
		case h := <-watch:
			if h.err != nil {
				cancel()
				watch, due = nil, true
				continue
			}
			n.hear(h)
		}
	}
	return nil
}

// backoff is the wait before a try: it grows by half, and each is half as long or
// half again, at random.
func backoff(tries int, random float64) time.Duration {
	d := firstWait
	for range tries {
		d = min(d*3/2, longestWait)
	}
	return d/2 + time.Duration(random*float64(d))
}

func (n *Node) hello(ctx context.Context, conn *grpc.ClientConn) (redirect string, err error) {
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	answer, err := sdr.NewClusterClient(conn).Hello(ctx, &sdr.HelloRequest{ClusterId: n.Cluster, ClientVersion: "v1.13.0"})
	return answer.GetRedirect().GetEndpoint(), err
}

func (n *Node) update(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, updatesWithin)
	defer cancel()
	_, err := sdr.NewClusterClient(conn).AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{
		ClusterId: n.Cluster, AffiliateId: n.ID, AffiliateData: n.Data, AffiliateEndpoints: n.Endpoints,
		Ttl: &sdr.Duration{Seconds: int64(n.Lease / time.Second)},
	})
	return err
}

// watch hands on what a watch says until it ends.
func (n *Node) watch(ctx context.Context, client sdr.ClusterClient, into chan<- heard) {
	n.mu.Lock()
	n.watches++
	n.mu.Unlock()
	stream, err := client.Watch(ctx, &sdr.WatchRequest{ClusterId: n.Cluster})
	for h := (heard{first: true, err: err}); ; h.first = false {
		if h.err == nil {
			h.said, h.err = stream.Recv()
		}
		select {
		case into <- h:
		case <-ctx.Done():
			return
		}
		if h.err != nil {
			return
		}
	}
}

// hear takes over what a watch says. The first message is all there is.
func (n *Node) hear(h heard) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := len(n.peers)
	if h.first {
		n.peers = make(map[string]bool)
	}
	for _, a := range h.said.GetAffiliates() {
		switch {
		case a.GetId() == n.ID:
		case h.said.GetDeleted():
			delete(n.peers, a.GetId())
		case len(a.GetData()) > 0:
			n.peers[a.GetId()] = true
		}
	}
	if len(n.peers) < was {
		n.forgot++
	}
}

func (n *Node) updated() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updates++
}

func (n *Node) moved(to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = to
}

func (n *Node) where() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == "" {
		return n.At
	}
	return n.at
}

func (n *Node) refused(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = append(n.failed, err)
}

// Peers is how many others it knows.
func (n *Node) Peers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.peers)
}

// Knows reports whether it knows another one.
func (n *Node) Knows(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peers[id]
}

// Failed are the errors of its updates: for each it heard nothing until half of its
// lease had passed.
func (n *Node) Failed() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.failed...)
}

// Forgot is how often it came to know fewer than before.
func (n *Node) Forgot() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forgot
}

// Updates is how many the service has taken.
func (n *Node) Updates() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.updates
}

// Watches is how many it has begun.
func (n *Node) Watches() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.watches
}
