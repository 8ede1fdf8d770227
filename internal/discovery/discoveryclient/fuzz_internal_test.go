// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"encoding/base64"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// victim is a client whose service says whatever a fuzzer likes.
type victim struct {
	*subscription
	sent  []*discovery.FromMember
	known seal.MemberKey // a member that was heard of before
	entry *discovery.Entry
}

func fixedSecret(t testing.TB, c byte) seal.Secret {
	s, err := seal.ParseSecret(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(c), 32))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fixedKey(t testing.TB, c byte) seal.MemberKey {
	k, err := seal.ParseMemberKey(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(c), 32))))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// victimAt is that client at a fixed time, so that inputs mean the same each time.
func victimAt(t testing.TB, now time.Time) *victim {
	secret := fixedSecret(t, 's')
	keys := secret.Keys()
	self := newAnnouncer(fixedKey(t, 'm'), []seal.Keys{keys}, limit.DiscoveryTTL, 0)
	if err := self.announce(now, member.Facts{Node: "me"}); err != nil {
		t.Fatal(err)
	}
	v := &victim{known: fixedKey(t, 'k'), subscription: &subscription{
		subscriptionParts: subscriptionParts{
			news: newNews(), self: self, native: newNativeBook(), nativeServices: &nativeServices{},
			log: slog.New(slog.DiscardHandler), metrics: telemetry.NewDiscoveryClient(prometheus.NewRegistry()),
		},
		service: Service{Name: "svc", place: place{secure: true, host: "svc", address: "svc:443"}}, keys: keys,
		older: newOlderBook("svc", "cluster", secret.Sidero()),
		taken: make(chan struct{}, 1), left: make(chan struct{}),
	}}
	v.entry = entryOf(t, keys, v.known, seal.Content{Version: 100, TTL: time.Minute, Member: seal.Message(member.Facts{Node: "known"})})
	if _, how, err := v.native.hear(now, keys, heardFrom{name: "svc", at: now}, v.entry); how != heardNews {
		t.Fatal(err)
	}
	return v
}

