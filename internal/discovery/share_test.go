// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func member(cluster, member string) Place { return Place{Cluster{Sidero, cluster}, member} }

// put puts so many bytes of data onto a board, from an address.
func put(b *Board, from string, p Place, size int, ends ...string) error {
	u := roster.Update{Data: bytes.Repeat([]byte("x"), size), TTL: long}
	for _, e := range ends {
		u.Endpoints = append(u.Endpoints, []byte(e))
	}
	at, _ := netip.ParseAddr(from)
	return b.Apply(p, at, func(was roster.Lease) (roster.Lease, roster.Change, error) {
		is, change := was.Put(time.Now(), u)
		return is, change, nil
	})
}

// shared is what each party has: bytes and clusters.
func shared(b *Board) string {
	out := map[string]string{}
	for _, s := range parties(b) {
		out[s.net.addr.String()] = fmt.Sprintf("%d/%d", s.bytes, s.clusters)
	}
	return fmt.Sprint(out)
}

// parties are the shares of parties, without those of the networks around them.
func parties(b *Board) (out []*share) {
	for n, s := range b.shares.of {
		if n.bits == 32 || n.bits == 64 {
			out = append(out, s)
		}
	}
	return out
}

// TestShares: who put a member last has it in its share, and whoever began a
// cluster has that.
func TestShares(t *testing.T) {
	const alone = costCluster + 1
	m := func(n int) int { return costMember + 1 + n }
	b := NewBoard(Bounds{ClustersPerAddress: 2, BytesPerAddress: 10_000})
	want := func(what string, shares map[string]string) {
		t.Helper()
		if got := shared(b); got != fmt.Sprint(shares) {
			t.Fatalf("%s: %s, want %v", what, got, shares)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(put(b, "192.0.2.1", member("a", "1"), 100))
	want("one comes", map[string]string{"192.0.2.1": fmt.Sprintf("%d/1", alone+m(100))})
	must(put(b, "::ffff:192.0.2.1", member("a", "1"), 100))
	must(put(b, "192.0.2.2", member("a", "2"), 200))
	want("another one", map[string]string{"192.0.2.1": fmt.Sprintf("%d/1", alone+m(100)), "192.0.2.2": fmt.Sprintf("%d/0", m(200))})
	must(put(b, "192.0.2.2", member("a", "1"), 300))
	want("it moves", map[string]string{"192.0.2.1": fmt.Sprintf("%d/1", alone), "192.0.2.2": fmt.Sprintf("%d/0", m(200)+m(300))})
	must(put(b, "2001:db8::1", member("a", "2"), 200))
	must(put(b, "2001:db8::2", member("a", "3"), 1))
	want("a site", map[string]string{"192.0.2.1": fmt.Sprintf("%d/1", alone), "192.0.2.2": fmt.Sprintf("%d/0", m(300)), "2001:db8::": fmt.Sprintf("%d/0", m(200)+m(1))})

	// A share that is full: nothing grows in it, and what is there is renewed.
	if err := put(b, "192.0.2.2", member("a", "1"), 10_000-costMember); !fault.Has(err, fault.CodeLimit) || !strings.Contains(fault.From(err).Next, "limits.bytesPerAddress") {
		t.Errorf("beyond the bound: %v", err)
	}
	must(put(b, "192.0.2.2", member("a", "1"), 10_000-costMember-1-1000)) // of one that is there: to the whole bound
	if err := put(b, "192.0.2.2", member("a", "4"), 1); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a new member in the reserve: %v", err)
	}
	must(put(b, "192.0.2.2", member("a", "1"), 10_000-costMember-1))
	must(put(b, "192.0.2.2", member("a", "2"), 200)) // it stays in the share where it was
	if err := put(b, "192.0.2.2", member("a", "2"), 201); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("another's member grows at the cost of that one: %v", err)
	}
	want("full", map[string]string{"192.0.2.1": fmt.Sprintf("%d/1", alone), "192.0.2.2": "10000/0", "2001:db8::": fmt.Sprintf("%d/0", m(200)+m(1))})
	must(put(b, "192.0.2.2", member("a", "1"), 10)) // less is always taken
	must(put(b, "192.0.2.2", member("b", "1"), 10))
	must(put(b, "192.0.2.2", member("c", "1"), 10))
	if err := put(b, "192.0.2.2", member("d", "1"), 10); !fault.Has(err, fault.CodeLimit) || !strings.Contains(fault.From(err).Next, "limits.clustersPerAddress") {
		t.Errorf("a third cluster: %v", err)
	}
	must(put(b, "192.0.2.1", member("d", "1"), 10))
	must(put(b, "", member("e", "1"), 10)) // nobody's
	if got := b.find(Cluster{Sidero, "d"}, false); got.by.net.addr != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("the cluster is of %v", got.by.net)
	}
	b.Expire(time.Now().Add(2 * long))
	want("the end", nil)
	if clusters, members, n := b.Counts(); clusters+members+int(n)+len(b.clusters) != 0 {
		t.Errorf("%d clusters, %d members, %d bytes", clusters, members, n)
	}
}

