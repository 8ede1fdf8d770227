// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func seconds64(n int64) *sdr.Duration { return &sdr.Duration{Seconds: n} }

func affiliateUpdate(member, data string, endpoints ...string) *sdr.AffiliateUpdateRequest {
	r := &sdr.AffiliateUpdateRequest{ClusterId: "c", AffiliateId: member, Ttl: seconds64(600)}
	if data != "" {
		r.AffiliateData = []byte(data)
	}
	for _, e := range endpoints {
		r.AffiliateEndpoints = append(r.AffiliateEndpoints, []byte(e))
	}
	return r
}

func mustUpdate(t *testing.T, c sdr.ClusterClient, r *sdr.AffiliateUpdateRequest) {
	t.Helper()
	if _, err := c.AffiliateUpdate(runtest.Within(t), r); err != nil {
		t.Fatal(err)
	}
}

func mustWatch(t *testing.T, c sdr.ClusterClient) grpc.ServerStreamingClient[sdr.WatchResponse] {
	t.Helper()
	w, err := c.Watch(runtest.Within(t), &sdr.WatchRequest{ClusterId: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// told is a message as a line: ids with data and endpoints, or what is deleted.
func told(t *testing.T, w grpc.ServerStreamingClient[sdr.WatchResponse]) string {
	t.Helper()
	m, err := w.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range m.Affiliates {
		out = append(out, fmt.Sprintf("%s=%s%s", a.Id, a.Data, a.Endpoints))
	}
	slices.Sort(out)
	if m.Deleted {
		out = append(out, "deleted")
	}
	return strings.Join(out, " ")
}

func wantTold(t *testing.T, w grpc.ServerStreamingClient[sdr.WatchResponse], want string) {
	t.Helper()
	if got := told(t, w); got != want {
		t.Fatalf("the watcher is told %q, want %q", got, want)
	}
}

func TestTheOlderProtocol(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	hello, err := c.Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c", ClientVersion: "v1"})
	if err != nil || !slices.Equal(hello.ClientIp, []byte{127, 0, 0, 1}) || hello.Redirect != nil {
		t.Fatalf("Hello: %v, %v", hello, err)
	}
	w := mustWatch(t, c)
	wantTold(t, w, "") // the whole cluster, although there is none
	mustUpdate(t, c, affiliateUpdate("a", "sealed", "e1"))
	wantTold(t, w, "a=sealed[e1]")
	mustUpdate(t, c, affiliateUpdate("a", "", "e2", "e1"))
	wantTold(t, w, "a=sealed[e1 e2]")
	mustUpdate(t, c, affiliateUpdate("b", "", "e1")) // somebody else's word of an endpoint, before b itself spoke
	wantTold(t, w, "b=[e1]")
	list, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "c"})
	if err != nil || len(list.Affiliates) != 2 || list.Affiliates[0].Id != "a" || string(list.Affiliates[0].Data) != "sealed" || len(list.Affiliates[0].Endpoints) != 2 {
		t.Fatalf("List: %v, %v", list, err)
	}
	wantTold(t, mustWatch(t, c), "a=sealed[e1 e2] b=[e1]")
	for range 2 {
		if _, err := c.AffiliateDelete(runtest.Within(t), &sdr.AffiliateDeleteRequest{ClusterId: "c", AffiliateId: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	wantTold(t, w, "a=[] deleted")
	other, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "another"})
	if err != nil || len(other.Affiliates) != 0 {
		t.Fatalf("another cluster: %v, %v", other, err)
	}
}

// TestAnExpiredEndpointDoesNotDeleteTheMember: the defect of the service that
// Talos nodes use by default.
func TestAnExpiredEndpointDoesNotDeleteTheMember(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	mustUpdate(t, c, affiliateUpdate("a", "sealed", "stays"))
	short := affiliateUpdate("a", "", "ends")
	short.Ttl = seconds64(60)
	mustUpdate(t, c, short)
	w := mustWatch(t, c)
	told(t, w)
	r.board.Expire(time.Now().Add(2 * time.Minute))
	if got := told(t, w); !strings.HasPrefix(got, "a=sealed") || strings.Contains(got, "deleted") || !strings.HasSuffix(got, "[stays]") {
		t.Fatalf("the watcher is told %q", got)
	}
}

func TestALeaseThatEndsIsTold(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	u := affiliateUpdate("a", "sealed")
	u.Ttl = seconds64(60)
	mustUpdate(t, c, u)
	wantTold(t, w, "a=sealed[]")
	r.board.Expire(time.Now().Add(2 * time.Minute))
	wantTold(t, w, "a=[] deleted")
}

func TestOlderUpdatesThatAreRefused(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(i))
		}
		return out
	}
	with := func(edit func(*sdr.AffiliateUpdateRequest)) *sdr.AffiliateUpdateRequest {
		r := affiliateUpdate("a", "data", "e")
		edit(r)
		return r
	}
	ttl := func(s int64, n int32) *sdr.AffiliateUpdateRequest {
		return with(func(r *sdr.AffiliateUpdateRequest) { r.Ttl = &sdr.Duration{Seconds: s, Nanos: n} })
	}
	for name, c := range map[string]struct {
		in   *sdr.AffiliateUpdateRequest
		code fault.Code
		why  string
	}{
		"fine":                     {in: affiliateUpdate("a", "data", "e")},
		"the largest":              {in: with(func(r *sdr.AffiliateUpdateRequest) { r.AffiliateId, r.AffiliateData = long(256), []byte(long(2048)) })},
		"the most endpoints":       {in: affiliateUpdate("a", "", many(64)...)},
		"the longest endpoint":     {in: affiliateUpdate("a", "", long(32))},
		"neither data nor more":    {in: affiliateUpdate("a", "")},
		"the longest lease":        {in: ttl(1800, 0)},
		"no cluster":               {with(func(r *sdr.AffiliateUpdateRequest) { r.ClusterId = "" }), fault.CodeEntryInvalid, "the cluster id has 0 bytes"},
		"a long cluster":           {with(func(r *sdr.AffiliateUpdateRequest) { r.ClusterId = long(257) }), fault.CodeEntryInvalid, "the cluster id has 257 bytes"},
		"no member":                {with(func(r *sdr.AffiliateUpdateRequest) { r.AffiliateId = "" }), fault.CodeEntryInvalid, "the affiliate id has 0 bytes"},
		"a long member":            {with(func(r *sdr.AffiliateUpdateRequest) { r.AffiliateId = long(257) }), fault.CodeEntryInvalid, "the affiliate id has 257 bytes"},
		"much data":                {affiliateUpdate("a", long(2049)), fault.CodeEntryInvalid, "affiliate_data has 2049 bytes"},
		"an empty endpoint":        {affiliateUpdate("a", "", "e", ""), fault.CodeEntryInvalid, "affiliate_endpoints[1] has 0 bytes"},
		"a long endpoint":          {affiliateUpdate("a", "", long(33)), fault.CodeEntryInvalid, "affiliate_endpoints[0] has 33 bytes"},
		"many endpoints":           {in: affiliateUpdate("a", "", many(65)...)},
		"no lease":                 {with(func(r *sdr.AffiliateUpdateRequest) { r.Ttl = nil }), fault.CodeEntryInvalid, "ttl"},
		"a lease of nothing":       {ttl(0, 0), fault.CodeEntryInvalid, "ttl is 0 s and 0 ns: more than 0, and at most 30m0s, is taken"},
		"a long lease":             {ttl(1800, 1), fault.CodeEntryInvalid, "ttl"},
		"a lease of ages":          {ttl(1<<62, 0), fault.CodeEntryInvalid, "ttl"},
		"a lease before now":       {ttl(-1, 0), fault.CodeEntryInvalid, "ttl"},
		"a lease with odd nanos":   {ttl(1, -1), fault.CodeEntryInvalid, "ttl"},
		"a lease with many nanos":  {ttl(1, 1e9), fault.CodeEntryInvalid, "ttl"},
		"a lease that wraps round": {ttl(9223372037, 0), fault.CodeEntryInvalid, "ttl"},
	} {
		_, _, err := olderUpdate(c.in, limit.DiscoveryEndpoints)
		var f *fault.Fault
		switch {
		case c.code == "" && err != nil, c.code != "" && err == nil:
			t.Errorf("%s: %v", name, err)
		case c.code != "" && (!errors.As(err, &f) || f.Code != c.code || !strings.Contains(f.Why, c.why)):
			t.Errorf("%s: %v, want %s with %q", name, err, c.code, c.why)
		}
	}
}

