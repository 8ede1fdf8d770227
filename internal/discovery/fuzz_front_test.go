// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// FuzzRealCaller: whatever a header says, the caller is who is connected, or an
// address of the header that is no proxy.
func FuzzRealCaller(f *testing.F) {
	trusted := networks(f, "10.0.0.0/8")
	proxy := netip.MustParseAddrPort("10.0.0.1:5")
	f.Add("192.0.2.7", "198.51.100.1, 192.0.2.7, 10.0.0.3")
	f.Fuzz(func(t *testing.T, single, chain string) {
		at := realCaller(proxy, trusted, forwarded{realIP: []string{single}, chain: []string{chain}})
		if at == proxy {
			return
		}
		if within(trusted, at.Addr()) || !at.Addr().IsValid() || at.Port() != 0 {
			t.Errorf("the caller is %v", at)
		}
		for _, text := range append(strings.Split(chain, ","), single) {
			if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && a.Unmap().WithZone("") == at.Addr() {
				return
			}
		}
		t.Errorf("%v stands in neither %q nor %q", at, single, chain)
	})
}

// FuzzSniff: no byte is lost, and how they come changes nothing.
func FuzzSniff(f *testing.F) {
	f.Add([]byte(preface))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, one := bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))
		a, isA, errA := sniff(whole.Read)
		b, isB, errB := sniff(one.Read)
		if isA != isB || (errA == nil) != (errB == nil) || isA != bytes.HasPrefix(data, []byte(preface)) {
			t.Fatalf("%v %v, %v %v", isA, errA, isB, errB)
		}
		if errA != nil {
			return
		}
		for _, half := range []struct {
			first []byte
			rest  io.Reader
		}{{a, whole}, {b, one}} {
			rest, err := io.ReadAll(half.rest)
			if err != nil || !bytes.Equal(append(half.first, rest...), data) {
				t.Errorf("%q and %q of %q", half.first, rest, data)
			}
		}
	})
}

// FuzzOlderUpdate: an update that is taken is within every bound, and watchers can
// read what becomes of it.
func FuzzOlderUpdate(f *testing.F) {
	seed, err := proto.Marshal(affiliateUpdate("a", "data", "e1", "e2"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r sdr.AffiliateUpdateRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		p, u, err := olderUpdate(&r, limit.DiscoveryEndpoints)
		if err != nil {
			return
		}
		if u.TTL <= 0 || u.TTL > limit.DiscoveryTTL || len(u.Data) > limit.DiscoveryData || len(u.Endpoints) > limit.DiscoveryEndpoints || p.Member == "" {
			t.Fatalf("%+v", u)
		}
		is, _ := roster.Lease{}.Put(time.Now(), u)
		var m sdr.WatchResponse
		if err := proto.Unmarshal(olderChanges([]Listing{{p.Member, is}})[0], &m); err != nil || len(m.Affiliates) != 1 || m.Affiliates[0].Id != p.Member ||
			!bytes.Equal(m.Affiliates[0].Data, u.Data) || len(m.Affiliates[0].Endpoints) != len(is.Endpoints) {
			t.Errorf("%v, %v", &m, err)
		}
	})
}

// FuzzTakeEntry: nobody without the member's key gets an entry onto the board.
func FuzzTakeEntry(f *testing.F) {
	k, m := newKeys(f), newMember(f)
	seed, err := proto.Marshal(entry(f, k, m, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e pb.Entry
		if proto.Unmarshal(data, &e) != nil {
			return
		}
		board, id := NewBoard(Bounds{}), m.ID()
		s := &Service{board: board, store: &Memory{cfg: MemoryConfig{Board: board}}}
		a := attendance{Service: s, who: seal.Proven{Cluster: k.Cluster(), Verifier: k.Verifier(), Member: &id}}
		a.cluster = Cluster{Native, string(a.who.Cluster[:])}
		err := a.take(t.Context(), &e)
		var good pb.Entry
		if proto.Unmarshal(seed, &good) != nil {
			t.Fatal("the seed is damaged")
		}
		e.ProtoReflect().SetUnknown(nil) // nobody signs those: they are bounded, and mean nothing
		if err == nil && !proto.Equal(&e, &good) {
			t.Errorf("%v is taken", &e)
		}
		if _, members, _ := board.Counts(); err != nil && members != 0 {
			t.Errorf("%d members after %v", members, err)
		}
	})
}

// FuzzParseConfig: a file is refused with a place, or makes a service.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(head + "limits: {members: 5}\ntrustedProxies: [10.0.0.0/8]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("x.yaml", data)
		if err != nil {
			if !strings.Contains(err.Error(), "x.yaml:") {
				t.Errorf("no place: %v", err)
			}
			return
		}
		if c.limits.Members < 1 || c.rates.PerSecond < 1 || c.rates.Burst < 1 || c.Settle <= 0 || c.Drain <= 0 || c.Snapshot <= 0 {
			t.Errorf("%+v", c)
		}
	})
}