// TestSharesOfNetworks: a site that uses its /64s or its addresses in turn has not more
// of the service for that, and who is elsewhere has room.
func TestSharesOfNetworks(t *testing.T) {
	const whole, party = 4 << 20, 512 << 10
	for name, c := range map[string]struct {
		from   string
		has    string // in the refusal
		most   int64
		bounds Bounds
	}{
		"/64":           {"2001:db8::%x", "2001:db8::/64 has", party, Bounds{Bytes: whole, BytesPerAddress: party}},
		"/56":           {"2001:db8:0:%x::1", "2001:db8::/56 has", party, Bounds{Bytes: whole, BytesPerAddress: party}},
		"/48":           {"2001:db8:0:%x00::1", "2001:db8::/48 has", 2 * party, Bounds{Bytes: whole, BytesPerAddress: party}},
		"/24":           {"192.0.2.%d", "192.0.2.0/24 has", 2 * party, Bounds{Bytes: whole, BytesPerAddress: party}},
		"a quarter":     {"192.0.2.%d", "192.0.2.0/24 has", whole / 4, Bounds{Bytes: whole, BytesPerAddress: whole / 5}},
		"one is raised": {"192.0.2.%d", "192.0.2.0 has", whole / 2, Bounds{Bytes: whole, BytesPerAddress: whole / 2}},
	} {
		t.Run(name, func(t *testing.T) {
			b, refused := NewBoard(c.bounds), error(nil)
			for n := range 32 {
				for i := 0; ; i++ {
					if err := put(b, fmt.Sprintf(c.from, n), member(fmt.Sprint(n), fmt.Sprint(i)), 2000); err != nil {
						if refused = err; n == 0 && !strings.Contains(c.has, "/") && !strings.Contains(err.Error(), c.has) {
							t.Errorf("%v, want %s", err, c.has)
						}
						break
					}
				}
			}
			if all := b.bytes.Load(); all > admission(c.most) || all < admission(c.most)-3*4000 {
				t.Errorf("%d bytes, want %d", all, admission(c.most))
			}
			if strings.Contains(c.has, "/") && !strings.Contains(refused.Error(), c.has) || !strings.Contains(fault.From(refused).Next, "limits.bytesPerAddress") {
				t.Errorf("%v, want %s", refused, c.has)
			}
			at := fmt.Sprintf(c.from, 0)
			if err := put(b, at, member("0", "0"), 2000); err != nil {
				t.Errorf("what is there is not renewed: %v", err)
			}
			for _, stranger := range []string{"198.51.100.1", "2001:db8:ffff::1"} {
				if err := put(b, stranger, member("honest", stranger), 500); err != nil {
					t.Errorf("another network: %v", err)
				}
			}
			b.Expire(time.Now().Add(2 * long))
			if len(b.shares.of) != 0 {
				t.Errorf("%v is left", b.shares.of)
			}
		})
	}
	b, begun := NewBoard(Bounds{Clusters: 100, ClustersPerAddress: 10}), 0
	for n := range 100 {
		if put(b, fmt.Sprintf("2001:db8:0:%x00::1", n), member(fmt.Sprint(n), "m"), 1) == nil {
			begun++
		}
	}
	if begun != 20 {
		t.Errorf("a /48 began %d clusters", begun)
	}
}

