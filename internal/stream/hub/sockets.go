// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// sockets owns the unix sockets of all clusters and the frontends behind them.
type sockets struct {
	runDir    string
	sparing   func(net.Listener) net.Listener
	metered   func(ctx context.Context, ln net.Listener) net.Listener
	frontends map[string]Frontend // by protocol
	dialer    func(c id.Cluster, frontend, caller string) DialFunc
	log       *slog.Logger
	group     *run.Group

	mu    sync.Mutex
	asked map[id.Cluster][]string // protocols asked for at run time
	open  map[socketKey]*openSocket
}

type socketKey struct {
	cluster  id.Cluster
	protocol string
	path     string
}

type openSocket struct {
	spec   socketSpec
	self   fs.FileInfo            // of the socket itself
	egress atomic.Pointer[string] // of spec, for the dials
	stop   func()                 // stop accepting and end what runs
	done   chan struct{}          // closed when the frontend has returned
}

// want lists the sockets that shall be open: those of the configuration and
// those that were asked for at run time.
func want(r *Reloadable, asked map[id.Cluster][]string, runDir string) map[socketKey]socketSpec {
	out := map[socketKey]socketSpec{}
	for _, c := range r.clusters {
		for _, s := range c.sockets {
			out[socketKey{c.name, s.protocol, s.spec.path}] = s.spec
		}
	}
	for c, protocols := range asked {
		for _, p := range protocols {
			spec := plainSpec(r, runDir, c, p)
			key := socketKey{c, p, spec.path}
			if _, configured := out[key]; !configured {
				out[key] = spec
			}
		}
	}
	return out
}

// plainSpec is a socket of which nothing more was said.
func plainSpec(r *Reloadable, runDir string, c id.Cluster, protocol string) socketSpec {
	return socketSpec{
		path: socketPath(runDir, c, protocol, defaultEgress), egress: defaultEgress,
		mode: r.sockets.mode, uid: r.sockets.uid, gid: r.sockets.gid,
	}
}

// load takes over what was asked for before this process began.
func (s *sockets) load(records []state.Cluster) error {
	for _, rec := range records {
		c, err := id.ParseCluster(rec.Name)
		if err != nil {
			return err
		}
		if len(rec.Sockets) > 0 {
			s.asked[c] = rec.Sockets
		}
	}
	return nil
}

// apply opens what is missing, gives what is open its new owner and mode, and
// then closes what is no longer wanted. If anything cannot be opened, nothing
// changes; the error names every such socket.
func (s *sockets) apply(r *Reloadable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := want(r, s.asked, s.runDir)
	yielded := s.yield(wanted)
	var errs []error
	fresh := map[socketKey]*openSocket{}
	for key, spec := range wanted {
		if o, ok := s.open[key]; ok {
			errs = append(errs, o.permit(spec))
			continue
		}
		o, err := s.start(key, spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster %s: %w", key.cluster, err))
			continue
		}
		fresh[key] = o
	}
	if err := errors.Join(errs...); err != nil {
		for _, o := range fresh {
			o.end()
		}
		return errors.Join(err, s.reopen(yielded))
	}
	for key, o := range s.open {
		if _, ok := wanted[key]; !ok {
			o.end()
			delete(s.open, key)
		}
	}
	maps.Copy(s.open, fresh)
	return nil
}

// reopen brings back what was yielded for a configuration that is refused.
func (s *sockets) reopen(yielded map[socketKey]socketSpec) error {
	var errs []error
	for key, spec := range yielded {
		o, err := s.start(key, spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster %s: %w", key.cluster, err))
			continue
		}
		s.open[key] = o
	}
	return errors.Join(errs...)
}

// yield closes sockets whose path goes to another cluster or protocol.
func (s *sockets) yield(wanted map[socketKey]socketSpec) map[socketKey]socketSpec {
	yielded := map[socketKey]socketSpec{}
	paths := map[string]socketKey{}
	for key := range wanted {
		paths[key.path] = key
	}
	for key, o := range s.open {
		if next, taken := paths[key.path]; taken && next != key {
			o.end()
			delete(s.open, key)
			yielded[key] = o.spec
		}
	}
	return yielded
}

// end stops the frontend and waits until it has let go of the path.
func (o *openSocket) end() {
	o.stop()
	<-o.done
}

// permit changes owner and mode in place, so that no stream is dropped for it.
func (o *openSocket) permit(spec socketSpec) error {
	if spec == o.spec {
		return nil
	}
	if err := permit(spec, o.self); err != nil {
		return socketFault(spec.path, err)
	}
	o.spec = spec
	o.egress.Store(&spec.egress)
	return nil
}

func (s *sockets) start(key socketKey, spec socketSpec) (*openSocket, error) {
	own, err := listenUnix(spec)
	if err != nil {
		return nil, err
	}
	ln := s.sparing(own) // below what hides the descriptor
	frontend := s.frontends[key.protocol]
	caller := "unix:" + key.cluster.String() + "/" + key.protocol
	dial := s.dialer(key.cluster, key.protocol, caller)
	ctx, cancel := context.WithCancel(withParty(s.group.Context(), party{
		cluster: key.cluster, frontend: key.protocol, caller: caller,
	}))
	if key.protocol != ProtocolConnect { // which counts its connections itself
		ln = s.metered(ctx, ln)
	}
	o := &openSocket{spec: spec, self: own.self, stop: cancel, done: make(chan struct{})}
	o.egress.Store(&spec.egress)
	typed := func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
		d.EgressType = *o.egress.Load()
		return dial(ctx, d)
	}
	s.log.Info("socket opened", telemetry.AttrCluster, key.cluster, "protocol", key.protocol, "path", spec.path)
	s.group.Do(func(context.Context) {
		defer close(o.done)
		defer cancel()
		if err := frontend.Serve(ctx, ln, typed); err != nil {
			s.log.Error("frontend failed", telemetry.AttrCluster, key.cluster, "protocol", key.protocol, telemetry.AttrReason, err)
		}
	})
	return o, nil
}

// ensure opens one socket of a cluster at run time and gives its path.
func (s *sockets) ensure(c id.Cluster, protocol string, r *Reloadable) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.open {
		if key.cluster == c && key.protocol == protocol && o.spec.egress == defaultEgress {
			return key.path, nil
		}
	}
	spec := plainSpec(r, s.runDir, c, protocol)
	path := spec.path
	key := socketKey{c, protocol, path}
	o, err := s.start(key, spec)
	if err != nil {
		return "", err
	}
	s.open[key] = o
	if !slices.Contains(s.asked[c], protocol) {
		s.asked[c] = append(s.asked[c], protocol)
	}
	return path, nil
}

// forget closes the sockets that were asked for at run time, and forgets them.
func (s *sockets) forget(c id.Cluster, r *Reloadable) error {
	s.mu.Lock()
	delete(s.asked, c)
	s.mu.Unlock()
	return s.apply(r)
}

// of lists a cluster's open sockets.
func (s *sockets) of(c id.Cluster) []admin.Socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []admin.Socket{}
	for key, o := range s.open {
		if key.cluster == c {
			out = append(out, admin.Socket{Protocol: key.protocol, Path: key.path, Egress: o.spec.egress})
		}
	}
	slices.SortFunc(out, func(a, b admin.Socket) int { return strings.Compare(a.Path, b.Path) })
	return out
}