func TestOlderRefusalsOnTheWire(t *testing.T) {
	two := 2
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.Limits.Members, c.Limits.Endpoints, c.Limits.Clusters = &two, &two, &two
	})
	c, ctx := r.older(), runtest.Within(t)
	// Bytes that generated code would not send: no UTF-8, and no message at all.
	bare := r.dial(nil, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{newCodec()})))
	for _, text := range []string{"\x0a\x01\xff", "\xff\xff\xff"} {
		for _, method := range []string{"Hello", "AffiliateUpdate", "AffiliateDelete", "List"} {
			err := bare.Invoke(ctx, "/sidero.discovery.server.Cluster/"+method, raw(text), &sdr.HelloResponse{})
			wantCode(t, err, codes.InvalidArgument, "entry_invalid")
		}
		s, err := bare.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, sdr.Cluster_Watch_FullMethodName)
		if err = errors.Join(err, s.SendMsg(raw(text)), s.CloseSend()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, s.RecvMsg(&sdr.WatchResponse{}), codes.InvalidArgument, "entry_invalid")
		s, err = bare.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, pb.Discovery_Attend_FullMethodName)
		if err = errors.Join(err, s.RecvMsg(&pb.FromService{}), s.SendMsg(raw(text[1:]))); err != nil {
			t.Fatal(err)
		}
		err = s.RecvMsg(&pb.FromService{})
		for err == nil {
			err = s.RecvMsg(&pb.FromService{})
		}
		wantCode(t, err, codes.InvalidArgument, "entry_invalid")
	}
	if _, body, _ := get(t, r.connect("tcp", r.Admin()), "/metrics"); !strings.Contains(body, `tombolo_discovery_calls_total{method="List",outcome="entry_invalid"} 2`) {
		t.Errorf("what cannot be read is not counted:\n%s", body)
	}
	_, err := c.AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{})
	wantCode(t, err, codes.InvalidArgument, "the cluster id has 0 bytes")
	_, err = c.Hello(ctx, &sdr.HelloRequest{})
	wantCode(t, err, codes.InvalidArgument, "cluster id")
	_, err = c.List(ctx, &sdr.ListRequest{})
	wantCode(t, err, codes.InvalidArgument, "cluster id")
	_, err = c.AffiliateDelete(ctx, &sdr.AffiliateDeleteRequest{ClusterId: "c"})
	wantCode(t, err, codes.InvalidArgument, "affiliate id")
	w, err := c.Watch(ctx, &sdr.WatchRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	wantCode(t, err, codes.InvalidArgument, "cluster id")
	for _, m := range []string{"a", "b"} {
		mustUpdate(t, c, affiliateUpdate(m, "data", "1", "2"))
	}
	_, err = c.AffiliateUpdate(ctx, affiliateUpdate("third", "data"))
	wantCode(t, err, codes.ResourceExhausted, "limits.members")
	mustUpdate(t, c, affiliateUpdate("a", "", "3")) // for which there is no room
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		u := affiliateUpdate("a", "data")
		u.ClusterId = fmt.Sprint("cluster", i)
		if _, err := c.AffiliateUpdate(ctx, u); want == codes.OK && err != nil {
			t.Fatal(err)
		} else if want != codes.OK {
			wantCode(t, err, want, "limits.clusters")
		}
	}
	// The others are as they were.
	wantTold(t, mustWatch(t, c), "a=data[1 2] b=data[1 2]")
	_, err = c.AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{ClusterId: "c", AffiliateId: "a", AffiliateData: make([]byte, discoveryMessage)})
	wantCode(t, err, codes.ResourceExhausted, "")
}

