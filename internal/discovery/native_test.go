// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/rand"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
)

func newKeys(t testing.TB) seal.Keys {
	t.Helper()
	s, err := seal.NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s.Keys()
}

func newMember(t testing.TB) *seal.MemberKey {
	t.Helper()
	m, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func entry(t testing.TB, k seal.Keys, m *seal.MemberKey, version uint64) *pb.Entry {
	t.Helper()
	e, err := k.Seal(rand.Reader, *m, seal.Content{Version: version, TTL: long, Member: &pb.Member{Node: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// attending is a member's end of a stream.
type attending struct {
	grpc.BidiStreamingClient[pb.FromMember, pb.FromService]
	t *testing.T
}

func (r *rig) attend() attending {
	r.t.Helper()
	s, err := pb.NewDiscoveryClient(r.dial(nil)).Attend(runtest.Within(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return attending{s, r.t}
}

func (a attending) next() *pb.FromService {
	a.t.Helper()
	m, err := a.Recv()
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

func (a attending) prove(k seal.Keys, m *seal.MemberKey, edit func(*pb.Proof)) {
	a.t.Helper()
	c := a.next().GetChallenge()
	if len(c.GetNonce()) != seal.NonceSize || c.VersionMin != 1 || c.VersionMax != 1 {
		a.t.Fatalf("the challenge is %v", c)
	}
	p, err := seal.Prove(k, m, c.Nonce, "test")
	if err != nil {
		a.t.Fatal(err)
	}
	p.Version = 1
	if edit != nil {
		edit(p)
	}
	a.send(&pb.FromMember{Frame: &pb.FromMember_Proof{Proof: p}})
}

func (a attending) send(m *pb.FromMember) {
	a.t.Helper()
	if err := a.Send(m); err != nil {
		a.t.Fatal(err)
	}
}

func (a attending) put(e *pb.Entry) {
	a.send(&pb.FromMember{Frame: &pb.FromMember_Put{Put: &pb.Put{Entry: e}}})
}

// enter proves, and gives the snapshot.
func (a attending) enter(k seal.Keys, m *seal.MemberKey) (all []*pb.Entry, settled bool) {
	a.t.Helper()
	a.prove(k, m, nil)
	w := a.next().GetWelcome()
	var own netip.AddrPort
	if p, ok := peer.FromContext(a.Context()); ok {
		own, _ = netip.ParseAddrPort(p.LocalAddr.String())
	}
	if string(w.GetObservedIp()) != "\x7f\x00\x00\x01" || own.Port() == 0 || w.ObservedPort != uint32(own.Port()) || w.TtlMax != 1800 || w.SealedMax != limit.DiscoverySealed || w.Service == "" {
		a.t.Fatalf("the welcome is %v", w)
	}
	for {
		s := a.next().GetSnapshot()
		if s == nil {
			a.t.Fatal("no snapshot follows the welcome")
		}
		all = append(all, s.Entries...)
		if s.Last {
			return all, s.Settled
		}
	}
}

// until reads frames until one is what is asked for.
func (a attending) until(what string, is func(*pb.FromService) bool) *pb.FromService {
	a.t.Helper()
	for {
		m, err := a.Recv()
		if err != nil {
			a.t.Fatalf("%v instead of %s", err, what)
		}
		if is(m) {
			return m
		}
	}
}

func (a attending) answer() *pb.FromService {
	a.t.Helper()
	return a.until("an answer", func(m *pb.FromService) bool { return m.GetAck() != nil || m.GetRefusal() != nil })
}

func (a attending) change() *pb.Change {
	a.t.Helper()
	return a.until("a change", func(m *pb.FromService) bool { return m.GetChange() != nil }).GetChange()
}

func (a attending) wantAck(version uint64) {
	a.t.Helper()
	if m := a.answer(); m.GetAck().GetVersion() != version {
		a.t.Fatalf("the answer is %v, want an ack of %d", m, version)
	}
}

func (a attending) wantRefusal(code, why string) *pb.Refusal {
	a.t.Helper()
	r := a.answer().GetRefusal()
	if r.GetCode() != code || !strings.Contains(r.GetWhy(), why) || r.GetNext() == "" {
		a.t.Fatalf("the answer is %v, want %s with %q", r, code, why)
	}
	return r
}

func (a attending) wantEnd(code codes.Code, part string) {
	a.t.Helper()
	for {
		if _, err := a.Recv(); err != nil {
			wantCode(a.t, err, code, part)
			return
		}
	}
}

func TestAttend(t *testing.T) {
	r := serve(t, nil)
	k, one, two := newKeys(t), newMember(t), newMember(t)
	a := r.attend()
	all, _ := a.enter(k, one)
	if len(all) != 0 {
		t.Fatalf("a new cluster has %v", all)
	}
	first := entry(t, k, one, 5)
	a.put(first)
	a.wantAck(5)
	b := r.attend()
	all, settled := b.enter(k, two)
	if len(all) != 1 || !proto.Equal(all[0], first) || !settled {
		t.Fatalf("the second one finds %v, settled %v", all, settled)
	}
	second := entry(t, k, two, 1)
	b.put(second)
	a.until("the second one", func(m *pb.FromService) bool {
		return len(m.GetChange().GetEntries()) == 1 && proto.Equal(m.GetChange().Entries[0], second)
	})
	// A removal is told as it was signed, stays, and what was before it is taken no more.
	b.wantAck(1)
	removal := k.Remove(*two, 2, time.Second)
	b.put(removal)
	b.wantAck(2)
	if c := a.change(); len(c.Entries) != 1 || !proto.Equal(c.Entries[0], removal) {
		t.Fatalf("the removal is told as %v", c)
	}
	b.put(second)
	if refused := b.wantRefusal("entry_stale", "version 2 is known"); refused.Known != 2 || refused.Version != 1 {
		t.Errorf("%v", refused)
	}
	late := r.attend()
	if all, _ := late.enter(k, nil); len(all) != 2 {
		t.Errorf("a late one finds %v", all)
	}
	_, members, _ := r.board.Counts()
	if members != 1 {
		t.Errorf("%d members are listed", members)
	}
}

func TestALeaseThatEndsIsToldByID(t *testing.T) {
	r := serve(t, nil)
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, nil)
	e, err := k.Seal(rand.Reader, *m, seal.Content{Version: 1, TTL: time.Second, Member: &pb.Member{Node: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	b := r.attend()
	b.enter(k, m)
	b.put(e)
	b.wantAck(1)
	a.change()
	id := m.ID()
	if c := a.change(); len(c.Expired) != 1 || string(c.Expired[0]) != string(id[:]) || len(c.Entries) != 0 {
		t.Errorf("the end is told as %v", c)
	}
}

func TestAWatcherMayStopTalking(t *testing.T) {
	r := serve(t, nil)
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, nil)
	if err := a.CloseSend(); err != nil {
		t.Fatal(err)
	}
	b := r.attend()
	b.enter(k, m)
	b.put(entry(t, k, m, 1))
	if c := a.change(); len(c.Entries) != 1 {
		t.Errorf("%v", c)
	}
}

func TestProofsThatAreRefused(t *testing.T) {
	r := serve(t, nil)
	k, m := newKeys(t), newMember(t)
	for name, c := range map[string]struct {
		edit func(*pb.Proof)
		code string
		as   codes.Code
	}{
		"another version":           {func(p *pb.Proof) { p.Version = 2 }, "version_unsupported", codes.InvalidArgument},
		"no signature":              {func(p *pb.Proof) { p.VerifierSignature = nil }, "", codes.InvalidArgument},
		"another cluster's key":     {func(p *pb.Proof) { p.Verifier = newKeys(t).Verifier() }, "", codes.InvalidArgument},
		"a member who did not sign": {func(p *pb.Proof) { p.Member = newMember(t).Public() }, "", codes.InvalidArgument},
		"one not admitted":          {func(p *pb.Proof) { p.Admission = p.MemberSignature }, "", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.attend()
			a.t = t
			a.prove(k, m, c.edit)
			if got := a.answer().GetRefusal(); got.GetCode() == "" || c.code != "" && got.Code != c.code {
				t.Errorf("the refusal is %v", got)
			}
			a.wantEnd(c.as, "")
		})
	}
	t.Run("of another challenge", func(t *testing.T) {
		var other []byte
		b := r.attend()
		other = b.next().GetChallenge().Nonce
		a := r.attend()
		a.t = t
		a.prove(k, m, func(p *pb.Proof) {
			replayed, err := seal.Prove(k, m, other, "test")
			if err != nil {
				t.Fatal(err)
			}
			replayed.Version = 1
			proto.Reset(p)
			proto.Merge(p, replayed)
		})
		a.wantEnd(codes.InvalidArgument, "")
	})
	for id := range r.board.live {
		t.Errorf("one of them watches %v", id)
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	r := serve(t, nil)
	k, me, other := newKeys(t), newMember(t), newMember(t)
	a := r.attend()
	a.enter(k, me)
	a.put(nil)
	a.wantRefusal("entry_invalid", "there is none")
	a.put(entry(t, k, other, 9)) // signed by the other one, and brought by me
	a.wantRefusal("not_authorized", "another member")
	a.put(k.Remove(*other, 9, time.Minute))
	a.wantRefusal("not_authorized", "another member")
	a.put(entry(t, newKeys(t), me, 9)) // of another cluster
	a.wantRefusal("entry_invalid", "")
	forged := entry(t, k, me, 9)
	forged.Version = 10
	a.put(forged)
	if got := a.wantRefusal("entry_invalid", ""); got.Version != 10 {
		t.Errorf("the refusal is of %d", got.Version)
	}
	large := entry(t, k, me, 9)
	large.Sealed = make([]byte, limit.DiscoverySealed+1)
	a.put(large)
	a.wantRefusal("entry_invalid", "")
	forever := entry(t, k, me, 9)
	forever.Ttl = 1801
	a.put(forever)
	a.wantRefusal("entry_invalid", "")
	good := entry(t, k, me, 9)
	a.put(good)
	a.wantAck(9)
	a.put(good) // the very word, of which the answer may have been lost
	a.wantAck(9)
	a.put(entry(t, k, me, 9)) // another word of the same version
	a.wantRefusal("entry_stale", "version 9 is known")
	a.put(entry(t, k, me, 8)) // a replay
	if got := a.wantRefusal("entry_stale", "version 9 is known"); got.Known != 9 {
		t.Errorf("%v", got)
	}
	watching := r.attend()
	watching.enter(k, nil)
	watching.put(entry(t, k, me, 99))
	watching.wantRefusal("not_authorized", "")
	all, _ := r.attend().enter(k, nil)
	if len(all) != 1 || !proto.Equal(all[0], good) {
		t.Errorf("after all that there is %v", all)
	}
	if _, members, _ := r.board.Counts(); members != 1 {
		t.Errorf("%d members", members)
	}
}

func TestFramesOutOfTurn(t *testing.T) {
	r := serve(t, nil)
	k, m := newKeys(t), newMember(t)
	early := r.attend()
	early.put(entry(t, k, m, 1))
	early.wantEnd(codes.InvalidArgument, "before the proof")
	twice := r.attend()
	twice.enter(k, m)
	twice.send(&pb.FromMember{Frame: &pb.FromMember_Proof{Proof: &pb.Proof{}}})
	twice.wantEnd(codes.InvalidArgument, "a second proof")
	left := r.attend()
	left.CloseSend()
	left.wantEnd(codes.InvalidArgument, "has left")
	// A frame of a newer version is passed over.
	newer := r.attend()
	newer.enter(k, m)
	odd := &pb.FromMember{}
	odd.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	for range 70 { // at the rate of calls: the burst is 60
		newer.send(odd)
	}
	newer.put(entry(t, k, m, 3))
	newer.wantAck(3)
	large := r.attend()
	large.enter(k, m)
	large.put(&pb.Entry{Sealed: make([]byte, discoveryMessage)})
	large.wantEnd(codes.ResourceExhausted, "")
}

func TestUnsettledIsSaid(t *testing.T) {
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.Settle = v1alpha1.Duration{Duration: limit.DiscoverySettle} })
	if _, settled := r.attend().enter(newKeys(t), nil); settled {
		t.Error("a service that began without its state says that it knows who is not there")
	}
}

func TestLargeClustersComeInPieces(t *testing.T) {
	k := newKeys(t)
	id := k.Cluster()
	e, err := proto.Marshal(entry(t, k, newMember(t), 1))
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, nil)
	for i := range 1000 {
		p := Place{Cluster{Native, string(id[:])}, string(rune(i))}
		if err := r.store.Update(context.Background(), p, roster.Update{Data: e, Version: 1, TTL: long}); err != nil {
			t.Fatal(err)
		}
	}
	a := r.attend()
	a.prove(k, nil, nil)
	a.next()
	pieces, n := 0, 0
	for last := false; !last; pieces++ {
		m := a.next()
		last, n = m.GetSnapshot().Last, n+len(m.GetSnapshot().Entries)
		if size := proto.Size(m); size > discoveryPiece {
			t.Errorf("a piece has %d bytes", size)
		}
	}
	if n != 1000 || pieces < 2 {
		t.Errorf("%d entries in %d pieces", n, pieces)
	}
}

// TestProtocolsDoNotMix: no id of the older protocol names a cluster of ours.
func TestProtocolsDoNotMix(t *testing.T) {
	r := serve(t, nil)
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, m)
	a.put(entry(t, k, m, 1))
	a.wantAck(1)
	id := k.Cluster()
	for _, name := range []string{id.String(), string(id[:])} {
		if got := r.board.List(Cluster{Sidero, name}); len(got) != 0 {
			t.Errorf("%v", got)
		}
	}
	if got := r.board.List(Cluster{Native, string(id[:])}); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
