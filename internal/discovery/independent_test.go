// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// A client of the older protocol that shares nothing with the service: bytes by
// hand, from what is known of the protocol, without the generated code. Field
// numbers stand where they are used.

// plain is gRPC's codec of bytes as they are.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (plain) Unmarshal(b []byte, v any) error { *v.(*[]byte) = append([]byte{}, b...); return nil }
func (plain) Name() string                    { return "proto" }

// block is a field with a length below 128, and varint one with a value below it.
func block(n byte, b string) string { return string([]byte{n<<3 | 2, byte(len(b))}) + b }
func varint(n, v byte) string       { return string([]byte{n << 3, v}) }

// affiliateBytes is id(1), data(2), endpoints(3).
func affiliateBytes(id, data string, ends ...string) string {
	out := block(1, id)
	if data != "" {
		out += block(2, data)
	}
	for _, e := range ends {
		out += block(3, e)
	}
	return out
}

// byHand is such a client.
type byHand struct {
	*grpc.ClientConn
	t *testing.T
}

func (c byHand) call(ctx context.Context, method, in string) (string, error) {
	request, answer := []byte(in), []byte{}
	err := c.Invoke(ctx, "/sidero.discovery.server.Cluster/"+method, &request, &answer, grpc.ForceCodec(plain{}))
	return string(answer), err
}

func (c byHand) want(method, in, want string) {
	c.t.Helper()
	got, err := c.call(runtest.Within(c.t), method, in)
	if err != nil || got != want {
		c.t.Fatalf("%s: %s, %v, want %s", method, hex.EncodeToString([]byte(got)), err, hex.EncodeToString([]byte(want)))
	}
}

func (c byHand) refused(method, in string) {
	c.t.Helper()
	_, err := c.call(runtest.Within(c.t), method, in)
	wantCode(c.t, err, codes.InvalidArgument, "")
}

func (c byHand) watch(ctx context.Context, cluster string) (next func() (string, error)) {
	c.t.Helper()
	request := []byte(block(1, cluster))
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/sidero.discovery.server.Cluster/Watch", grpc.ForceCodec(plain{}))
	if err == nil {
		err = errors.Join(s.SendMsg(&request), s.CloseSend())
	}
	return func() (string, error) {
		if err != nil {
			return "", err
		}
		var m []byte
		err := s.RecvMsg(&m)
		return string(m), err
	}
}

func TestAnIndependentClient(t *testing.T) {
	r := serve(t, nil)
	c := byHand{r.dial(nil), t}
	in := block(1, "C")
	next := c.watch(runtest.Within(t), "C")
	told := func(want string) {
		t.Helper()
		if got, err := next(); err != nil || got != want {
			t.Fatalf("the watcher is told %s, %v, want %s", hex.EncodeToString([]byte(got)), err, hex.EncodeToString([]byte(want)))
		}
	}
	told("") // the whole cluster: nobody
	c.want("Hello", in+block(2, "v1.0.0"), block(2, "\x7f\x00\x00\x01"))
	ttl := func(seconds byte) string { return block(5, varint(1, seconds)) }
	// Data, two endpoints, 100 s, and a field that only a later version knows.
	c.want("AffiliateUpdate", in+block(2, "A")+block(3, "data")+block(4, "ep1")+block(4, "ep2")+ttl(100)+block(15, "later"), "")
	a := affiliateBytes("A", "data", "ep1", "ep2")
	told(block(1, a))
	c.want("List", in, block(1, a))
	// Without data, only the endpoints are merged; of one member and of an unknown one.
	c.want("AffiliateUpdate", in+block(2, "A")+block(4, "ep3")+block(4, "ep1")+block(5, varint(1, 1)), "")
	told(block(1, affiliateBytes("A", "data", "ep1", "ep2", "ep3")))
	c.want("AffiliateUpdate", in+block(2, "B")+block(4, "ep9")+ttl(100), "")
	told(block(1, affiliateBytes("B", "", "ep9")))
	// The endpoint ends after its second, and its member is told as it is now.
	told(block(1, a))
	c.want("List", in, block(1, a)+block(1, affiliateBytes("B", "", "ep9")))
	// Data that is there and empty takes the place of data.
	c.want("AffiliateUpdate", in+block(2, "A")+block(3, "")+ttl(100), "")
	told(block(1, affiliateBytes("A", "", "ep1", "ep2")))
	c.want("AffiliateDelete", in+block(2, "A"), "")
	told(block(1, block(1, "A")) + varint(2, 1))
	c.want("List", in, block(1, affiliateBytes("B", "", "ep9")))
	c.want("List", block(1, "D"), "")

	c.refused("AffiliateUpdate", in+block(2, "A")+block(3, "x"))                              // no lease
	c.refused("AffiliateUpdate", in+block(2, "A\xff")+block(3, "x")+ttl(1))                   // no UTF-8
	c.refused("AffiliateUpdate", in+block(2, "A")+block(4, strings.Repeat("e", 33))+ttl(1))   // a long endpoint
	c.refused("AffiliateUpdate", in+block(2, "A")+block(5, varint(1, 1)[:1]+"\x89\x0e"))      // 1801 s
	c.refused("AffiliateUpdate", in+block(2, "")+ttl(1))                                      // no id
	c.refused("Watch", "")                                                                    // which is no cluster
	c.want("AffiliateUpdate", in+block(2, "A")+block(5, varint(1, 1)[:1]+"\x88\x0e"), "")     // 1800 s
	c.want("AffiliateUpdate", in+block(2, "A")+block(3, strings.Repeat("x", 127))+ttl(1), "") // and its data
	c.want("AffiliateUpdate", in+block(2, "A")+block(3, "y")+block(5, varint(2, 1)), "")      // a nanosecond
	for got, err := next(); got != block(1, affiliateBytes("A", "y")); got, err = next() {    // in its order
		if err != nil {
			t.Fatal(err)
		}
	}
}

