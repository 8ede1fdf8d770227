// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// siderofake is a service of the older protocol as section 4 describes it, without
// expiry: a test says what happens.
type sideroFake struct {
	pb.UnimplementedClusterServer

	mu       sync.Mutex
	members  map[string]*pb.Affiliate
	watchers map[chan *pb.WatchResponse]bool
	updates  []*pb.AffiliateUpdateRequest
	at       []time.Time // of updates
	deletes  []string
	hellos   int
	lists    int
	redirect string
	split    int // members of a first answer, if it is in several
}

func newSideroFake() *sideroFake {
	return &sideroFake{members: map[string]*pb.Affiliate{}, watchers: map[chan *pb.WatchResponse]bool{}}
}

func (f *sideroFake) register(s *grpc.Server) { pb.RegisterClusterServer(s, f) }

func (f *sideroFake) Hello(context.Context, *pb.HelloRequest) (*pb.HelloResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hellos++
	r := &pb.HelloResponse{ClientIp: netip.MustParseAddr("192.0.2.78").AsSlice()}
	if f.redirect != "" {
		r.Redirect = &pb.RedirectMessage{Endpoint: f.redirect}
	}
	return r, nil
}

func (f *sideroFake) AffiliateUpdate(_ context.Context, r *pb.AffiliateUpdateRequest) (*pb.AffiliateUpdateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates, f.at = append(f.updates, r), append(f.at, time.Now())
	a := f.members[r.GetAffiliateId()]
	if a == nil {
		a = &pb.Affiliate{Id: r.GetAffiliateId()}
	}
	a = &pb.Affiliate{Id: a.Id, Data: a.Data, Endpoints: append([][]byte(nil), a.Endpoints...)}
	if r.AffiliateData != nil {
		a.Data = r.AffiliateData
	}
	a.Endpoints = append(a.Endpoints, r.GetAffiliateEndpoints()...)
	f.members[a.Id] = a
	f.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{a}})
	return &pb.AffiliateUpdateResponse{}, nil
}

func (f *sideroFake) AffiliateDelete(_ context.Context, r *pb.AffiliateDeleteRequest) (*pb.AffiliateDeleteResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deletes = append(f.deletes, r.GetAffiliateId())
	f.remove(r.GetAffiliateId())
	return &pb.AffiliateDeleteResponse{}, nil
}

// remove, say and all are for who holds the lock.
func (f *sideroFake) remove(id string) {
	delete(f.members, id)
	f.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{{Id: id}}, Deleted: true})
}

func (f *sideroFake) say(r *pb.WatchResponse) {
	for w := range f.watchers {
		w <- r
	}
}

func (f *sideroFake) all() (out []*pb.Affiliate) {
	for _, a := range f.members {
		out = append(out, a)
	}
	return out
}

func (f *sideroFake) List(context.Context, *pb.ListRequest) (*pb.ListResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return &pb.ListResponse{Affiliates: f.all()}, nil
}

func (f *sideroFake) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ch := make(chan *pb.WatchResponse, 4096)
	f.mu.Lock()
	all := f.all()
	for f.split > 0 && len(all) > f.split {
		ch <- &pb.WatchResponse{Affiliates: all[:f.split]}
		all = all[f.split:]
	}
	ch <- &pb.WatchResponse{Affiliates: all}
	f.watchers[ch] = true
	f.mu.Unlock()
	defer func() { f.mu.Lock(); delete(f.watchers, ch); f.mu.Unlock() }()
	for {
		select {
		case r := <-ch:
			if err := stream.Send(r); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (f *sideroFake) with(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}
