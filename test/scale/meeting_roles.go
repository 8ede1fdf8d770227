// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/discovery"
	native "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
	"github.com/tombolo-io/tombolo/test/roles"
)

// opStop ends a discovery service in order: what it knows is on the disk.
const opStop = "stop"

// discoveryArgs start a discovery service.
type discoveryArgs struct {
	Dir     string `json:"dir"`
	Listen  string `json:"listen"`
	Admin   string `json:"admin"`
	Members int    `json:"members"` // of one cluster; 0: as by default
	Locks   bool   `json:"locks"`   // who waits for locks is noted, for a profile
}

// discoveryRole is the role of a discovery service: the product's, with its store
// in memory and its snapshots. It has no TLS, which would hide what else it costs.
type discoveryRole struct {
	service *discovery.Service
	stop    context.CancelFunc
	ended   chan error
}

// meetingLook is what a discovery service says of itself.
type meetingLook struct {
	look
	Members int   `json:"members"`
	Bytes   int64 `json:"bytes"` // that they sent
	Settled bool  `json:"known"` // it has its state
}

// Do implements roles.Role.
func (r *discoveryRole) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opStart:
		return nil, r.start(raw)
	case opLook:
		own, err := lookAtOwn()
		st := r.service.Status()
		return meetingLook{look: own, Members: st.Members, Bytes: st.Bytes, Settled: st.Store.Settled}, err
	case opProfile:
		return nil, profile(raw)
	case opStop:
		r.stop()
		return nil, <-r.ended
	}
	return nil, roles.ErrUnknown
}

func (r *discoveryRole) start(raw json.RawMessage) error {
	args, err := roles.Arguments[discoveryArgs](raw)
	if err != nil {
		return err
	}
	if args.Locks {
		runtime.SetMutexProfileFraction(10)
	}
	// Everybody here is a few addresses; a site of nodes has as many as it has nodes.
	text := fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
stateDir: %[1]s/discovery
runDir: %[1]s/run
listen: %[2]q
admin: {listen: %[3]q}
tls: {none: true}
rates: {perSecond: 1000000, burst: 1000000}
drainTimeout: 100ms
settle: 1ms
limits: {watchesPerAddress: 1000000, clustersPerAddress: 1000000, bytesPerAddress: 1GiB`, args.Dir, args.Listen, args.Admin)
	if args.Members > 0 {
		text += fmt.Sprintf(", members: %d", args.Members)
	}
	cfg, err := discovery.ParseConfig("discovery.yaml", []byte(text+"}\n"))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(args.Dir, "discovery.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r.service = discovery.New(cfg, discovery.Options{Log: slog.New(slog.NewTextHandler(f, nil)), Reg: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.service.Run(ctx, context.Background()) }()
	select {
	case <-r.service.Ready():
		return nil
	case err := <-r.ended:
		return errors.Join(errors.New("the discovery service did not start"), err)
	}
}

// echoArgs start the measure of a discovery service.
type echoArgs struct {
	Listen string `json:"listen"`
	Whole  []byte `json:"whole,omitempty"` // what a watcher is sent
	Locks  bool   `json:"locks"`
}

// echoRole is the measure of a discovery service: a gRPC server as it comes, that
// takes the same messages and does nothing with them, and sends each watcher the
// same bytes from one place in memory.
type echoRole struct {
	sdr.UnimplementedClusterServer
	native.UnimplementedDiscoveryServer
	whole []byte
}

// Do implements roles.Role.
func (r *echoRole) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opProfile:
		return nil, profile(raw)
	case opStart:
	default:
		return nil, roles.ErrUnknown
	}
	args, err := roles.Arguments[echoArgs](raw)
	if err != nil {
		return nil, err
	}
	if args.Locks {
		runtime.SetMutexProfileFraction(10)
	}
	r.whole = args.Whole
	ln, err := net.Listen("tcp", args.Listen)
	if err != nil {
		return nil, err
	}
	srv := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{encoding.GetCodecV2(proto.Name)}))
	sdr.RegisterClusterServer(srv, r)
	native.RegisterDiscoveryServer(srv, r)
	srv.RegisterService(&echoDesc, r)
	go srv.Serve(ln) // until the process ends
	return nil, nil
}

// AffiliateUpdate answers.
func (r *echoRole) AffiliateUpdate(context.Context, *sdr.AffiliateUpdateRequest) (*sdr.AffiliateUpdateResponse, error) {
	return &sdr.AffiliateUpdateResponse{}, nil
}

// Watch sends what there is, and holds the stream.
func (r *echoRole) Watch(_ *sdr.WatchRequest, stream grpc.ServerStreamingServer[sdr.WatchResponse]) error {
	if err := stream.SendMsg(sent(r.whole)); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// sent is a message that is bytes already; taken is one of which the bytes count.
type (
	sent  []byte
	taken struct{ n int }
)

// bytesCodec is the one of gRPC, but for those two.
type bytesCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(sent); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if t, ok := v.(*taken); ok {
		t.n = data.Len()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
