// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// affiliate is what a Talos node would push.
func affiliate(t *testing.T, secret, id, node string) *pb.Affiliate {
	t.Helper()
	key := secretOf(t, secret).Sidero()
	m := member.Facts{Node: node, Hostname: node + ".example", Role: member.RoleWorker, Key: member.Key(keyOf(node))}
	data, err := key.SealData(rand.Reader, seal.Affiliate(m))
	if err != nil {
		t.Fatal(err)
	}
	at, err := key.SealEndpoint(netip.MustParseAddrPort("192.0.2.9:51820"))
	if err != nil {
		t.Fatal(err)
	}
	return &pb.Affiliate{Id: id, Data: data, Endpoints: [][]byte{at}}
}

func older(w *world, secret, name string) *node {
	return w.start(setup{name: name, id: "cluster", secrets: []string{secret}, services: []v1alpha1.MeshService{sidero("one")}})
}

// TestOlderMembersFindEachOther, and what is pushed is what the protocol wants.
func TestOlderMembersFindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		b := older(w, secret, "b")
		defer b.stop()
		a.knows(settle, "b")
		b.knows(0, "a")
		m := b.member("a")
		if m.Key != keyOf("a") || len(m.Endpoints) != 1 || m.Tier != roster.TierOlder {
			t.Errorf("b knows of a: %+v", m)
		}
		svc.with(func() {
			u := svc.updates[0]
			if u.GetClusterId() != "cluster" || len(u.GetAffiliateData()) > limit.DiscoveryData || len(u.GetAffiliateEndpoints()) != 1 ||
				len(u.GetAffiliateEndpoints()[0]) != 16 || u.GetTtl().GetSeconds() != 1800 {
				t.Errorf("the update is %v", u)
			}
		})
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolSidero || s.Observed.Addr().String() != "192.0.2.78" || s.Members != 2 {
			t.Errorf("the status is %+v", s)
		}
		next := a.cfg.Announce
		next.Hostname = "another"
		if err := a.Announce(next); err != nil {
			t.Fatal(err)
		}
		b.knows(settle, "a")
		if got := b.member("a").Hostname; got != "another" {
			t.Errorf("the host name is %q", got)
		}
		if err := a.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		svc.with(func() {
			if len(svc.deletes) != 1 || svc.deletes[0] != "a" {
				t.Errorf("deleted: %v", svc.deletes)
			}
		})
		b.knows(removalGrace + settle)
	})
}

// TestOlderRefresh: each half lease, on change, with equal bytes for equal content.
func TestOlderRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		time.Sleep(time.Hour + settle)
		synctest.Wait()
		svc.with(func() {
			if len(svc.at) != 5 {
				t.Fatalf("%d updates in an hour and a moment, want 5", len(svc.at))
			}
			for i := range svc.at[1:] {
				if d := svc.at[i+1].Sub(svc.at[i]); d != limit.DiscoveryTTL/2 {
					t.Errorf("%v between two updates", d)
				}
				if string(svc.updates[i].GetAffiliateData()) != string(svc.updates[i+1].GetAffiliateData()) {
					t.Error("a renewal has other bytes: it wakes everybody")
				}
			}
		})
	})
}

// TestOlderEmptyListWipesNobody: away, back and empty; members live for 30 minutes
// after they were listed last, and as long as a live service lists them.
func TestOlderEmptyListWipesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		svc.members["b"] = affiliate(t, secret, "b", "b")
		end := w.serve("one:80", svc.register)
		a := older(w, secret, "a")
		defer a.stop()
		a.knows(5*time.Hour, "b") // the service says nothing of renewals
		end()
		a.knows(20*time.Minute, "b")
		empty := newSideroFake()
		defer w.serve("one:80", empty.register)()
		a.knows(9*time.Minute, "b")
		if a.Status()[0].State != StateAttending {
			t.Errorf("the status is %+v", a.Status()[0])
		}
		a.knows(2 * time.Minute)
	})
}

