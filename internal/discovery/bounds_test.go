// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestTheReserve: of the last tenth new members get nothing, and those that are
// there have it to grow.
func TestTheReserve(t *testing.T) {
	b := NewBoard(Bounds{Bytes: 10_000})
	for n, err := 0, error(nil); err == nil; n++ {
		err = put(b, "", member("a", fmt.Sprintf("%03d", n)), 0)
	}
	if _, _, all := b.Counts(); all > 9000 || all < 9000-costMember-3 {
		t.Fatalf("%d bytes", all)
	}
	if err := put(b, "", member("a", "000"), 900); err != nil {
		t.Error(err)
	}
	if err := put(b, "", member("a", "001"), 900); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("beyond all: %v", err)
	}
}

// TestBytesAreMemory: what is counted is what the heap grows by, of the smallest
// things too, so that the bound is one.
func TestBytesAreMemory(t *testing.T) {
	one := func(i, j int) netip.Addr { return netip.AddrFrom4([4]byte{1, byte(i), byte(j)}) }
	for name, c := range map[string]struct {
		clusters, members, endpoints, data int
		from                               func(i, j int) netip.Addr
	}{
		"clusters":           {20_000, 1, 0, 0, one},
		"members":            {50, 1000, 0, 0, one},
		"members, few":       {2000, 10, 0, 0, one},
		"endpoints":          {200, 10, 64, 0, one},
		"an endpoint, often": {200, 100, 1, 0, one},
		"typical":            {100, 100, 3, 600, one},
		"the largest":        {10, 100, 64, 2048, one},
		"each from a /24":    {50, 1000, 0, 0, func(i, j int) netip.Addr { return netip.AddrFrom4([4]byte{byte(i), byte(j >> 8), byte(j)}) }},
		"each from a /48": {50, 1000, 0, 0, func(i, j int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0, byte(i), byte(j >> 8), byte(j)})
		}},
		"clusters of a /48": {20_000, 1, 0, 0, func(i, _ int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBoard(Bounds{})
			before := heap()
			for i := range c.clusters {
				for j := range c.members {
					u := roster.Update{TTL: long}
					if c.data > 0 {
						u.Data = make([]byte, c.data)
					}
					for e := range c.endpoints {
						u.Endpoints = append(u.Endpoints, []byte{byte(e)})
					}
					err := b.Apply(member(strconv.Itoa(i), strconv.Itoa(j)), c.from(i, j), func(was roster.Lease) (roster.Lease, roster.Change, error) {
						is, change := was.Put(time.Now(), u)
						return is, change, nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			grown := heap() - before
			_, n, counted := b.Counts()
			t.Logf("%d members: %d counted, %d of heap, %d each: %.2f", n, counted, grown, grown/int64(n), float64(counted)/float64(grown))
			if counted*10 < grown*8 {
				t.Errorf("%d bytes are counted, and the heap grew by %d", counted, grown)
			}
			runtime.KeepAlive(b)
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestRemovalsTakeNoMembersPlace: a cluster that is nearly full changes all its keys,
// each successor being there before its predecessor goes; and removals have a bound.
func TestRemovalsTakeNoMembersPlace(t *testing.T) {
	const most = 8
	b := NewBoard(Bounds{Members: most})
	at := func(name string, i int) Place { return Place{Cluster{Native, "c"}, fmt.Sprint(name, i)} }
	remove := func(p Place) error {
		return b.Apply(p, netip.MustParseAddr("192.0.2.1"), func(was roster.Lease) (roster.Lease, roster.Change, error) {
			is, change := was.Put(time.Now(), roster.Update{Data: []byte("removal"), Removed: true, Version: 9, TTL: long})
			return is, change, nil
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, what string) {
		t.Helper()
		if !fault.Has(err, fault.CodeLimit) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	for i := range most - 1 {
		must(put(b, "192.0.2.1", at("old", i), 10))
	}
	for i := range most - 1 {
		must(put(b, "192.0.2.1", at("new", i), 10))
		if i == 0 {
			refused(put(b, "192.0.2.1", at("more", 0), 10), "8 members")
		}
		must(remove(at("old", i)))
	}
	must(put(b, "192.0.2.1", at("last", 0), 10))
	must(remove(at("never was", 0)))
	must(remove(at("never was", 0)))
	refused(remove(at("never was", 1)), "8 removals")
	refused(remove(at("last", 0)), "8 removals")
	refused(b.Admit(at("last", 0), netip.Addr{}, roster.Lease{Removed: true, Expires: time.Now().Add(long)}), "8 removals")
	u := roster.Update{Data: []byte("back"), Version: 10, TTL: long}
	back := func(was roster.Lease) (roster.Lease, roster.Change, error) {
		is, change := was.Put(time.Now(), u)
		return is, change, nil
	}
	refused(b.Apply(at("old", 0), netip.Addr{}, back), "8 members")
	b.Bound(Bounds{Members: most + 1})
	must(b.Apply(at("old", 0), netip.Addr{}, back))
	must(remove(at("last", 0)))
	if _, n, _ := b.Counts(); n != most {
		t.Errorf("%d members are listed", n)
	}
	b.Expire(time.Now().Add(2 * limit.DiscoveryTTL))
	if clusters, members, n := b.Counts(); clusters+members+int(n) != 0 {
		t.Errorf("%d clusters, %d members, %d bytes", clusters, members, n)
	}
}
