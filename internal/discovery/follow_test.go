// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func leaseOf(data string, ends ...string) roster.Lease {
	l := roster.Lease{Data: []byte(data), Expires: time.Now().Add(long)}
	for _, e := range ends {
		l.Endpoints = append(l.Endpoints, roster.Endpoint{Blob: []byte(e), Expires: time.Now().Add(time.Minute)})
	}
	return l
}

// TestAdmit: it says what Apply would, and takes nothing.
func TestAdmit(t *testing.T) {
	b := NewBoard(Bounds{Clusters: 2, Members: 2, Endpoints: 2, Bytes: 10_000})
	b.Follow(sidero("a"), netip.Addr{}, leaseOf("x"))
	b.Follow(sidero("b"), netip.Addr{}, leaseOf("x", "1", "2", "3")) // past its bound: another service took it
	b.Follow(native("a"), netip.Addr{}, leaseOf("x"))
	counts := func() (out [3]int64) {
		c, m, n := b.Counts()
		return [3]int64{int64(c), int64(m), n}
	}
	before := counts()
	for name, c := range map[string]struct {
		p  Place
		l  roster.Lease
		ok bool
	}{
		"as it is":                      {sidero("a"), leaseOf("x"), true},
		"another member":                {native("b"), leaseOf("x"), true},
		"a third member":                {sidero("c"), leaseOf("x"), false},
		"a third cluster":               {Place{Cluster{Sidero, "d"}, "a"}, leaseOf("x"), false},
		"a third endpoint":              {sidero("a"), leaseOf("x", "1", "2", "3"), false},
		"no more endpoints than it has": {sidero("b"), leaseOf("y", "4", "2", "3"), true},
		"a fourth endpoint":             {sidero("b"), leaseOf("x", "1", "2", "3", "4"), false},
		"too many bytes":                {sidero("a"), leaseOf(strings.Repeat("x", 10_000)), false},
		"nothing":                       {sidero("a"), roster.Lease{}, true},
	} {
		err := b.Admit(c.p, netip.Addr{}, c.l)
		if (err == nil) != c.ok || err != nil && (!fault.Has(err, fault.CodeLimit) || fault.From(err).Next == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := counts(); after != before {
		t.Errorf("%v became %v", before, after)
	}
}

// TestFollow: the board is as it is told, whatever the bounds, and watchers are
// told of another content only.
func TestFollow(t *testing.T) {
	b := NewBoard(Bounds{Clusters: 1, Members: 1})
	w := b.Watch(sidero("").Cluster)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Follow(native("a"), netip.Addr{}, leaseOf("beyond the bound of clusters"))
	for i, step := range []struct {
		p    Place
		l    roster.Lease
		told []string
	}{
		{sidero("a"), leaseOf("x"), []string{"a"}},
		{sidero("a"), leaseOf("x"), nil},
		{sidero("b"), leaseOf("beyond the bound of members"), []string{"b"}},
		{sidero("a"), roster.Lease{}, []string{"a"}},
		{sidero("a"), roster.Lease{}, nil},
	} {
		b.Follow(step.p, netip.Addr{}, step.l)
		changes, _ := w.Next(ctx)
		if got := ids(changes); !slices.Equal(got, step.told) {
			t.Errorf("step %d: watchers were told of %q, not %q", i, got, step.told)
		}
	}
	wantIDs(t, b, sidero("").Cluster, "b")
	w.Close()
	b.Follow(sidero("b"), netip.Addr{}, roster.Lease{})
	b.Follow(native("a"), netip.Addr{}, roster.Lease{})
	b.Follow(native("nobody"), netip.Addr{}, roster.Lease{})
	if c, m, n := b.Counts(); c != 0 || m != 0 || n != 0 {
		t.Errorf("%d clusters, %d members and %d bytes are left", c, m, n)
	}
}

// TestExpireEndpoints: they end, and a member stays whose time is over, with those
// that are to end with it.
func TestExpireEndpoints(t *testing.T) {
	b := NewBoard(Bounds{})
	now := time.Now()
	b.Follow(sidero("a"), netip.Addr{}, roster.Lease{Data: []byte("x"), Expires: now.Add(long), Endpoints: []roster.Endpoint{
		{Blob: []byte("e"), Expires: now.Add(long / 2)}, {Blob: []byte("f"), Expires: now.Add(long)},
	}})
	w := b.Watch(sidero("").Cluster)
	defer w.Close()
	b.ExpireEndpoints(time.Now())
	if got := b.Get(sidero("a")); len(got.Endpoints) != 2 {
		t.Fatalf("%+v", got)
	}
	b.ExpireEndpoints(time.Now().Add(2 * long))
	if got := b.Get(sidero("a")); len(got.Endpoints) != 1 || string(got.Endpoints[0].Blob) != "f" || string(got.Data) != "x" {
		t.Errorf("%+v", got)
	}
	if changes, err := w.Next(t.Context()); err != nil || len(changes) != 1 {
		t.Errorf("%v, %v", changes, err)
	}
	if _, _, n := b.Counts(); n != costCluster+costMember+costEndpoint+4 {
		t.Errorf("%d bytes are left", n)
	}
}
