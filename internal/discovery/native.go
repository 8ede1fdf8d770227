// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
)

// attendVersion is the one version of Attend that there is.
const attendVersion = 1

// ours serves the protocol of our own nodes: docs/reference/discovery-wire.md, section 3.
//
//	challenge ─► proof ─► welcome, snapshot ─► changes, answers to entries ─► drain
//	               └─ refusal, end                └─ refusals                    └─ end
type ours struct {
	pb.UnimplementedDiscoveryServer
	s *Service
}

// attendance is one stream that has proved which cluster it is of.
type attendance struct {
	*Service
	stream  grpc.BidiStreamingServer[pb.FromMember, pb.FromService]
	who     seal.Proven
	cluster Cluster
	replies chan *pb.FromService
	end     chan error // why nothing more comes from the member
}

// Attend serves one member or watcher.
func (o ours) Attend(stream grpc.BidiStreamingServer[pb.FromMember, pb.FromService]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	nonce := make([]byte, seal.NonceSize)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	err := stream.Send(&pb.FromService{Frame: &pb.FromService_Challenge{Challenge: &pb.Challenge{
		Nonce: nonce, VersionMin: attendVersion, VersionMax: attendVersion, Software: "tombolo/" + o.s.cfg.Version,
	}}})
	if err != nil {
		return err
	}
	a := &attendance{Service: o.s, stream: stream, replies: make(chan *pb.FromService, discoveryInFlight),
		end: make(chan error, 1)}
	proofs := make(chan *pb.Proof, 1)
	proven := make(chan struct{})
	// RecvMsg returns at the latest when this handler has.
	o.s.work.Do(func(context.Context) { a.end <- a.receive(ctx, proofs, proven) })
	if a.who, err = a.prove(nonce, proofs); err != nil {
		// The frame is for our own nodes, the status for all.
		stream.Send(refusal(err, 0, 0))
		return err
	}
	a.cluster = Cluster{Native, string(a.who.Cluster[:])}
	close(proven)
	return a.serve(ctx)
}

// prove waits for the proof and checks it.
func (a *attendance) prove(nonce []byte, proofs <-chan *pb.Proof) (seal.Proven, error) {
	timer := time.NewTimer(discoveryBegin)
	defer timer.Stop()
	select {
	case p := <-proofs:
		if p.GetVersion() != attendVersion {
			return seal.Proven{}, fault.New(fault.CodeVersion, "the proof is refused").
				Whyf("it is of version %d, and version %d is spoken here", p.GetVersion(), attendVersion).
				Hint("update the older side")
		}
		return seal.VerifyProof(nonce, p)
	case err := <-a.end:
		if errors.Is(err, io.EOF) {
			err = fault.New(fault.CodeRequest, "the call is ended").Whyf("the member has left before its proof").
				Hint("answer the challenge first")
		}
		return seal.Proven{}, err
	case <-a.draining:
		return seal.Proven{}, drained()
	case <-timer.C:
		return seal.Proven{}, fault.New(fault.CodeRequest, "the call is ended").
			Whyf("no proof came within %v", discoveryBegin).
			Hint("answer the challenge first")
	}
}

// receive reads what the member sends until that ends, or breaks the protocol.
func (a *attendance) receive(ctx context.Context, proofs chan<- *pb.Proof, proven <-chan struct{}) error {
	first := true
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return err // io.EOF: it sends nothing more
		}
		switch frame := m.GetFrame().(type) {
		case *pb.FromMember_Proof:
			if !first {
				return fault.New(fault.CodeRequest, "the call is ended").Whyf("a second proof came").
					Hint("send one, in answer to the challenge")
			}
			first = false
			proofs <- frame.Proof
			select {
			case <-proven:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case *pb.FromMember_Put:
			if first {
				return fault.New(fault.CodeRequest, "the call is ended").Whyf("an entry came before the proof").
					Hint("answer the challenge first")
			}
			answer := a.put(ctx, frame.Put.GetEntry())
			select {
			case a.replies <- answer:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		default: // of a newer version: passed over, at the same rate as the others
			if err := a.callers.turn(ctx, callerOf(ctx).Addr(), 1); err != nil {
				return err
			}
		}
	}
}

// put takes an entry and says so, or why not.
func (a *attendance) put(ctx context.Context, e *pb.Entry) *pb.FromService {
	err := a.callers.turn(ctx, callerOf(ctx).Addr(), 1)
	if err == nil {
		err = a.take(ctx, e)
	}
	a.count("Put", err)
	if err == nil {
		return &pb.FromService{Frame: &pb.FromService_Ack{Ack: &pb.Ack{Version: e.GetVersion()}}}
	}
	known := uint64(0)
	if a.who.Member != nil && fault.Has(err, fault.CodeEntryStale) {
		known = a.board.Get(Place{a.cluster, string(a.who.Member[:])}).Version
	}
	return refusal(err, e.GetVersion(), known)
}

