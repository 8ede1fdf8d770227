// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// older serves the protocol that Talos nodes speak: docs/reference/discovery-wire.md,
// section 4. Nobody proves anything in it.
type older struct {
	sdr.UnimplementedClusterServer
	s *Service
}

func entryInvalid(what string) *fault.Fault {
	return fault.New(fault.CodeEntryInvalid, "the call is refused").Whyf("%s", what).
		Hint("see docs/reference/discovery-wire.md, section 4")
}

func checkID(what, id string) error {
	if n := len(id); n == 0 || n > limit.DiscoveryID {
		return entryInvalid(what).Whyf("the %s id has %d bytes, 1 to %d are taken", what, n, limit.DiscoveryID)
	}
	return nil
}

func olderCluster(id string) (Cluster, error) { return Cluster{Sidero, id}, checkID("cluster", id) }

func olderPlace(cluster, member string) (Place, error) {
	c, err := olderCluster(cluster)
	if err == nil {
		err = checkID("affiliate", member)
	}
	return Place{c, member}, err
}

// olderUpdate checks an update. Of its endpoints the first count, as many as a member
// may have: if the rest refused it, it would not be announced at all.
func olderUpdate(r *sdr.AffiliateUpdateRequest, endpoints int) (Place, roster.Update, error) {
	u := roster.Update{Data: r.AffiliateData, Endpoints: r.GetAffiliateEndpoints(), Most: endpoints}
	p, err := olderPlace(r.GetClusterId(), r.GetAffiliateId())
	if err != nil {
		return p, u, err
	}
	if n := len(u.Data); n > limit.DiscoveryData {
		return p, u, entryInvalid("").Whyf("affiliate_data has %d bytes, at most %d are taken", n, limit.DiscoveryData)
	}
	if i := slices.IndexFunc(u.Endpoints, noEndpoint); i >= 0 {
		return p, u, entryInvalid("").Whyf("affiliate_endpoints[%d] has %d bytes, 1 to %d are taken", i, len(u.Endpoints[i]),
			limit.DiscoveryEndpoint)
	}
	u.Endpoints = firsts(u.Endpoints, endpoints)
	if u.TTL = lease(r.GetTtl()); u.TTL <= 0 || u.TTL > limit.DiscoveryTTL {
		return p, u, entryInvalid("").Whyf("ttl is %d s and %d ns: more than 0, and at most %v, is taken",
			r.GetTtl().GetSeconds(), r.GetTtl().GetNanos(), limit.DiscoveryTTL)
	}
	return p, u, nil
}

// noEndpoint refuses a blob: an empty one makes readers that are out there fall over.
func noEndpoint(e []byte) bool { return len(e) == 0 || len(e) > limit.DiscoveryEndpoint }

// lighten takes out of a request what will not count, before it waits: of small endpoints,
// 64 KiB of them would have become more than ten times as much. One that is refused stays,
// so that the request is.
func lighten(req any, endpoints int) {
	r, is := req.(*sdr.AffiliateUpdateRequest)
	if !is || len(r.AffiliateEndpoints) <= endpoints {
		return
	}
	if i := slices.IndexFunc(r.AffiliateEndpoints, noEndpoint); i >= 0 {
		r.AffiliateEndpoints = [][]byte{r.AffiliateEndpoints[i]}
		return
	}
	r.AffiliateEndpoints = firsts(r.AffiliateEndpoints, endpoints)
}

// firsts are the first different blobs, at most so many.
func firsts(blobs [][]byte, most int) [][]byte {
	seen := make(map[string]bool, min(len(blobs), most))
	out := blobs[:0:0]
	for _, b := range blobs {
		if len(out) == most {
			break
		}
		if !seen[string(b)] {
			seen[string(b)] = true
			out = append(out, b)
		}
	}
	return out
}

// lease is a duration as it came; 0 for what is none.
func lease(d *sdr.Duration) time.Duration {
	seconds, nanos := d.GetSeconds(), d.GetNanos()
	if seconds < 0 || seconds > math.MaxInt32 || nanos < 0 || nanos >= int32(time.Second) {
		return 0
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanos)
}

// Hello returns the caller's address, or the service to go to instead.
func (o older) Hello(ctx context.Context, r *sdr.HelloRequest) (*sdr.HelloResponse, error) {
	if _, err := olderCluster(r.GetClusterId()); err != nil {
		return nil, err
	}
	out := &sdr.HelloResponse{}
	if at := callerOf(ctx).Addr(); at.IsValid() {
		out.ClientIp = at.AsSlice()
	}
	if to := o.s.settings.Load().redirect; to != "" {
		out.Redirect = &sdr.RedirectMessage{Endpoint: to}
	}
	return out, nil
}