// TestTheFirstEndpointsCount: a member with more than it may have is announced with the
// first of them, copies of one count once, and an update that says them again is none.
func TestTheFirstEndpointsCount(t *testing.T) {
	two := 2
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.Limits.Endpoints = &two })
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	for range 2 {
		mustUpdate(t, c, affiliateUpdate("a", "data", "1", "1", "2", "3", "4"))
	}
	wantTold(t, w, "a=data[1 2]")
	mustUpdate(t, c, affiliateUpdate("b", "data", slices.Repeat([]string{"1"}, 100)...))
	wantTold(t, w, "b=data[1]")
	mustUpdate(t, c, affiliateUpdate("b", "", "2", "3"))
	wantTold(t, w, "b=data[1 2]")
}

// TestARedirect: Hello says where to go, and a reload that sets it ends watches, so
// that nodes ask.
func TestARedirect(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	next := r.raw
	next.Redirect = "discovery.example.com:443"
	for range 2 { // the second changes nothing
		r.Reload(r.valid(next))
	}
	_, err := w.Recv()
	wantCode(t, err, codes.Unavailable, "sends its nodes to another one")
	hello, err := c.Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"})
	if err != nil || hello.GetRedirect().GetEndpoint() != "discovery.example.com:443" || r.Status().Redirect != "discovery.example.com:443" {
		t.Fatalf("Hello: %v, %v; the status says %q", hello, err, r.Status().Redirect)
	}
	w = mustWatch(t, c) // of one that did not listen
	wantTold(t, w, "")
	r.Reload(r.valid(r.raw))
	mustUpdate(t, c, affiliateUpdate("a", "data"))
	wantTold(t, w, "a=data[]") // the end of a redirect ends no watch
	if hello, err := c.Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"}); err != nil || hello.Redirect != nil {
		t.Fatalf("Hello: %v, %v", hello, err)
	}
}

