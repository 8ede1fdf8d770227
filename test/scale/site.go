// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/test/roles"
)

// site is a hub and its agents.
type site struct {
	r         *runner
	args      hubArgs
	ca, caKey []byte // PEM
	hub       *roles.Process
	agents    []*roles.Process
	all       []*roles.Process
}

// newSite makes the state of a hub, for its CA, and starts the hub and so many
// processes of agents. The hub has no policy, or that of a folder.
func (r *runner) newSite(ctx context.Context, clusters, processes int, policies ...string) (s *site, err error) {
	dir, err := r.lab.Dir()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "s"); err != nil {
		return nil, err
	}
	s = &site{r: r, args: hubArgs{Dir: dir, Listen: r.address(8443), Admin: r.address(8444), Clusters: clusters}}
	if len(policies) > 0 {
		s.args.Policies = policies[0]
	}
	r.sites++
	if err := s.authority(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := s.startHub(ctx); err != nil {
		return nil, err
	}
	for i := range processes {
		p, err := s.spawn(roleAgents, "agents"+strconv.Itoa(i+1))
		if err != nil {
			return nil, err
		}
		s.agents = append(s.agents, p)
		if err := p.Call(ctx, opStart, 0, fleetArgs{Hub: s.args.Listen, CA: s.ca, CAKey: s.caKey}, nil); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// address is one on loopback that only this run uses.
func (r *runner) address(port int) string {
	pid := os.Getpid()
	return net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255), strconv.Itoa(port+10*r.sites))
}

// authority makes the hub's CA before the hub opens its state.
func (s *site) authority() error {
	dir := filepath.Join(s.args.Dir, "hub")
	store, err := state.Open(dir)
	if err != nil {
		return err
	}
	ca, err := store.Authority(id.DefaultTrustDomain, time.Now())
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	s.ca = ca.CertificatePEM()
	s.caKey, err = ca.KeyPEM()
	return err
}

func (s *site) spawn(role, name string) (*roles.Process, error) {
	p, err := roles.Spawn(s.r.lab.Here(), role, name)
	if err == nil {
		s.all = append(s.all, p)
	}
	return p, err
}

func (s *site) startHub(ctx context.Context) (err error) {
	if s.hub, err = s.spawn(roleHub, "hub"); err != nil {
		return err
	}
	return s.hub.Call(ctx, opStart, 0, s.args, nil)
}

func (s *site) stop() {
	for _, p := range s.all {
		p.End()
	}
	for _, p := range s.all {
		p.Wait()
	}
}

// each asks all processes of agents for the same at once.
func (s *site) each(do func(i int, p *roles.Process) error) error {
	errs := make([]error, len(s.agents))
	var wg sync.WaitGroup
	for i, p := range s.agents {
		wg.Go(func() { errs[i] = do(i, p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// connect adds the agents of clusters first to first+count-1, split over the processes.
func (s *site) connect(ctx context.Context, first, count int) error {
	return s.each(func(i int, p *roles.Process) error {
		from, to := first+count*i/len(s.agents), first+count*(i+1)/len(s.agents)
		return p.Call(ctx, opConnect, time.Minute, connectArgs{First: from, Count: to - from}, nil)
	})
}

// look reads the hub's figures, after a while without anything.
func (s *site) look(ctx context.Context) (l look, err error) {
	if err := pause(ctx, s.r.settle); err != nil {
		return l, err
	}
	return l, s.hub.Call(ctx, opLook, 0, nil, &l)
}

func (s *site) begin(ctx context.Context, args loadArgs) (n int, err error) {
	return n, s.hub.Call(ctx, opBegin, time.Minute, args, &n)
}

func (s *site) end(ctx context.Context, n int) (out loadResult, err error) {
	return out, s.hub.Call(ctx, opEnd, 0, n, &out)
}

// under puts a load on the hub for a while.
func (s *site) under(ctx context.Context, d time.Duration, args loadArgs) (out loadResult, err error) {
	n, err := s.begin(ctx, args)
	if err != nil {
		return out, err
	}
	if err := pause(ctx, d); err != nil {
		return out, err
	}
	return s.end(ctx, n)
}

// profile leaves profiles of the hub, if the run shall have any, and takes its time for it.
func (s *site) profile(ctx context.Context, name string, d time.Duration) error {
	if !s.r.options.profile {
		return nil
	}
	path, err := filepath.Abs(filepath.Join(s.r.out, "profiles", "scale-"+name))
	if err != nil {
		return err
	}
	return s.hub.Call(ctx, opProfile, d, profileArgs{Path: path, For: d}, nil)
}