// talos is a node as they are out there: it watches, takes the first answer for all
// there is, pushes, and when the connection is lost it comes again after a while.
type talos struct {
	byHand
	id    string
	peers map[string]bool
	least int // peers that it had after a first answer
}

func (n *talos) live(ctx context.Context) {
	for ctx.Err() == nil {
		n.once(ctx)
		run.Wait(ctx, 30*time.Second+rand.N(60*time.Second))
	}
}

func (n *talos) once(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := n.call(ctx, "Hello", block(1, "C")+block(2, "v1")); err != nil {
		return
	}
	next := n.watch(ctx, "C")
	push := block(1, "C") + block(2, n.id) + block(3, "data of "+n.id) + block(5, varint(1, 0)[:1]+"\x88\x0e")
	if _, err := n.call(ctx, "AffiliateUpdate", push); err != nil {
		return
	}
	for first := true; ; first = false {
		m, err := next()
		if err != nil {
			return
		}
		if first {
			n.peers = map[string]bool{} // wiped
		}
		for len(m) > 2 && m[0] == 1<<3|2 {
			size := int(m[1])
			n.peers[m[4:4+int(m[3])]] = true
			m = m[2+size:]
		}
		if first {
			n.least = min(n.least, len(n.peers))
		}
	}
}

// TestTalosNodesOutliveARestart: a service that lost state answers nobody until all
// could come again, so that no node forgets the others. One without a disk cannot know
// that it did, and is told to wait.
func TestTalosNodesOutliveARestart(t *testing.T) {
	for name, c := range map[string]struct {
		disk  func() *testDisk
		await bool
	}{
		"a crash before the first snapshot": {begun(t).copied, false},
		"a crash without a disk":            {newDisk, true},
	} {
		t.Run(name, func(t *testing.T) { outlive(t, c.disk, c.await) })
	}
}

func outlive(t *testing.T, disk func() *testDisk, await bool) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 12
		var at *runtest.Memory
		begin := func() (stop func()) {
			cfg := validate(v1alpha1.DiscoveryConfig{}, func(string, string, ...any) {})
			s := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
			kept := quiet(disk(), s.board)
			kept.Await = await
			store, end := running(t, kept)
			s.store = store
			g := run.NewGroup(context.Background())
			s.work, s.grpc = g, s.newServer()
			ln := runtest.ListenMemory()
			at = ln
			g.Go("serve", func(context.Context) error { return s.grpc.Serve(ln) })
			return func() {
				s.grpc.Stop()
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
				end()
			}
		}
		stop := begin()
		ctx, cancel := context.WithCancel(context.Background())
		clients := run.NewGroup(ctx)
		var all []*talos
		for i := range nodes {
			conn, err := grpc.NewClient("passthrough:service", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			n := &talos{byHand: byHand{conn, t}, id: fmt.Sprintf("n%02d", i), least: nodes}
			all = append(all, n)
			clients.Do(func(context.Context) { n.live(ctx) })
		}
		whole := func(when string) {
			t.Helper()
			time.Sleep(limit.DiscoverySettle + time.Minute)
			synctest.Wait()
			for _, n := range all {
				if len(n.peers) != nodes || n.least != nodes {
					t.Errorf("%s, %s knows %v, and at times %d", when, n.id, slices.Sorted(maps.Keys(n.peers)), n.least)
				}
			}
		}
		whole("at the beginning")
		for range 3 {
			stop()
			stop = begin()
			whole("after a crash")
		}
		cancel()
		if err := clients.Wait(); err != nil {
			t.Error(err)
		}
		stop()
	})
}