// TestSharesOfWhatOthersTook: a store that tells of another service's word does not
// know from where that came.
func TestSharesOfWhatOthersTook(t *testing.T) {
	b := NewBoard(Bounds{})
	at := netip.MustParseAddr("192.0.2.1")
	b.Follow(member("a", "1"), at, leaseOf("mine"))
	before := shared(b)
	b.Follow(member("a", "1"), netip.Addr{}, leaseOf("mine")) // renewed elsewhere
	if got := shared(b); got != before || !strings.Contains(got, "/1") {
		t.Errorf("%s became %s", before, got)
	}
	b.Follow(member("a", "1"), netip.Addr{}, leaseOf("another's"))
	if got := shared(b); got != fmt.Sprintf("map[192.0.2.1:%d/1]", costCluster+1) {
		t.Error(got)
	}
	if err := b.Admit(member("a", "1"), at, leaseOf("mine again")); err != nil {
		t.Error(err)
	}
	b.Bound(Bounds{BytesPerAddress: 100})
	if err := b.Admit(member("a", "1"), at, leaseOf("mine again")); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("beyond the share: %v", err)
	}
	b.Follow(member("a", "1"), netip.Addr{}, roster.Lease{})
	if len(b.shares.of) != 0 {
		t.Error(shared(b))
	}
}

// TestSharesAfterARestart: a share is as it was, so that nobody has another one after
// each restart.
func TestSharesAfterARestart(t *testing.T) {
	bounds := Bounds{Bytes: 1 << 20, BytesPerAddress: 100 << 10, ClustersPerAddress: 2}
	d, before := newDisk(), ""
	for round := range 9 {
		b := NewBoard(bounds)
		m, err := OpenMemory(quiet(d, b))
		if err != nil {
			t.Fatal(err)
		}
		if got := shared(b); got != before && round > 0 {
			t.Fatalf("round %d: %s was %s", round, got, before)
		}
		for _, at := range []string{"192.0.2.66", "2001:db8::66"} {
			for i := 0; put(b, at, member(at, fmt.Sprint(round, "-", i)), 2000) == nil; i++ {
			}
			for r := range round { // and those of before are put again
				for i := range 50 {
					if p := member(at, fmt.Sprint(r, "-", i)); b.Get(p).Exists() && put(b, at, p, 2000) != nil {
						t.Fatalf("round %d: a member is not renewed", round)
					}
				}
			}
		}
		if clusters, _, all := b.Counts(); clusters != 2 || all > 200<<10 || all < 170<<10 || len(parties(b)) != 2 {
			t.Fatalf("round %d: %d clusters, %d bytes, %s", round, clusters, all, shared(b))
		}
		if before = shared(b); !m.save() {
			t.Fatal("not saved")
		}
	}
}

// TestWhatIsNobodys counts with whoever puts it next, beyond his bound, too: then
// nothing else of his is taken.
func TestWhatIsNobodys(t *testing.T) {
	b := NewBoard(Bounds{BytesPerAddress: 4000})
	b.Follow(member("a", "1"), netip.Addr{}, leaseOf(strings.Repeat("x", 3000))) // of another service
	if err := put(b, "192.0.2.1", member("a", "2"), 2000); err != nil || len(parties(b)) != 1 {
		t.Fatal(err, shared(b))
	}
	if err := put(b, "192.0.2.1", member("a", "1"), 3001); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("it grows: %v", err)
	}
	if err := put(b, "192.0.2.1", member("a", "1"), 3000); err != nil {
		t.Error(err)
	}
	if got, want := shared(b), fmt.Sprintf("map[192.0.2.1:%d/0]", 2*costMember+2+5000); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := put(b, "192.0.2.1", member("a", "3"), 0); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("one more: %v", err)
	}
}

