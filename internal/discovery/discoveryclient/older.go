// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// attendOlder runs a session of the older protocol (docs/reference/discovery-wire.md,
// section 4): Hello, perhaps elsewhere, Watch, and what is announced each half lease.
func (c *subscription) attendOlder(ctx context.Context, s *session) error {
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

func (c *subscription) hello(ctx context.Context, svc pb.ClusterClient) (*pb.HelloResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return svc.Hello(ctx, &pb.HelloRequest{ClusterId: c.older.cluster, ClientVersion: c.agent})
}

// watching is what an older session waits for.
type watching struct {
	c       *subscription
	svc     pb.ClusterClient
	sent    uint64 // the content that was pushed last
	data    []byte // sealed
	again   bool   // push although the content is the same
	refresh *time.Timer
	retry   <-chan time.Time // of a push that was refused
	wrong   bool             // the service has other data under our id
	mended  time.Time        // when they were put right last
	later   <-chan time.Time // when they may be so again
}

func (c *subscription) watch(ctx context.Context, svc pb.ClusterClient, s *session) error {
	g := run.NewGroup(ctx)
	defer func() { g.Stop(); g.Wait() }()
	w := &watching{c: c, svc: svc, refresh: time.NewTimer(limit.DiscoveryTTL / 2)}
	defer w.ends()
	stream, err := svc.Watch(g.Context(), &pb.WatchRequest{ClusterId: c.older.cluster})
	if err != nil {
		return err
	}
	news := receive(g, stream.Recv)
	// The service may hold the first list back for as long as it settles; it
	// answers pushes meanwhile.
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
			w.hear(r.frame, !listed)
			listed = true
			c.status.settled(true)
			s.isReady()
		case <-changed:
		case <-w.refresh.C:
			w.again = true
		case <-w.retry:
			w.retry = nil
		case now := <-w.later:
			w.later = nil
			w.mendAt(now)
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
		for _, a := range r.GetAffiliates() { // anyone may have sent that: we are there
			if word, _ := c.self.current(); word.member != nil && !word.leaving && a.GetId() == word.member.Node {
				w.again = true
			}
		}
	default:
		junk = c.older.news(now, r.GetAffiliates())
	}
	if !r.GetDeleted() && c.speaks() {
		w.mend(now, r.GetAffiliates())
	}
	for range junk {
		c.passed(heardJunk, nil)
	}
	c.changed()
}

// settle asks whether the members that were reported gone are.
func (w *watching) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	list, err := w.svc.List(ctx, &pb.ListRequest{ClusterId: w.c.older.cluster})
	if status.Code(err) == codes.ResourceExhausted { // larger than an answer can be, or too many callers
		w.c.older.unsettled(time.Now())
		return nil
	}
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
	if word.member == nil && !word.leaving || word.content == w.sent && !w.again || w.retry != nil && !word.leaving {
		return nil
	}
	if !w.c.speaks() { // another session to this service announces it, under the first secret
		w.sent, w.again = word.content, false
		if word.leaving {
			w.c.hasLeft()
		}
		w.c.wasTaken(word.id.key.ID())
		return nil
	}
	within := ctx
	ctx, cancel := context.WithTimeout(within, pushTimeout)
	defer cancel()
	if word.leaving {
		w.c.status.took(0)
		w.sent, w.again = word.content, false
		if word.member != nil {
			_, err := w.svc.AffiliateDelete(ctx, &pb.AffiliateDeleteRequest{ClusterId: w.c.older.cluster,
				AffiliateId: word.member.Node})
			if err != nil {
				return err
			}
		}
		w.c.hasLeft()
		return nil
	}
	requests, err := w.announcement(*word.member)
	if err != nil { // it cannot be encoded in this protocol: the session continues without it
		w.c.status.refused(fault.From(err))
		w.c.log.Warn("this member cannot be announced by the older protocol", "service", w.c.service.Name, "reason", err)
		requests = nil
	}
	for _, r := range requests {
		if _, err := w.svc.AffiliateUpdate(ctx, r); err != nil {
			return w.notTaken(within, err)
		}
	}
	w.c.wasTaken(word.id.key.ID())
	if len(requests) > 0 {
		w.refused(false)
		w.c.status.took(limit.DiscoveryTTL)
	}
	w.sent, w.again = word.content, false
	w.refresh.Reset(limit.DiscoveryTTL / 2)
	return nil
}

// notTaken keeps the watch although the service refuses our announcement, which is sent again
// later. If the connection is lost, the watch reports it.
func (w *watching) notTaken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := fault.From(w.c.explain(err))
	w.retry = time.After(announceRetry)
	w.refused(passing(f.Code))
	w.c.status.refused(f)
	w.c.log.Warn("a discovery service does not take what is announced", "service", w.c.service.Name,
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	return nil
}

// refused notes whether the service accepts nothing at present: that holds for all secrets,
// though only one is announced.
func (w *watching) refused(yes bool) {
	now := time.Now()
	for _, b := range append([]*olderBook{w.c.older}, w.c.alike...) {
		b.refused(now, yes)
	}
	w.c.changed()
}

// ends notes the end of the session: whether the service accepts entries is no longer known, and
// the books of the other secrets assume so until it is known again.
func (w *watching) ends() {
	w.refresh.Stop()
	now := time.Now()
	for _, b := range w.c.alike {
		b.refused(now, false)
	}
	w.c.older.away(now)
	w.c.changed()
}

// speaks reports whether this session announces in the older protocol: data are sealed with one
// secret there, and two sessions would overwrite each other's affiliate.
func (c *subscription) speaks() bool { return c.secret == 0 }

// mend pushes again if other data was put under this node's id, which anyone can do who knows the
// cluster's id. It does so at once, then at most each announceRetry.
func (w *watching) mend(now time.Time, list []*pb.Affiliate) {
	word, _ := w.c.self.current()
	if word.member == nil || word.leaving || w.data == nil {
		return
	}
	for _, a := range list {
		if a.GetId() == word.member.Node && len(a.GetData()) > 0 && !bytes.Equal(a.GetData(), w.data) {
			w.wrong = true
		} else if a.GetId() == word.member.Node {
			w.wrong = false
		}
	}
	w.mendAt(now)
}

// mendAt repairs wrong data, now or when that is allowed again.
func (w *watching) mendAt(now time.Time) {
	switch due := w.mended.Add(announceRetry); {
	case !w.wrong || w.later != nil:
	case now.Before(due):
		w.later = time.After(due.Sub(now))
	default:
		w.again, w.wrong, w.mended = true, false, now
	}
}

// announcement is this node's own affiliate, and where it has seen others.
func (w *watching) announcement(m member.Facts) ([]*pb.AffiliateUpdateRequest, error) {
	c, message := w.c, seal.Affiliate(m)
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
	seen := map[string][]member.Endpoint{}
	for _, o := range m.Observed {
		if id, ok := c.older.idOf(o.Key); ok && id != m.Node {
			seen[id] = append(seen[id], member.Endpoint{Addr: o.Addr})
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

func (c *subscription) update(id string, endpoints []member.Endpoint) (*pb.AffiliateUpdateRequest, error) {
	r := &pb.AffiliateUpdateRequest{ClusterId: c.older.cluster, AffiliateId: id,
		Ttl: &pb.Duration{Seconds: int64(limit.DiscoveryTTL / time.Second)}}
	for _, e := range endpoints {
		blob, err := c.older.key.SealEndpoint(e.Addr)
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