// AffiliateUpdate adds to a member, or makes it.
func (o older) AffiliateUpdate(ctx context.Context,
	r *sdr.AffiliateUpdateRequest) (*sdr.AffiliateUpdateResponse, error) {
	p, u, err := olderUpdate(r, o.s.settings.Load().limits.Endpoints)
	u.From = callerOf(ctx).Addr()
	if err == nil {
		err = o.s.persist(ctx, func() error { return o.s.store.Update(ctx, p, u) })
	}
	if err != nil {
		return nil, err
	}
	return &sdr.AffiliateUpdateResponse{}, nil
}

// AffiliateDelete takes a member away.
func (o older) AffiliateDelete(ctx context.Context,
	r *sdr.AffiliateDeleteRequest) (*sdr.AffiliateDeleteResponse, error) {
	p, err := olderPlace(r.GetClusterId(), r.GetAffiliateId())
	if err == nil {
		err = o.s.persist(ctx, func() error { return o.s.store.Delete(ctx, p) })
	}
	if err != nil {
		return nil, err
	}
	return &sdr.AffiliateDeleteResponse{}, nil
}

// List returns a cluster, once it is known which members are gone.
func (o older) List(ctx context.Context, r *sdr.ListRequest) (*sdr.ListResponse, error) {
	id, err := olderCluster(r.GetClusterId())
	if err == nil {
		err = o.s.settled(ctx)
	}
	if err != nil {
		return nil, err
	}
	all, err := o.s.board.Rendered(id, olderSnapshot, o.s.answers.claims(ctx))
	if err != nil || all == nil {
		return &sdr.ListResponse{}, err
	}
	if all.size() > limit.DiscoveryList {
		all.Done()
		return nil, fault.New(fault.CodeLimit, "the cluster is not listed").
			Whyf("it has more than the %d bytes that fit into an answer", limit.DiscoveryList).
			Hint("watch it: its first answers are all of it")
	}
	callOf(ctx).list = all // a ListResponse as bytes, which Watch gives, too
	return &sdr.ListResponse{}, nil
}

// Watch gives a cluster, and then what changes in it.
func (o older) Watch(r *sdr.WatchRequest, stream grpc.ServerStreamingServer[sdr.WatchResponse]) error {
	ctx := stream.Context()
	id, err := olderCluster(r.GetClusterId())
	if err != nil {
		return err
	}
	w := o.s.board.Watch(id)
	defer w.Close()
	settings := o.s.settings.Load()
	if err := o.s.settled(ctx); err != nil {
		return err
	}
	if err := o.s.answers.sendSnapshot(stream, w, olderSnapshot); err != nil {
		return err
	}
	for {
		d, changed, err := w.changes(olderChanges)
		if err != nil {
			return err
		}
		if d != nil {
			if err := sendDelta(stream, d); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-o.s.draining:
			return drained()
		case <-settings.moved:
			return fault.New(fault.CodeDraining, "the watch is ended").Whyf("the service sends its nodes to another one").
				Hint("call Hello, which says where that is")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// affiliate is a member as a field of a WatchResponse.
func affiliate(m Listing) []byte {
	n := fieldSize(affiliateID, len(m.ID))
	if len(m.Lease.Data) > 0 {
		n += fieldSize(affiliateData, len(m.Lease.Data))
	}
	for _, e := range m.Lease.Endpoints {
		n += fieldSize(affiliateEndpoints, len(e.Blob))
	}
	b := make([]byte, 0, fieldSize(watchAffiliates, n))
	b = protowire.AppendVarint(protowire.AppendTag(b, watchAffiliates, protowire.BytesType), uint64(n))
	b = protowire.AppendString(protowire.AppendTag(b, affiliateID, protowire.BytesType), m.ID)
	if len(m.Lease.Data) > 0 {
		b = field(b, affiliateData, m.Lease.Data)
	}
	for _, e := range m.Lease.Endpoints {
		b = field(b, affiliateEndpoints, e.Blob)
	}
	return b
}

// olderSnapshot is the whole cluster in one message, even if it is empty. A cluster that is too
// large for a message that clients accept continues in further ones.
func olderSnapshot(all []Listing) [][]byte {
	items := make([][]byte, 0, len(all))
	for _, m := range all {
		if m.Lease.Listed() {
			items = append(items, affiliate(m))
		}
	}
	if out := pack(items, discoveryWhole); len(out) > 0 {
		return out
	}
	return [][]byte{{}}
}

// olderChanges are the messages about changes: changed members in full, removed ones by their id.
func olderChanges(all []Listing) [][]byte {
	var here, gone [][]byte
	for _, m := range all {
		if m.Lease.Listed() {
			here = append(here, affiliate(m))
		} else {
			gone = append(gone, affiliate(Listing{ID: m.ID}))
		}
	}
	out := pack(here, discoveryPiece)
	for _, m := range pack(gone, discoveryPiece) {
		m = protowire.AppendTag(m, watchDeleted, protowire.VarintType)
		out = append(out, protowire.AppendVarint(m, 1))
	}
	return out
}