func entryOf(t testing.TB, keys seal.Keys, by seal.MemberKey, c seal.Content) *discovery.Entry {
	e, err := keys.Seal(strings.NewReader("0123456789ab"), by, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// stream takes what the client sends.
type sink struct {
	grpc.BidiStreamingClient[discovery.FromMember, discovery.FromService]
	v *victim
}

func (s sink) Send(m *discovery.FromMember) error {
	s.v.sent = append(s.v.sent, m)
	return nil
}

// nativeFrames are what services send, good and bad.
func nativeFrames(t testing.TB) (out [][]byte) {
	v := victimAt(t, time.Unix(1e9, 0))
	strange := fixedSecret(t, 'x').Keys()
	other, me := fixedKey(t, 'o'), fixedKey(t, 'm')
	says := seal.Message(member.Facts{Node: "other"})
	good := entryOf(t, v.keys, other, seal.Content{Version: 7, TTL: time.Minute, Member: says})
	next := entryOf(t, v.keys, other, seal.Content{Version: 8, TTL: time.Minute, Member: says, Succession: v.keys.Succeed(v.known, other.ID())})
	forged := proto.Clone(next).(*discovery.Entry)
	forged.Succession.Signature[3] ^= 1
	bad := entryOf(t, v.keys, other, seal.Content{Version: 7, TTL: time.Minute, Member: &discovery.Member{Hostname: "no node"}})
	for _, f := range []*discovery.FromService{
		{}, {Frame: &discovery.FromService_Challenge{Challenge: &discovery.Challenge{Nonce: make([]byte, 32), VersionMin: 1, VersionMax: 1}}},
		{Frame: &discovery.FromService_Welcome{Welcome: &discovery.Welcome{ObservedIp: []byte{1, 2, 3}, ObservedPort: 70000, TtlMax: 1, SealedMax: 1 << 31}}},
		{Frame: &discovery.FromService_Snapshot{Snapshot: &discovery.Snapshot{Entries: []*discovery.Entry{good, v.entry, bad}, Last: true, Settled: true}}},
		change(entryOf(t, v.keys, v.known, seal.Content{Version: 101, TTL: time.Minute, Member: seal.Message(member.Facts{Node: "known"})})), // its lease alone is another
		change(next), change(forged), change(good, good, v.keys.Remove(v.known, 101, time.Minute), v.keys.Remove(other, lastVersionEver, time.Minute)),
		change(entryOf(t, strange, other, seal.Content{Version: 7, TTL: time.Minute, Member: says}), &discovery.Entry{}, nil),
		change(entryOf(t, v.keys, me, seal.Content{Version: 1 << 60, TTL: time.Minute, Member: says}), v.keys.Remove(me, lastVersionEver, time.Minute)),
		{Frame: &discovery.FromService_Change{Change: &discovery.Change{Expired: [][]byte{nil, {1}, make([]byte, 32)}}}},
		{Frame: &discovery.FromService_Ack{Ack: &discovery.Ack{Version: 1}}},
		refusal("entry_stale", 1, 1<<63), refusal("", 0, 0), {Frame: &discovery.FromService_Drain{Drain: &discovery.Drain{Reason: "\x1b[2J"}}},
	} {
		raw, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// FuzzNativeFrame gives a client one frame of a service, before and after it was
// welcomed: nothing that is not signed gets into the book, and nothing leaves it.
func FuzzNativeFrame(f *testing.F) {
	for i, raw := range nativeFrames(f) {
		f.Add(byte(i), raw)
	}
	f.Fuzz(func(t *testing.T, stage byte, raw []byte) {
		frame := new(discovery.FromService)
		if proto.Unmarshal(raw, frame) != nil {
			return
		}
		now := time.Now()
		v := victimAt(t, now)
		before, _ := v.self.current()
		s := &session{ready: make(chan struct{}), drained: make(chan struct{}), done: make(chan struct{})}
		a := &attending{c: v.subscription, s: s, stream: sink{v: v}, as: before.id.key, next: time.NewTimer(time.Hour)}
		defer a.next.Stop()
		a.proven, a.welcome, a.listed = stage&1 != 0, stage&2 != 0, stage&4 != 0
		a.sent = uint64(stage>>3) * before.version
		for range 2 { // the same again does no more
			if err := a.take(frame); err != nil {
				break
			}
		}
		if len(v.sent) > 1 {
			t.Errorf("%d frames are sent", len(v.sent))
		}
		entries := append(frame.GetSnapshot().GetEntries(), frame.GetChange().GetEntries()...)
		if n := len(v.native.members); n > 1+len(entries) {
			t.Errorf("%d members of %d entries", n, len(entries))
		}
		for id, w := range v.native.members {
			got, message, err := v.keys.Open(w.entry)
			if err != nil || got != id {
				t.Fatalf("the book holds what nobody signed: %v", err)
			}
			if !w.entry.GetRemoved() {
				if _, err := seal.ParseMember(message); err != nil {
					t.Errorf("the book holds a member that is none: %v", err)
				}
			}
			if size := proto.Size(w.entry); size > limit.DiscoverySealed+limit.DiscoveryUnknown+1024 {
				t.Errorf("an entry of %d bytes is kept", size)
			}
			longest := limit.DiscoveryTTL
			if w.entry.GetRemoved() {
				longest = removalCounts
			}
			if w.until.After(now.Add(longest + time.Minute)) {
				t.Errorf("a lease until %v", w.until)
			}
		}
		if w := v.native.members[v.known.ID()]; w == nil || w.entry.GetVersion() < v.entry.GetVersion() {
			t.Error("what was known is gone")
		}
		if after, _ := v.self.current(); after.version > uint64(now.Add(versionAhead).UnixNano())+2 && !anySigned(v, before.id.key.ID(), entries) {
			t.Errorf("a version of ours is %d by a service's word", after.version)
		}
		v.native.said(now)
	})
}

// anySigned reports whether one of the entries is of a member.
func anySigned(v *victim, id seal.MemberID, entries []*discovery.Entry) bool {
	for _, e := range entries {
		if got, err := seal.Verify(v.keys.Cluster(), v.keys.Verifier(), e); err == nil && got == id {
			return true
		}
	}
	return false
}

// The messages of the older protocol.
const (
	olderFirst = iota
	olderNews
	olderList
	olderHello
	olderMessages
)

// FuzzOlderMessage gives a client one answer of a service of the older protocol.
func FuzzOlderMessage(f *testing.F) {
	key := fixedSecret(f, 's').Sidero()
	data, err := key.SealData(strings.NewReader("0123456789ab"), seal.Affiliate(member.Facts{Node: "b"}))
	if err != nil {
		f.Fatal(err)
	}
	at, err := key.SealEndpoint(netip.MustParseAddrPort("192.0.2.1:51820"))
	if err != nil {
		f.Fatal(err)
	}
	good := &pb.Affiliate{Id: "b", Data: data, Endpoints: [][]byte{at, at, nil, {1}, make([]byte, 33)}}
	for kind, all := range map[byte][]proto.Message{
		olderFirst: {&pb.WatchResponse{}, &pb.WatchResponse{Affiliates: []*pb.Affiliate{good, {Id: "c", Data: data}, {}, {Id: strings.Repeat("x", 300), Data: data}}}},
		olderNews: {&pb.WatchResponse{Affiliates: []*pb.Affiliate{good}}, &pb.WatchResponse{Deleted: true, Affiliates: []*pb.Affiliate{{Id: "known"}, {Id: "me"}}},
			&pb.WatchResponse{Affiliates: []*pb.Affiliate{{Id: "known", Data: []byte("junk"), Endpoints: make([][]byte, 1000)}}}},
		olderList: {&pb.ListResponse{Affiliates: []*pb.Affiliate{good}}},
		olderHello: {&pb.HelloResponse{ClientIp: []byte{1}, Redirect: &pb.RedirectMessage{Endpoint: "http://elsewhere"}},
			&pb.HelloResponse{ClientIp: make([]byte, 16), Redirect: &pb.RedirectMessage{Endpoint: "[::1]:70000"}}},
	} {
		for _, m := range all {
			raw, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(kind, raw)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		v, now := victimAt(t, time.Now()), time.Now()
		mine, err := v.older.key.SealData(strings.NewReader("ba9876543210"), seal.Affiliate(member.Facts{Node: "known"}))
		if err != nil {
			t.Fatal(err)
		}
		v.older.snapshot(now, []*pb.Affiliate{{Id: "known", Data: mine}})
		w := &watching{c: v.subscription}
		said := 0
		switch kind % olderMessages {
		case olderFirst, olderNews:
			r := new(pb.WatchResponse)
			if proto.Unmarshal(raw, r) != nil {
				return
			}
			w.hear(r, kind%olderMessages == olderFirst)
			w.hear(r, false)
			said = len(r.GetAffiliates())
		case olderList:
			r := new(pb.ListResponse)
			if proto.Unmarshal(raw, r) != nil {
				return
			}
			v.older.settle(now, r.GetAffiliates())
			said = len(r.GetAffiliates())
		case olderHello:
			r := new(pb.HelloResponse)
			if proto.Unmarshal(raw, r) != nil {
				return
			}
			if to, err := follow(v.service.place, r.GetRedirect().GetEndpoint(), 0); err == nil && (!to.secure || to.address == "") {
				t.Errorf("it follows to %v", to)
			}
			if ip, err := seal.ParseAddr(r.GetClientIp()); err == nil && !ip.IsValid() {
				t.Error("an address that is none")
			}
		}
		if n := len(v.older.members); n > 1+said {
			t.Errorf("%d members of %d that were said", n, said)
		}
		for id, m := range v.older.members {
			if _, err := v.older.open(id, m.data); err != nil {
				t.Errorf("the book holds %q, which cannot be read: %v", id, err)
			}
			size := len(id) + len(m.data)
			for _, e := range m.endpoints {
				size += len(e)
			}
			if most := limit.DiscoveryID + limit.DiscoveryData + limit.RosterEndpoints*limit.DiscoveryEndpoint; size > most || len(m.endpoints) > limit.RosterEndpoints {
				t.Errorf("%d bytes of one member are kept, with %d endpoints", size, len(m.endpoints))
			}
		}
		if v.older.members["known"] == nil {
			t.Error("what was known is gone")
		}
		v.older.said(now)
	})
}