// take verifies an entry and puts it into the store. It must be the entry of the
// one who brings it.
func (a *attendance) take(ctx context.Context, e *pb.Entry) error {
	if e == nil {
		return fault.New(fault.CodeEntryInvalid, "the entry is not taken").Whyf("there is none").Hint("send one")
	}
	member, err := a.who.Verify(e)
	if err != nil {
		return err
	}
	if a.who.Member == nil || *a.who.Member != member {
		return fault.New(fault.CodeUnauthorized, "the entry is not taken").
			Whyf("it is of another member than the one who proved itself").
			Hint("prove the member's key first, on a stream of its own")
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
	if err != nil {
		return fault.New(fault.CodeEntryInvalid, "the entry is not taken").Because(err)
	}
	return a.store.Update(ctx, Place{a.cluster, string(member[:])}, roster.Update{
		Data: data, Version: e.GetVersion(), Removed: e.GetRemoved(), TTL: time.Duration(e.GetTtl()) * time.Second,
		From: callerOf(ctx).Addr(),
	})
}

// refusal is a fault as a frame.
func refusal(err error, version, known uint64) *pb.FromService {
	f := fault.From(err)
	return &pb.FromService{Frame: &pb.FromService_Refusal{Refusal: &pb.Refusal{
		Code: string(f.Code), What: f.What, Why: f.Why, Next: f.Next, Version: version, Known: known,
	}}}
}

// serve sends until the member goes or is lost. Nothing but it sends.
func (a *attendance) serve(ctx context.Context) error {
	w := a.board.Watch(a.cluster)
	defer w.Close()
	told, err := a.begin(ctx, w)
	if err != nil {
		return err
	}
	draining, end, now := a.draining, a.end, make(chan struct{})
	close(now)
	for {
		d, changed, err := w.changes(nativeChanges)
		if err != nil {
			return err
		}
		if d != nil {
			if err := sendDelta(a.stream, d); err != nil {
				return err
			}
		}
		stands, stood := a.standing.current()
		if stands != told {
			if err := a.stream.SendMsg(stands.frame()); err != nil {
				return err
			}
			told = stands
		}
		if d != nil {
			changed = now // look again, once what waits besides is done
		}
		select {
		case answer := <-a.replies:
			err = a.stream.SendMsg(answer)
		case <-draining:
			draining = nil
			drain := &pb.Drain{Reason: "the service is about to stop"}
			err = a.stream.SendMsg(&pb.FromService{Frame: &pb.FromService_Drain{Drain: drain}})
			if err == nil && a.alone() { // the member has nowhere to go, and would stay to the end
				return a.rest(drained())
			}
		case err = <-end:
			if !errors.Is(err, io.EOF) {
				return a.rest(err)
			}
			end, err = nil, nil // it listens on
		case <-changed:
		case <-stood:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// rest sends the answers that wait, and ends with a mistake of the member's.
func (a *attendance) rest(end error) error {
	for {
		select {
		case answer := <-a.replies:
			if err := a.stream.SendMsg(answer); err != nil {
				return err
			}
		default:
			return end
		}
	}
}

// begin sends the welcome and the snapshot, and returns the standing that they report.
func (a *attendance) begin(ctx context.Context, w *Watcher) (told standing, err error) {
	at := callerOf(ctx)
	hello := &pb.Welcome{TtlMax: uint32(limit.DiscoveryTTL / time.Second), SealedMax: limit.DiscoverySealed,
		Service: a.cfg.Name}
	if at.IsValid() {
		hello.ObservedIp, hello.ObservedPort = at.Addr().AsSlice(), uint32(at.Port())
	}
	if err := a.stream.SendMsg(&pb.FromService{Frame: &pb.FromService_Welcome{Welcome: hello}}); err != nil {
		return told, err
	}
	// Before the snapshot is drawn: what it lacks was not there by then.
	a.standing.look()
	now, _ := a.standing.current()
	told.settled = now.settled
	if err := a.answers.sendSnapshot(a.stream, w, nativeSnapshot); err != nil {
		return told, err
	}
	last := &pb.Snapshot{Last: true, Settled: told.settled}
	return told, a.stream.SendMsg(&pb.FromService{Frame: &pb.FromService_Snapshot{Snapshot: last}})
}

// nativeSnapshot is the cluster in pieces, removals that are remembered included:
// they come last, so that a member's new key is known before its old one is over.
// The last piece, which differs from watcher to watcher, is not among them.
func nativeSnapshot(all []Listing) (out [][]byte) {
	items := make([][]byte, 0, len(all))
	for _, removed := range []bool{false, true} {
		for _, m := range all {
			if m.Lease.Removed == removed {
				items = append(items, field(make([]byte, 0, fieldSize(snapshotEntries, len(m.Lease.Data))), snapshotEntries,
					m.Lease.Data))
			}
		}
	}
	for _, piece := range pack(items, discoveryPiece-frameHead) {
		out = append(out, field(nil, frameSnapshot, piece))
	}
	return out
}

// nativeChanges are the present entries, and the ids of members that have none any longer.
func nativeChanges(all []Listing) (out [][]byte) {
	items := make([][]byte, 0, len(all))
	for _, m := range all {
		if m.Lease.Exists() {
			items = append(items, field(nil, changeEntries, m.Lease.Data))
		} else {
			items = append(items, field(nil, changeExpired, []byte(m.ID)))
		}
	}
	for _, piece := range pack(items, discoveryPiece-frameHead) {
		out = append(out, field(nil, frameChange, piece))
	}
	return out
}
