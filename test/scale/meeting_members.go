// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"

	sdr "github.com/tombolo-io/tombolo/proto/sidero"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that a process of members answers.
const (
	opFill    = "fill"    // args: fillArgs
	opJoin    = "join"    // args: joinArgs; result: latency
	opUpdates = "updates" // args: updatesArgs; result: updatesResult
	opWatch   = "watch"   // args: watchArgs; result: watchResult; the streams are held
	opLeave   = "leave"   // ends what is held
)

// What a member says, of the size that a Talos node says it in.
const (
	memberData      = 600
	memberEndpoints = 2
	// accounted is what the service counts for a member as memory beside what it sent
	// (internal/discovery/share.go): it is not the member's own.
	accounted     = 320 + 56*memberEndpoints
	endpointBytes = 16
	usual         = 100 // members of a cluster
)

// fillArgs bring members.
type fillArgs struct {
	To       string `json:"to"`
	Prefix   string `json:"prefix"` // of the clusters' ids
	First    int    `json:"first"`  // cluster
	Clusters int    `json:"clusters"`
	Members  int    `json:"members"` // of each
}

// joinArgs let members join a cluster that is watched, one after the other.
type joinArgs struct {
	To       string `json:"to"`
	Cluster  string `json:"cluster"`
	Watchers int    `json:"watchers"`
	Joins    int    `json:"joins"`
}

// updatesArgs put a load of updates on a service.
type updatesArgs struct {
	To          string        `json:"to"`
	Connections int           `json:"connections"`
	Workers     int           `json:"workers"` // of each connection
	For         time.Duration `json:"for"`
}

type updatesResult struct {
	Updates int64         `json:"updates"`
	Wall    time.Duration `json:"wall"`
}

func (r updatesResult) rate() float64 { return float64(r.Updates) / r.Wall.Seconds() }

// watchArgs let watchers come at once, of the clusters in turn.
type watchArgs struct {
	To          string `json:"to"`
	Prefix      string `json:"prefix"`
	Clusters    int    `json:"clusters"`
	Watchers    int    `json:"watchers"`
	Connections int    `json:"connections"`
}

type watchResult struct {
	All   time.Duration `json:"all"` // until the last one had everything
	Bytes int64         `json:"bytes"`
}

// membersRole is the role of members and watchers.
type membersRole struct {
	leave   []func()
	signers []*signer
}

// Do implements roles.Role.
func (r *membersRole) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opFill:
		return nil, with(raw, fill)
	case opJoin:
		var l latency
		return &l, with(raw, func(a joinArgs) (err error) { l, err = join(a); return err })
	case opUpdates:
		var out updatesResult
		return &out, with(raw, func(a updatesArgs) (err error) { out, err = update(a); return err })
	case opSigned:
		var out updatesResult
		return &out, with(raw, func(a signedArgs) (err error) { out, err = r.signed(a); return err })
	case opSeal:
		return nil, with(raw, r.seal)
	case opVerify:
		var out updatesResult
		return &out, with(raw, func(d time.Duration) (err error) { out, err = verify(d); return err })
	case opWatch:
		var out watchResult
		return &out, with(raw, func(a watchArgs) (err error) { out, err = r.watch(a); return err })
	case opLeave:
		for _, leave := range r.leave {
			leave()
		}
		r.leave = nil
		return nil, nil
	}
	return nil, roles.ErrUnknown
}

func with[T any](raw json.RawMessage, do func(T) error) error {
	args, err := roles.Arguments[T](raw)
	if err != nil {
		return err
	}
	return do(args)
}

func call(to string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func clusterID(prefix string, n int) string { return fmt.Sprintf("%s-cluster-%032d", prefix, n) }

func memberID(n int) string { return fmt.Sprintf("member-%036d", n) }

// says is what a member says, never the same twice: sealing draws a new nonce.
func says(cluster, member string, r *rand.ChaCha8) *sdr.AffiliateUpdateRequest {
	out := &sdr.AffiliateUpdateRequest{
		ClusterId: cluster, AffiliateId: member, Ttl: &sdr.Duration{Seconds: 1800}, AffiliateData: make([]byte, memberData),
	}
	r.Read(out.AffiliateData)
	for i := range memberEndpoints {
		e := make([]byte, endpointBytes) // of one address: the same each time
		copy(e[1:], member[len(member)-8:])
		e[0] = byte(i)
		out.AffiliateEndpoints = append(out.AffiliateEndpoints, e)
	}
	return out
}

func chance(n int) *rand.ChaCha8 {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(n))
	return rand.NewChaCha8(seed)
}