// TestNobodyShutsAMemberOut: endpoints that a stranger reports, as many as a member
// may have, make room for the member's own word; his next ones do not.
func TestNobodyShutsAMemberOut(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	junk := func(from int) *sdr.AffiliateUpdateRequest {
		u := affiliateUpdate("a", "")
		for i := range limit.DiscoveryEndpoints {
			u.AffiliateEndpoints = append(u.AffiliateEndpoints, []byte(fmt.Sprintf("junk%03d", from+i)))
		}
		return u
	}
	mustUpdate(t, c, junk(0))
	w := mustWatch(t, c)
	told(t, w)
	mustUpdate(t, c, affiliateUpdate("a", "data", "mine1", "mine2"))
	for range 2 {
		got := told(t, w)
		if !strings.HasPrefix(got, "a=data[junk002 ") || !strings.HasSuffix(got, "junk063 mine1 mine2]") {
			t.Fatalf("the watcher is told %q", got)
		}
		mustUpdate(t, c, junk(100))
		w = mustWatch(t, c)
	}
}

// TestASlowWatcherIsEnded: one that answers pings, and reads only after more changes than are kept. (One that never
// reads loses its connection, see unread_test.go.)
func TestASlowWatcherIsEnded(t *testing.T) {
	r := serve(t, nil)
	slow := mustWatch(t, sdr.NewClusterClient(r.dial(nil, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second}))))
	c := r.older()
	wantTold(t, slow, "")
	// Members that the window does not hold, each of which has to be sent: the service waits in the middle of them. Then
	// more changes than the log keeps, which it sees when those are read.
	const members = 100
	for i := range members + discoveryLog {
		p := Place{Cluster{Sidero, "c"}, fmt.Sprint("m", i%members)}
		u := roster.Update{Data: make([]byte, limit.DiscoveryData), TTL: long}
		copy(u.Data, fmt.Sprint(i, " "))
		if err := r.store.Update(t.Context(), p, u); err != nil {
			t.Fatal(err)
		}
	}
	mustUpdate(t, c, affiliateUpdate("the last", "x"))
	var err error
	for err == nil { // what was on its way
		_, err = slow.Recv()
	}
	wantCode(t, err, codes.Aborted, "watch_lost")
	runtest.Eventually(t, "the place of the slow watcher is free", func() bool { return r.watchers.Load() == 0 })
	again := mustWatch(t, c)
	if got := told(t, again); !strings.Contains(got, "the last=x") {
		t.Errorf("the first answer lacks members: %.80q", got)
	}
}

