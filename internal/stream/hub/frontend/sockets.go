// SPDX-License-Identifier: Apache-2.0

package frontend

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

// Sockets owns the unix sockets of all clusters and the frontends behind them.
type Sockets struct {
	runDir string
	bind   Bind
	log    *slog.Logger
	group  *run.Group

	mu    sync.Mutex
	asked map[id.Cluster][]string // protocols asked for at run time
	open  map[socketKey]*openSocket
}

// Bind says who serves a cluster's socket, the listener around it and the dials into the
// cluster.
type Bind func(c id.Cluster, protocol string, ln net.Listener) (Frontend, net.Listener, DialFunc)

// NewSockets prepares the sockets below runDir; nothing is open. They end with ctx.
func NewSockets(ctx context.Context, runDir string, bind Bind, log *slog.Logger) *Sockets {
	return &Sockets{runDir: runDir, bind: bind, log: log, group: run.NewGroup(ctx), asked: map[id.Cluster][]string{},
		open: map[socketKey]*openSocket{}}
}

// Wait waits until all frontends have returned; Stop ends them.
func (s *Sockets) Wait() error { return s.group.Wait() }

// Stop is described at Wait.
func (s *Sockets) Stop() { s.group.Stop() }

type socketKey struct {
	cluster  id.Cluster
	protocol string
	path     string
}

type openSocket struct {
	spec   SocketSpec
	self   fs.FileInfo            // of the socket itself
	egress atomic.Pointer[string] // of spec, for the dials
	stop   func()                 // stop accepting and end what runs
	done   chan struct{}          // closed when the frontend has returned
}

// want lists the sockets that shall be open: those of the configuration and
// those that were asked for at run time.
func want(r *Config, asked map[id.Cluster][]string, runDir string) map[socketKey]SocketSpec {
	out := map[socketKey]SocketSpec{}
	for _, c := range r.Clusters {
		for _, s := range c.Sockets {
			out[socketKey{c.Name, s.Protocol, s.Spec.Path}] = s.Spec
		}
	}
	for c, protocols := range asked {
		for _, p := range protocols {
			spec := plainSpec(r, runDir, c, p)
			key := socketKey{c, p, spec.Path}
			if _, configured := out[key]; !configured {
				out[key] = spec
			}
		}
	}
	return out
}

// plainSpec is a socket of which nothing more was said.
func plainSpec(r *Config, runDir string, c id.Cluster, protocol string) SocketSpec {
	return SocketSpec{
		Path: SocketPath(runDir, c, protocol, DefaultEgress), Egress: DefaultEgress,
		Mode: r.Defaults.Mode, UID: r.Defaults.UID, GID: r.Defaults.GID,
	}
}

// Load takes over what was asked for before this process began.
func (s *Sockets) Load(records []state.Cluster) error {
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

// Apply opens what is missing, gives what is open its new owner and mode, and
// then closes what is no longer wanted. If anything cannot be opened, nothing
// changes; the error names every such socket.
func (s *Sockets) Apply(r *Config) error {
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
func (s *Sockets) reopen(yielded map[socketKey]SocketSpec) error {
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
func (s *Sockets) yield(wanted map[socketKey]SocketSpec) map[socketKey]SocketSpec {
	yielded := map[socketKey]SocketSpec{}
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
func (o *openSocket) permit(spec SocketSpec) error {
	if spec == o.spec {
		return nil
	}
	if err := permit(spec, o.self); err != nil {
		return socketFault(spec.Path, err)
	}
	o.spec = spec
	o.egress.Store(&spec.Egress)
	return nil
}

func (s *Sockets) start(key socketKey, spec SocketSpec) (*openSocket, error) {
	own, err := ListenUnix(spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.group.Context())
	frontend, ln, dial := s.bind(key.cluster, key.protocol, own)
	o := &openSocket{spec: spec, self: own.self, stop: cancel, done: make(chan struct{})}
	o.egress.Store(&spec.Egress)
	typed := func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
		d.EgressType = *o.egress.Load()
		return dial(ctx, d)
	}
	s.log.Info("socket opened", telemetry.AttrCluster, key.cluster, "protocol", key.protocol, "path", spec.Path)
	s.group.Do(func(context.Context) {
		defer close(o.done)
		defer cancel()
		if err := frontend.Serve(ctx, ln, typed); err != nil {
			s.log.Error("frontend failed", telemetry.AttrCluster, key.cluster, "protocol", key.protocol,
				telemetry.AttrReason, err)
		}
	})
	return o, nil
}

// Ensure opens one socket of a cluster at run time and gives its path.
func (s *Sockets) Ensure(c id.Cluster, protocol string, r *Config) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.open {
		if key.cluster == c && key.protocol == protocol && o.spec.Egress == DefaultEgress {
			return key.path, nil
		}
	}
	spec := plainSpec(r, s.runDir, c, protocol)
	path := spec.Path
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

// Forget closes the sockets that were asked for at run time, and forgets them.
func (s *Sockets) Forget(c id.Cluster, r *Config) error {
	s.mu.Lock()
	delete(s.asked, c)
	s.mu.Unlock()
	return s.Apply(r)
}

// Of lists a cluster's open sockets.
func (s *Sockets) Of(c id.Cluster) []admin.Socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []admin.Socket{}
	for key, o := range s.open {
		if key.cluster == c {
			out = append(out, admin.Socket{Protocol: key.protocol, Path: key.path, Egress: o.spec.Egress})
		}
	}
	slices.SortFunc(out, func(a, b admin.Socket) int { return strings.Compare(a.Path, b.Path) })
	return out
}
