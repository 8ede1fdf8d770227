// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/hub/state"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/tell"
)

// sockets owns the unix sockets of all clusters and the frontends behind them.
type sockets struct {
	runDir    string
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
	spec socketSpec
	stop func()        // stop accepting and end what runs
	done chan struct{} // closed when the frontend has returned
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
			spec := socketSpec{path: socketPath(runDir, c, p), mode: r.sockets.mode, uid: r.sockets.uid, gid: r.sockets.gid}
			key := socketKey{c, p, spec.path}
			if _, configured := out[key]; !configured {
				out[key] = spec
			}
		}
	}
	return out
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

// apply opens what is missing and closes what is no longer wanted. A socket
// that cannot be opened does not keep the others from it.
func (s *sockets) apply(r *Reloadable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applyLocked(r)
}

func (s *sockets) applyLocked(r *Reloadable) error {
	wanted := want(r, s.asked, s.runDir)
	for key, o := range s.open {
		if spec, ok := wanted[key]; !ok || spec != o.spec {
			o.stop()
			<-o.done
			delete(s.open, key)
		}
	}
	var errs []error
	for key, spec := range wanted {
		if _, ok := s.open[key]; ok {
			continue
		}
		o, err := s.start(key, spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster %s: %w", key.cluster, err))
			continue
		}
		s.open[key] = o
	}
	return errors.Join(errs...)
}

func (s *sockets) start(key socketKey, spec socketSpec) (*openSocket, error) {
	ln, err := listenUnix(spec)
	if err != nil {
		return nil, err
	}
	frontend := s.frontends[key.protocol]
	dial := s.dialer(key.cluster, key.protocol, "unix:"+key.cluster.String()+"/"+key.protocol)
	ctx, cancel := context.WithCancel(s.group.Context())
	o := &openSocket{spec: spec, stop: cancel, done: make(chan struct{})}
	s.log.Info("socket opened", tell.AttrCluster, key.cluster, "protocol", key.protocol, "path", spec.path)
	s.group.Do(func(context.Context) {
		defer close(o.done)
		defer cancel()
		if err := frontend.Serve(ctx, ln, dial); err != nil {
			s.log.Error("frontend failed", tell.AttrCluster, key.cluster, "protocol", key.protocol, tell.AttrReason, err)
		}
	})
	return o, nil
}

// ensure opens one socket of a cluster at run time and gives its path.
func (s *sockets) ensure(c id.Cluster, protocol string, r *Reloadable) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.open {
		if key.cluster == c && key.protocol == protocol {
			return key.path, nil
		}
	}
	path := socketPath(s.runDir, c, protocol)
	spec := socketSpec{path: path, mode: r.sockets.mode, uid: r.sockets.uid, gid: r.sockets.gid}
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

// of lists a cluster's open sockets.
func (s *sockets) of(c id.Cluster) []admin.Socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []admin.Socket{}
	for key := range s.open {
		if key.cluster == c {
			out = append(out, admin.Socket{Protocol: key.protocol, Path: key.path})
		}
	}
	slices.SortFunc(out, func(a, b admin.Socket) int { return strings.Compare(a.Path, b.Path) })
	return out
}