// fill brings the members of some clusters, 32 at a time.
func fill(args fillArgs) error {
	conn, err := call(args.To)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := sdr.NewClusterClient(conn)
	const workers = 32
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := chance(w)
			for i := w; i < args.Clusters*args.Members; i += workers {
				m := says(clusterID(args.Prefix, args.First+i/args.Members), memberID(i%args.Members), r)
				if _, errs[w] = c.AffiliateUpdate(context.Background(), m); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// join measures from before a member's first word until the last of the watchers
// has read it. Then the member leaves, so that the cluster stays as large as it is.
func join(args joinArgs) (latency, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen, watching := make(chan string), make(chan error)
	for range args.Watchers {
		conn, err := call(args.To)
		if err != nil {
			return latency{}, err
		}
		defer conn.Close()
		go func() { attend(ctx, sdr.NewClusterClient(conn), args.Cluster, watching, seen) }()
	}
	for range args.Watchers {
		if err := <-watching; err != nil {
			return latency{}, err
		}
	}
	conn, err := call(args.To)
	if err != nil {
		return latency{}, err
	}
	defer conn.Close()
	c, r := sdr.NewClusterClient(conn), chance(args.Joins)
	var h histogram
	for i := range args.Joins + 10 {
		m := says(args.Cluster, fmt.Sprintf("joins-%036d", i), r)
		began := time.Now()
		if _, err := c.AffiliateUpdate(ctx, m); err != nil {
			return latency{}, err
		}
		for n := 0; n < args.Watchers; {
			select {
			case id := <-seen:
				if id == m.AffiliateId {
					n++
				}
			case err := <-watching:
				return latency{}, err
			}
		}
		if i >= 10 { // the first ones open what stays open
			h.add(time.Since(began))
		}
		if _, err := c.AffiliateDelete(ctx, &sdr.AffiliateDeleteRequest{ClusterId: m.ClusterId, AffiliateId: m.AffiliateId}); err != nil {
			return latency{}, err
		}
	}
	return h.latency(), nil
}

// attend is one watcher: it says nil once it watches, and then whom it sees.
func attend(ctx context.Context, c sdr.ClusterClient, cluster string, watching chan<- error, seen chan<- string) {
	say := func(err error) {
		select {
		case watching <- err:
		case <-ctx.Done():
		}
	}
	w, err := c.Watch(ctx, &sdr.WatchRequest{ClusterId: cluster})
	if err == nil {
		_, err = w.Recv()
	}
	say(err)
	for err == nil {
		var m *sdr.WatchResponse
		if m, err = w.Recv(); err != nil {
			say(err)
			return
		}
		if m.Deleted {
			continue
		}
		for _, a := range m.Affiliates {
			select {
			case seen <- a.Id:
			case <-ctx.Done():
				return
			}
		}
	}
}

// update lets members say something new without a pause, each in turn.
func update(args updatesArgs) (out updatesResult, err error) {
	var conns []*grpc.ClientConn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range args.Connections {
		c, err := call(args.To)
		if err != nil {
			return out, err
		}
		conns = append(conns, c)
	}
	var count atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, args.Connections*args.Workers)
	began := time.Now()
	for w := range args.Connections * args.Workers {
		wg.Go(func() {
			c, r := sdr.NewClusterClient(conns[w%len(conns)]), chance(w)
			for i := 0; time.Since(began) < args.For; i++ {
				if _, err := c.AffiliateUpdate(context.Background(), says(clusterID("u", w), memberID(i%usual), r)); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	close(errs)
	return updatesResult{Updates: count.Load(), Wall: time.Since(began)}, <-errs
}

// watch lets watchers come at once, and returns when the last has its first
// message. Nobody decodes it: that would cost more than to send it.
func (r *membersRole) watch(args watchArgs) (out watchResult, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	r.leave = append(r.leave, cancel)
	conns := make([]*grpc.ClientConn, args.Connections)
	for i := range conns {
		if conns[i], err = call(args.To); err != nil {
			return out, err
		}
		r.leave = append(r.leave, func() { conns[i].Close() })
	}
	var bytes atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, args.Watchers)
	began := time.Now()
	for i := range args.Watchers {
		wg.Go(func() {
			n, err := first(ctx, conns[i%len(conns)], clusterID(args.Prefix, i%args.Clusters))
			if err != nil {
				errs <- err
			}
			bytes.Add(int64(n))
		})
	}
	wg.Wait()
	close(errs)
	return watchResult{All: time.Since(began), Bytes: bytes.Load()}, <-errs
}

// first is how long the first message of a watch is, which is the whole cluster.
func first(ctx context.Context, conn *grpc.ClientConn, cluster string) (int, error) {
	stream, err := conn.NewStream(ctx, &sdr.Cluster_ServiceDesc.Streams[0], sdr.Cluster_Watch_FullMethodName,
		grpc.ForceCodecV2(bytesCodec{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		return 0, err
	}
	if err := stream.SendMsg(&sdr.WatchRequest{ClusterId: cluster}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	var m taken
	err = stream.RecvMsg(&m)
	return m.n, err
}