// TestSharesAgreeWithTheBoard however many addresses change the same members at
// the same time.
func TestSharesAgreeWithTheBoard(t *testing.T) {
	b := NewBoard(Bounds{Clusters: 20, Bytes: 60_000, ClustersPerAddress: 12, BytesPerAddress: 20_000})
	g := run.NewGroup(t.Context())
	for n := range 8 {
		g.Do(func(context.Context) {
			for i := range 2000 {
				p := member(strconv.Itoa(i*(n+1)%23), strconv.Itoa(i%5))
				from := [...]string{"192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:101::1", "2001:db8:1::1"}[(n+i)%7]
				put(b, from, p, i*37%700, strconv.Itoa(i%3)) // refused or not
				if i%11 == 0 {
					set(b, p, "", 0)
				}
				if i%500 == 0 {
					b.Expire(time.Now().Add(2 * long))
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var all int64
	clusters, want := 0, map[area]share{}
	count := func(by *share, bytes int64, clusters int) {
		for ; by != nil; by = by.up {
			s := want[by.net]
			s.bytes, s.clusters = s.bytes+bytes, s.clusters+clusters
			want[by.net] = s
		}
	}
	for id, c := range b.live {
		all, clusters = all+c.weight, clusters+1
		count(c.by, c.weight, 1)
		for m, l := range c.members {
			n := weight(m, l.Lease)
			all += n
			count(l.by, n, 0)
		}
		if len(c.members) == 0 {
			t.Errorf("cluster %v is empty", id)
		}
	}
	got := map[area]share{}
	for n, s := range b.shares.of {
		got[n] = share{bytes: s.bytes, clusters: s.clusters}
	}
	if n, _, bytes := b.Counts(); !maps.Equal(got, want) || n != clusters || bytes != all+int64(costShare*len(got)) || clusters == 0 {
		t.Errorf("%d clusters, %d bytes, %v; want %d, %d, %v", n, bytes, got, clusters, all, want)
	}
}

// from is a client with an address of its own.
func (r *rig) from(ip string) sdr.ClusterClient { return sdr.NewClusterClient(r.dialFrom(ip)) }

func (r *rig) dialFrom(ip string) *grpc.ClientConn {
	return r.dial(nil, grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext(ctx, "tcp", at)
	}))
}

// putFrom puts a native entry of a cluster of its own from an address.
func (r *rig) putFrom(ip string) attending {
	r.t.Helper()
	s, err := pb.NewDiscoveryClient(r.dialFrom(ip)).Attend(runtest.Within(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	a, k, m := attending{s, r.t}, newKeys(r.t), newMember(r.t)
	a.prove(k, m, nil)
	a.put(entry(r.t, k, m, 1))
	return a
}

// TestAStrangerHarmsNobodyElse: one address that takes all it can get, in bytes,
// in clusters and in watches of clusters that are none, leaves room for others.
func TestAStrangerHarmsNobodyElse(t *testing.T) {
	fifty, many := 50, 100_000
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.Limits.Bytes, c.Limits.BytesPerAddress, c.Limits.Clusters = 1<<20, 1<<18, &fifty
		c.Rates.Burst = &many
	})
	victim, stranger := r.from("127.0.9.9"), r.from("127.0.0.2")
	as := func(cluster, member string, size int) *sdr.AffiliateUpdateRequest {
		u := affiliateUpdate(member, strings.Repeat("x", size))
		u.ClusterId = cluster
		return u
	}
	mustUpdate(t, victim, as("honest", "v", 300))
	for i := range 2 * fifty {
		w, err := stranger.Watch(runtest.Within(t), &sdr.WatchRequest{ClusterId: fmt.Sprint("watched", i)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	flood := func(key string, next func(i int) *sdr.AffiliateUpdateRequest) {
		t.Helper()
		for i := range 10_000 {
			if _, err := stranger.AffiliateUpdate(runtest.Within(t), next(i)); err != nil {
				wantCode(t, err, codes.ResourceExhausted, key)
				return
			}
		}
		t.Fatalf("nothing bounds %s", key)
	}
	flood("limits.clustersPerAddress", func(i int) *sdr.AffiliateUpdateRequest { return as(fmt.Sprint("squat", i), "a", 1) })
	flood("limits.bytesPerAddress", func(i int) *sdr.AffiliateUpdateRequest { return as("squat0", fmt.Sprint(i), 2000) })
	flood("limits.bytesPerAddress", func(i int) *sdr.AffiliateUpdateRequest { return as("squat0", fmt.Sprint(i), 2048) }) // grows what is there
	r.putFrom("127.0.0.2").wantRefusal("limit_reached", "127.0.0.2")
	r.putFrom("127.0.9.9").wantAck(1)
	mustUpdate(t, victim, as("honest", "v", 300))
	mustUpdate(t, victim, as("honest", "v", 2048))
	mustUpdate(t, victim, as("honest", "w", 2048))
	mustUpdate(t, victim, as("new", "v", 2048))
	mustUpdate(t, r.from("127.0.10.10"), as("another", "v", 2048))
}