// TestTheFirstAnswerWaitsUntilMembersCouldCome: a service that begins without its
// state must not say that there is nobody.
func TestTheFirstAnswerWaitsUntilMembersCouldCome(t *testing.T) {
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.Settle = v1alpha1.Duration{Duration: 2 * time.Second} })
	c := r.older()
	w := mustWatch(t, c)
	if r.store.State().Settled {
		t.Fatal("the store has settled before the test began")
	}
	mustUpdate(t, c, affiliateUpdate("a", "early"))
	wantTold(t, w, "a=early[]")
	if !r.store.State().Settled {
		t.Error("the first answer came before the service had settled")
	}
}

func TestSnapshotsOfTheOlderProtocol(t *testing.T) {
	big := make([]byte, limit.DiscoveryData)
	var all []Listing
	for i := range 2000 {
		l := roster.Lease{Data: big, Expires: time.Now()}
		if i%100 == 0 {
			l.Removed = true
		}
		all = append(all, Listing{fmt.Sprintf("%04d", i), l})
	}
	got := 0
	for i, piece := range olderSnapshot(all) {
		var m sdr.WatchResponse
		if err := proto.Unmarshal(piece, &m); err != nil || m.Deleted || len(piece) > discoveryWhole {
			t.Fatalf("piece %d of %d bytes: %v", i, len(piece), err)
		}
		got += len(m.Affiliates)
	}
	if got != 1980 {
		t.Errorf("%d members in the snapshot", got)
	}
	if out := olderSnapshot(nil); len(out) != 1 || len(out[0]) != 0 {
		t.Errorf("an empty cluster is %v", out)
	}
	// Field for field what the generated code writes.
	one := Listing{"id", roster.Lease{Data: []byte("d"), Expires: time.Now(), Endpoints: []roster.Endpoint{{Blob: []byte("e")}, {Blob: nil}}}}
	want, err := proto.Marshal(&sdr.WatchResponse{Affiliates: []*sdr.Affiliate{{Id: "id", Data: []byte("d"), Endpoints: [][]byte{[]byte("e"), {}}}}})
	if err != nil || !slices.Equal(olderSnapshot([]Listing{one})[0], want) {
		t.Errorf("%x, want %x", olderSnapshot([]Listing{one})[0], want)
	}
	gone := olderChanges([]Listing{one, {ID: "gone"}})
	var m sdr.WatchResponse
	if err := proto.Unmarshal(gone[1], &m); len(gone) != 2 || err != nil || !m.Deleted || len(m.Affiliates) != 1 || m.Affiliates[0].Id != "gone" {
		t.Errorf("%x", gone)
	}
}

func TestEOFIsNoFault(t *testing.T) {
	for err, want := range map[error]codes.Code{
		context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded, io.ErrUnexpectedEOF: codes.Internal,
		drained(): codes.Unavailable, fault.New(fault.CodeWatchLost, "x"): codes.Aborted, fault.New(fault.CodeUnauthorized, "x"): codes.PermissionDenied,
		fault.New(fault.CodeStoreAway, "x"): codes.Unavailable, fault.New(fault.CodeEntryStale, "x"): codes.FailedPrecondition,
		fault.New(fault.CodeTokenUsed, "x"): codes.Unauthenticated, fault.New(fault.CodeNotFound, "x"): codes.NotFound,
	} {
		wantCode(t, statusOf(err), want, "")
	}
}
