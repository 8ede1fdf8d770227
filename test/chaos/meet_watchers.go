// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// watcher follows one cluster through its own gate, and comes back whenever its
// stream ends.
type watcher struct {
	name  string
	of    string // the cluster, by its name in the chronicle
	conn  *grpc.ClientConn
	c     *chronicle
	once  func(ctx context.Context, w *watcher) error // one stream
	names map[string]string                           // of native members, by their ids

	mu      sync.Mutex
	view    map[string]uint64
	streams int
	ends    []time.Time // of streams that had begun
}

func (w *watcher) live(ctx context.Context) {
	for ctx.Err() == nil {
		before := w.begun()
		w.once(ctx, w) // whatever ends it
		w.mu.Lock()
		if w.streams > before && ctx.Err() == nil {
			w.ends = append(w.ends, time.Now())
		}
		w.mu.Unlock()
		run.Wait(ctx, 20*time.Millisecond)
	}
}

// begin is the head of all sights of one stream.
func (w *watcher) begin() sight {
	return sight{stream: w.c.stream(), of: w.of, opened: time.Now()}
}

// saw notes a message, and keeps what the service says by now.
func (w *watcher) saw(s sight) {
	s.at = time.Now()
	w.c.saw(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.all {
		w.view = map[string]uint64{}
		w.streams++
	}
	maps.Copy(w.view, s.here)
	for _, who := range s.gone {
		delete(w.view, who)
	}
}

func (w *watcher) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams
}

func (w *watcher) sees(want map[string]uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.view, want)
}

func (w *watcher) sight() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.view)
}

// watchOlder is a stream of the protocol of Talos nodes. Its first message is the
// whole cluster, and the service holds it back until it is sure.
func watchOlder(ctx context.Context, w *watcher) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	head := w.begin()
	stream, err := sdr.NewClusterClient(w.conn).Watch(ctx, &sdr.WatchRequest{ClusterId: w.of}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		s := head
		s.all, s.sure, s.here = first, first, map[string]uint64{}
		for _, a := range m.Affiliates {
			who := w.of + "/" + a.Id
			if m.Deleted {
				s.gone = append(s.gone, who)
				continue
			}
			seq, err := strconv.ParseUint(string(a.Data), 10, 64)
			if err != nil || len(a.Endpoints) != 1 || string(a.Endpoints[0]) != "endpoint of "+a.Id {
				w.c.bad("%s is told of %s with %q, %q", w.name, who, a.Data, a.Endpoints)
			}
			s.here[who] = seq
		}
		w.saw(s)
	}
}

// watchNative is a stream of ours. Every entry is opened.
func watchNative(keys seal.Keys) func(context.Context, *watcher) error {
	return func(ctx context.Context, w *watcher) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		head := w.begin()
		stream, err := attendService(ctx, w.conn, keys, nil)
		if err != nil {
			return err
		}
		all := head
		all.all, all.here = true, map[string]uint64{}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			switch f := m.GetFrame().(type) {
			case *pb.FromService_Snapshot:
				w.open(keys, f.Snapshot.Entries, &all)
				if f.Snapshot.Last {
					all.gone = nil // removals that are remembered
					all.sure = f.Snapshot.Settled
					w.saw(all)
				}
			case *pb.FromService_Change:
				s := head
				s.here = map[string]uint64{}
				w.open(keys, f.Change.Entries, &s)
				for _, id := range f.Change.Expired {
					s.gone = append(s.gone, w.of+"/"+w.names[string(id)])
				}
				w.saw(s)
			case *pb.FromService_Refusal:
				return fmt.Errorf("%s: %s", f.Refusal.Code, f.Refusal.Why)
			}
		}
	}
}

// open puts entries into a sight.
func (w *watcher) open(keys seal.Keys, entries []*pb.Entry, s *sight) {
	for _, e := range entries {
		id, m, err := keys.Open(e)
		name := w.names[string(id[:])]
		who := w.of + "/" + name
		switch {
		case err != nil || name == "":
			w.c.bad("%s is told of %q, which does not open: %v", w.name, name, err)
		case e.Removed:
			s.gone = append(s.gone, who)
		case m.Node != strconv.FormatUint(e.Version, 10):
			w.c.bad("%s is told of %s with version %d and content %q", w.name, who, e.Version, m.Node)
		default:
			s.here[who] = e.Version
		}
	}
}
