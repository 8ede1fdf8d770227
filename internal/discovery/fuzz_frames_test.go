// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"io"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// frames is a member's end that sends these, and ends.
type frames struct {
	grpc.BidiStreamingServer[pb.FromMember, pb.FromService]
	left []*pb.FromMember
}

func (f *frames) Recv() (*pb.FromMember, error) {
	if len(f.left) == 0 {
		return nil, io.EOF
	}
	next := f.left[0]
	f.left = f.left[1:]
	return next, nil
}

// FuzzFromMember: whichever two frames a member sends, the call ends with its end or a code,
// and nothing is on the board but what the member has signed, after a proof.
func FuzzFromMember(f *testing.F) {
	k, m := newKeys(f), newMember(f)
	good := entry(f, k, m, 1)
	seed := func(frame *pb.FromMember) []byte {
		out, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		return out
	}
	proof := seed(&pb.FromMember{Frame: &pb.FromMember_Proof{Proof: &pb.Proof{Version: 1}}})
	put := seed(&pb.FromMember{Frame: &pb.FromMember_Put{Put: &pb.Put{Entry: good}}})
	f.Add(proof, put)
	f.Add(put, proof)
	f.Add(proof, proof)
	f.Add(seed(&pb.FromMember{Frame: &pb.FromMember_Put{}}), []byte{})
	metrics := telemetry.NewDiscovery(prometheus.NewRegistry(), telemetry.DiscoveryReadings{})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s := &frames{}
		for _, raw := range [][]byte{one, two} {
			frame := &pb.FromMember{}
			if proto.Unmarshal(raw, frame) == nil {
				s.left = append(s.left, frame)
			}
		}
		ordered := len(s.left) == 2 && s.left[0].GetProof() != nil
		board, id := NewBoard(Bounds{}), m.ID()
		service := &Service{board: board, store: &Memory{cfg: MemoryConfig{Board: board}}, callers: newCallers(10, Rates{PerSecond: 100, Burst: 100})}
		service.metrics = metrics
		a := &attendance{Service: service, stream: s, replies: make(chan *pb.FromService, 2), who: seal.Proven{Cluster: k.Cluster(), Verifier: k.Verifier(), Member: &id}}
		a.cluster = Cluster{Native, string(a.who.Cluster[:])}
		proven := make(chan struct{})
		close(proven)
		err := a.receive(t.Context(), make(chan *pb.Proof, 1), proven)
		if err != io.EOF && !fault.Has(err, fault.CodeRequest) {
			t.Errorf("the call ends with %v", err)
		}
		if _, members, _ := board.Counts(); members > 0 && !ordered {
			t.Error("an entry is taken without a proof before")
		}
	})
}

// FuzzOlderRequests: what is taken of a request that names a cluster, and a member, has names
// within the bounds.
func FuzzOlderRequests(f *testing.F) {
	seed, err := proto.Marshal(&sdr.AffiliateDeleteRequest{ClusterId: "c", AffiliateId: "a"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	board := NewBoard(Bounds{})
	o := older{s: &Service{board: board, store: &Memory{cfg: MemoryConfig{Board: board}}}}
	o.s.settings.Store(&Reloadable{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var hello sdr.HelloRequest
		var gone sdr.AffiliateDeleteRequest
		var list sdr.ListRequest
		var watch sdr.WatchRequest
		if proto.Unmarshal(data, &hello) == nil {
			if _, err := o.Hello(t.Context(), &hello); (err == nil) != (checkID("cluster", hello.GetClusterId()) == nil) {
				t.Errorf("Hello of %q: %v", hello.GetClusterId(), err)
			}
		}
		if proto.Unmarshal(data, &gone) == nil {
			bad := checkID("cluster", gone.GetClusterId()) != nil || checkID("affiliate", gone.GetAffiliateId()) != nil
			if _, err := o.AffiliateDelete(t.Context(), &gone); bad && !fault.Has(err, fault.CodeEntryInvalid) {
				t.Errorf("AffiliateDelete of %q, %q: %v", gone.GetClusterId(), gone.GetAffiliateId(), err)
			}
		}
		if proto.Unmarshal(data, &list) == nil && checkID("cluster", list.GetClusterId()) != nil {
			if _, err := o.List(t.Context(), &list); !fault.Has(err, fault.CodeEntryInvalid) {
				t.Errorf("List of %q: %v", list.GetClusterId(), err)
			}
		}
		if proto.Unmarshal(data, &watch) == nil && checkID("cluster", watch.GetClusterId()) != nil {
			if err := o.Watch(&watch, asking{ctx: t.Context()}); !fault.Has(err, fault.CodeEntryInvalid) {
				t.Errorf("Watch of %q: %v", watch.GetClusterId(), err)
			}
		}
	})
}

// asking is the stream of a caller whose request is refused.
type asking struct {
	grpc.ServerStreamingServer[sdr.WatchResponse]
	ctx context.Context
}

func (w asking) Context() context.Context { return w.ctx }