// TestOlderRemovals are believed when a list a minute later lacks the member.
func TestOlderRemovals(t *testing.T) {
	gone := func(id string) *pb.WatchResponse {
		return &pb.WatchResponse{Affiliates: []*pb.Affiliate{{Id: id}}, Deleted: true}
	}
	for name, tc := range map[string]struct {
		then   func(svc *sideroFake, b *pb.Affiliate)
		before bool // known until the grace is over
		after  bool
	}{
		"of one that is gone":                         {func(svc *sideroFake, _ *pb.Affiliate) { svc.remove("b") }, true, false},
		"of one that is listed (an endpoint ran out)": {func(svc *sideroFake, _ *pb.Affiliate) { svc.say(gone("b")) }, true, true},
		"of one that comes back": {func(svc *sideroFake, b *pb.Affiliate) {
			svc.remove("b")
			svc.members["b"] = b
			svc.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{b}})
		}, true, true},
		"of nobody": {func(svc *sideroFake, _ *pb.Affiliate) { svc.say(gone("nobody")); svc.say(gone("")) }, true, true},
		"again and again": {func(svc *sideroFake, _ *pb.Affiliate) {
			for range 50 {
				svc.remove("b")
			}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				svc := newSideroFake()
				b := affiliate(t, secret, "b", "b")
				svc.members["b"] = b
				defer w.serve("one:80", svc.register)()
				a := older(w, secret, "a")
				defer a.stop()
				a.knows(settle, "b")
				svc.with(func() { tc.then(svc, b) })
				for after, want := range map[time.Duration]bool{removalGrace - time.Second: tc.before} {
					time.Sleep(after)
					synctest.Wait()
					if known := a.member("b") != nil; known != want {
						t.Errorf("after %v known: %v", after, known)
					}
				}
				time.Sleep(2 * settle)
				synctest.Wait()
				if known := a.member("b") != nil; known != tc.after {
					t.Errorf("after the grace known: %v", known)
				}
			})
		})
	}
}

// TestWhoIsRemovedComesBack: anybody may delete us; we announce ourselves again
// within the others' grace.
func TestWhoIsRemovedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		b := older(w, secret, "b")
		defer b.stop()
		a.knows(settle, "b")
		svc.with(func() { svc.remove("b") })
		a.knows(removalGrace+settle, "b")
		svc.with(func() {
			if svc.members["b"] == nil {
				t.Error("b did not come back")
			}
		})
	})
}

// TestOlderJunk: what cannot be read is counted, and harms nobody.
func TestOlderJunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, other := newWorld(t), newSecret(t), newSecret(t)
		svc := newSideroFake()
		b := affiliate(t, secret, "b", "b")
		b.Endpoints = append([][]byte{nil, {}, make([]byte, 16), make([]byte, 17), make([]byte, 64)}, b.Endpoints...)
		svc.members["b"] = b
		svc.members["x"] = affiliate(t, secret, "x", "b") // b's data under another id
		svc.members["y"] = affiliate(t, other, "y", "y")  // another cluster's, with its endpoint
		svc.members["z"] = &pb.Affiliate{Id: "z", Data: []byte("junk")}
		svc.members["e"] = &pb.Affiliate{Id: "e", Endpoints: b.Endpoints} // has not said who it is
		svc.members[""] = affiliate(t, secret, "", "")
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		a.knows(settle, "b")
		if s := a.Status()[0]; s.Junk != 5+5 || s.State != StateAttending {
			t.Errorf("the status is %+v", s)
		}
		// Junk for a member that is known leaves what is known.
		svc.with(func() {
			svc.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{{Id: "b", Data: []byte("junk"), Endpoints: [][]byte{nil}}, nil}})
			svc.say(&pb.WatchResponse{})
		})
		a.knows(settle, "b")
		if m := a.member("b"); m.Hostname != "b.example" || len(m.Endpoints) != 1 {
			t.Errorf("a knows of b: %+v", m)
		}
	})
}

// TestRedirects are followed a few times, and never out of TLS.
func TestRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		one, two := newSideroFake(), newSideroFake()
		one.redirect = "two:8080"
		defer w.serve("one:80", one.register)()
		defer w.serve("two:8080", two.register)()
		a := older(w, secret, "a")
		defer a.stop()
		time.Sleep(settle)
		synctest.Wait()
		if len(one.updates) != 0 || len(two.updates) != 1 || a.Status()[0].State != StateAttending {
			t.Errorf("%d updates at the first, %d at the second: %+v", len(one.updates), len(two.updates), a.Status()[0])
		}
		a.stop()
		two.with(func() { two.redirect = "http://one" }) // in a ring
		b := older(w, secret, "b")
		defer b.stop()
		time.Sleep(settle)
		synctest.Wait()
		if s := b.Status()[0]; s.State != StateAway || s.Code != fault.CodeServiceAway {
			t.Errorf("the status in a ring is %+v", s)
		}
	})
}

