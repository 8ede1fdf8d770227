// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/seal"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// attendOlder runs a session of the older protocol (docs/reference/discovery.md,
// section 4): Hello, perhaps elsewhere, Watch, and what is announced each half lease.
func (c *client) attendOlder(ctx context.Context, s *session) error {
	at, to := netip.Addr{}, c.service.place
	for hops := 0; ; hops++ {
		conn, err := c.connect(to, ProtocolSidero)
		if err != nil {
			return err
		}
		answer, err := c.hello(ctx, pb.NewClusterClient(conn))
		redirect := answer.GetRedirect().GetEndpoint()
		if err == nil && redirect == "" {
			defer conn.Close()
			if ip, err := seal.ParseAddr(answer.GetClientIp()); err == nil {
				at = ip
			}
			c.status.attending(ProtocolSidero, netip.AddrPortFrom(at, 0))
			return c.explain(c.watch(ctx, pb.NewClusterClient(conn), s))
		}
		conn.Close()
		if err != nil {
			return c.explain(err)
		}
		if to, err = follow(to, redirect, hops); err != nil {
			return err
		}
	}
}

func (c *client) hello(ctx context.Context, svc pb.ClusterClient) (*pb.HelloResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.FinderHello)
	defer cancel()
	return svc.Hello(ctx, &pb.HelloRequest{ClusterId: c.older.cluster, ClientVersion: c.agent})
}

// watching is what an older session waits for.
type watching struct {
	c       *client
	svc     pb.ClusterClient
	sent    uint64 // the content that was pushed last
	data    []byte // sealed
	again   bool   // push although the content is the same
	refresh *time.Timer
}

func (c *client) watch(ctx context.Context, svc pb.ClusterClient, s *session) error {
	g := run.NewGroup(ctx)
	defer func() { g.Stop(); g.Wait() }()
	defer func() { c.older.away(time.Now()); c.changed() }()
	stream, err := svc.Watch(g.Context(), &pb.WatchRequest{ClusterId: c.older.cluster})
	if err != nil {
		return err
	}
	type received struct {
		news *pb.WatchResponse
		err  error
	}
	news := make(chan received)
	g.Do(func(ctx context.Context) {
		for {
			r, err := stream.Recv()
			select {
			case news <- received{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	w := &watching{c: c, svc: svc, refresh: time.NewTimer(limit.DiscoveryTTL / 2)}
	defer w.refresh.Stop()
	// The service may hold the first list back for as long as it settles; it
	// answers who pushes meanwhile.
	for listed := false; ; {
		word, changed := c.self.current()
		if err := w.push(ctx, word); err != nil {
			return err
		}
		doubt, stop := timerAt(c.older.doubts())
		select {
		case r := <-news:
			if r.err != nil {
				stop()
				return r.err
			}
			c.status.contact()
			w.hear(r.news, !listed)
			listed = true
			c.status.settled(true)
			s.isReady()
		case <-changed:
		case <-w.refresh.C:
			w.again = true
		case <-doubt:
			if err := w.settle(ctx); err != nil {
				stop()
				return err
			}
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
		stop()
	}
}

// hear takes a message of the stream; the first is the whole cluster.
func (w *watching) hear(r *pb.WatchResponse, first bool) {
	c, now, junk := w.c, time.Now(), 0
	switch {
	case first && !r.GetDeleted():
		junk = c.older.snapshot(now, r.GetAffiliates())
	case r.GetDeleted():
		c.older.deleted(now, r.GetAffiliates())
		for _, a := range r.GetAffiliates() { // anybody may have said so: we are there
			if word, _ := c.self.current(); word.member != nil && !word.leaving && a.GetId() == word.member.Node {
				w.again = true
			}
		}
	default:
		junk = c.older.news(now, r.GetAffiliates())
	}
	for range junk {
		c.passed(heardJunk, nil)
	}
	c.changed()
}

// settle asks whether those that were said to be gone are.
func (w *watching) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit.FinderHello)
	defer cancel()
	list, err := w.svc.List(ctx, &pb.ListRequest{ClusterId: w.c.older.cluster})
	if err != nil {
		return err
	}
	for range w.c.older.settle(time.Now(), list.GetAffiliates()) {
		w.c.passed(heardJunk, nil)
	}
	w.c.changed()
	return nil
}

// push announces this node if there is something new or it is time.
func (w *watching) push(ctx context.Context, word word) error {
	if word.member == nil && !word.leaving || word.content == w.sent && !w.again {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit.FinderPush)
	defer cancel()
	if word.leaving {
		w.sent, w.again = word.content, false
		if word.member != nil {
			_, err := w.svc.AffiliateDelete(ctx, &pb.AffiliateDeleteRequest{ClusterId: w.c.older.cluster, AffiliateId: word.member.Node})
			if err != nil {
				return err
			}
		}
		w.c.hasLeft()
		return nil
	}
	requests, err := w.announcement(*word.member)
	if err != nil { // it can not be said in this protocol: the other facts of the node are not held up
		w.c.status.refused(fault.From(err))
		w.c.log.Warn("this member cannot be announced by the older protocol", "service", w.c.service.Name, "reason", err)
		requests = nil
	}
	for _, r := range requests {
		if _, err := w.svc.AffiliateUpdate(ctx, r); err != nil {
			return err
		}
	}
	w.sent, w.again = word.content, false
	w.refresh.Reset(limit.DiscoveryTTL / 2)
	return nil
}

// announcement is this node's own affiliate, and where it has seen others.
func (w *watching) announcement(m seal.Member) ([]*pb.AffiliateUpdateRequest, error) {
	c, message := w.c, m.Affiliate()
	data, err := c.older.key.SealData(rand.Reader, message)
	if err != nil {
		return nil, err
	}
	// The same content keeps its bytes, so that a renewal wakes nobody.
	if before, err := c.older.key.OpenData(w.data); w.data != nil && err == nil && proto.Equal(before, message) {
		data = w.data
	}
	w.data = data
	own, err := c.update(m.Node, m.Endpoints)
	if err != nil {
		return nil, err
	}
	own.AffiliateData = data
	out := []*pb.AffiliateUpdateRequest{own}
	seen := map[string][]seal.Endpoint{}
	for _, o := range observedOf(m) {
		if id, ok := c.older.idOf(o.Key); ok && id != m.Node {
			seen[id] = append(seen[id], seal.Endpoint{At: o.Addr})
		}
	}
	for id, at := range seen {
		r, err := c.update(id, at)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (c *client) update(id string, endpoints []seal.Endpoint) (*pb.AffiliateUpdateRequest, error) {
	r := &pb.AffiliateUpdateRequest{ClusterId: c.older.cluster, AffiliateId: id, Ttl: &pb.Duration{Seconds: int64(limit.DiscoveryTTL / time.Second)}}
	for _, e := range endpoints {
		blob, err := c.older.key.SealEndpoint(e.At)
		if err != nil {
			return nil, err
		}
		r.AffiliateEndpoints = append(r.AffiliateEndpoints, blob)
	}
	return r, nil
}

// timerAt gives a channel for a time, nil for none.
func timerAt(at time.Time) (<-chan time.Time, func() bool) {
	if at.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(max(0, time.Until(at)))
	return t.C, t.Stop
}
