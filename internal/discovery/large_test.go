// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestTenThousandMembers come over gRPC to callers as they are: Watch and Attend
// in messages that each client takes, List to those who take a large one, and to
// nobody beyond its bound.
func TestTenThousandMembers(t *testing.T) {
	const members, each = 10_000, 600
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		most := members
		c.Limits.Members = &most
	})
	keys, who := newKeys(t), newMember(t)
	cluster := keys.Cluster()
	put := func(c Cluster, id string, data []byte) {
		t.Helper()
		u := roster.Update{Data: data, TTL: time.Hour / 2}
		if c.Protocol == Native {
			u.Version = 1
		}
		if err := r.store.Update(context.Background(), Place{c, id}, u); err != nil {
			t.Fatal(err)
		}
	}
	native, older := Cluster{Native, string(cluster[:])}, Cluster{Sidero, "large"}
	for i := range members {
		id := fmt.Sprintf("%032d", i)
		data, err := proto.Marshal(&pb.Entry{Member: []byte(id), Version: 1, Sealed: bytes.Repeat([]byte{7}, each)})
		if err != nil {
			t.Fatal(err)
		}
		put(native, id, data)
		put(older, id, bytes.Repeat([]byte{7}, each))
	}

	plain := sdr.NewClusterClient(r.dial(nil)) // gRPC's own bound of 4 MiB
	_, err := plain.List(runtest.Within(t), &sdr.ListRequest{ClusterId: older.ID})
	wantCode(t, err, codes.ResourceExhausted, "larger than max")
	large := sdr.NewClusterClient(r.dial(nil, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit.DiscoveryList))))
	list, err := large.List(runtest.Within(t), &sdr.ListRequest{ClusterId: older.ID})
	if err != nil || len(list.GetAffiliates()) != members || proto.Size(list) < 4<<20 {
		t.Fatalf("List gives %d members in %d bytes, %v", len(list.GetAffiliates()), proto.Size(list), err)
	}

	w, err := plain.Watch(runtest.Within(t), &sdr.WatchRequest{ClusterId: older.ID})
	if err != nil {
		t.Fatal(err)
	}
	seen, messages := map[string]bool{}, 0
	for ; len(seen) < members; messages++ {
		m, err := w.Recv()
		if err != nil {
			t.Fatalf("after %d members: %v", len(seen), err)
		}
		for _, a := range m.GetAffiliates() {
			seen[a.GetId()] = true
		}
	}
	if messages < 2 {
		t.Errorf("%d messages", messages)
	}

	all, settled := r.attend().enter(keys, who)
	if len(all) != members || !settled {
		t.Errorf("a native snapshot has %d members, settled: %v", len(all), settled)
	}

	// Beyond the bound nobody is given a list, and each a watch.
	for i := range (limit.DiscoveryList-proto.Size(list))/1400 + 1 {
		put(older, fmt.Sprintf("%032d", i), bytes.Repeat([]byte{8}, limit.DiscoveryData))
	}
	_, err = large.List(runtest.Within(t), &sdr.ListRequest{ClusterId: older.ID})
	wantCode(t, err, codes.ResourceExhausted, "watch it")
}