func TestFollow(t *testing.T) {
	secure, open := place{secure: true, host: "a", address: "a:443"}, place{host: "a", address: "a:80"}
	for _, tc := range []struct {
		from place
		to   string
		hops int
		want string // empty: refused
	}{
		{secure, "b:8443", 0, "https://b:8443"},
		{secure, "b", 0, "https://b:443"},
		{secure, "https://b", 2, "https://b:443"},
		{secure, "https://b", 3, ""},
		{secure, "http://b", 0, ""},
		{open, "http://b", 0, "http://b:80"},
		{open, "https://b", 0, "https://b:443"},
		{open, "[2001:db8::1]:99", 0, "http://[2001:db8::1]:99"},
		{secure, "https://user:word@b", 0, ""},
		{secure, "ftp://b", 0, ""},
		{secure, "b:99999", 0, ""},
		{secure, "unix:///run/x", 0, ""},
		{secure, "b/path", 0, ""},
		{secure, "\x00", 0, ""},
	} {
		got, err := follow(tc.from, tc.to, tc.hops)
		if tc.want == "" && !fault.Has(err, fault.CodeServiceAway) || tc.want != "" && (err != nil || got.String() != tc.want) {
			t.Errorf("%v to %q after %d: %v, %v", tc.from, tc.to, tc.hops, got, err)
		}
	}
}

// TestObservationsAreReported: where we see a member is pushed as an endpoint of that member.
func TestObservationsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		svc.members["b"] = affiliate(t, secret, "b", "b")
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		a.knows(settle, "b")
		seen := netip.MustParseAddrPort("198.51.100.7:4242")
		next := a.cfg.Announce
		next.Observed = []member.Observation{{Key: keyOf("b"), Addr: seen}, {Key: keyOf("nobody"), Addr: seen}}
		if err := a.Announce(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle)
		synctest.Wait()
		svc.with(func() {
			u := svc.updates[len(svc.updates)-1]
			if len(svc.updates) != 3 || u.GetAffiliateId() != "b" || u.AffiliateData != nil || len(u.GetAffiliateEndpoints()) != 1 {
				t.Fatalf("%d updates, the last %v", len(svc.updates), u)
			}
			if at, err := secretOf(t, secret).Sidero().OpenEndpoint(u.GetAffiliateEndpoints()[0]); err != nil || at != seen {
				t.Errorf("the endpoint is %v, %v", at, err)
			}
		})
		if n := len(a.member("b").Endpoints); n != 2 {
			t.Errorf("b has %d endpoints", n)
		}
	})
}

// TestTooMuchForTheOlderProtocol is said, and the members are still heard of.
func TestTooMuchForTheOlderProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newSideroFake()
		svc.members["b"] = affiliate(t, secret, "b", "b")
		defer w.serve("one:80", svc.register)()
		a := w.start(setup{name: "a", id: "cluster", secrets: []string{secret}, services: []v1alpha1.MeshService{sidero("one")},
			member: func(m *v1alpha1.MeshAnnounce) {
				for i := range 200 {
					m.Ranges = append(m.Ranges, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(i)}), 64).String())
				}
			}})
		defer a.stop()
		a.knows(settle, "b")
		if s := a.Status()[0]; s.Refused == "" || s.State != StateAttending || len(svc.updates) != 0 {
			t.Errorf("the status is %+v after %d updates", s, len(svc.updates))
		}
	})
}

// TestAListThatIsTooLarge, of a removal in a cluster of 10,000: what is within our
// bound settles it; what is not ends no session, and leaves it to the lease.
func TestAListThatIsTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		pad   int // bytes that each member has more
		gone  time.Duration
		still time.Duration
	}{
		"5 MiB":  {0, removalGrace + settle, removalGrace - time.Minute/2},
		"20 MiB": {1700, limit.DiscoveryTTL + settle, limit.DiscoveryTTL - time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				svc := newSideroFake()
				for i := range 10_000 {
					// The bytes are no member's: only their size counts here.
					id := fmt.Sprintf("%05d", i)
					svc.members[id] = &pb.Affiliate{Id: id, Data: make([]byte, 500+tc.pad)}
				}
				svc.members["b"] = affiliate(t, secret, "b", "b")
				svc.split = 1000
				defer w.serve("one:80", svc.register)()
				a := older(w, secret, "a")
				defer a.stop()
				a.knows(settle, "b")
				svc.with(func() { svc.remove("b") })
				at := time.Now()
				a.knows(tc.still, "b")
				a.knows(tc.gone - time.Since(at))
				if s := a.Status()[0]; s.State != StateAttending || s.Errors != 0 || svc.lists != 1 {
					t.Errorf("after %d lists the status is %+v", svc.lists, s)
				}
			})
		})
	}
}
