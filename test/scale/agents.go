// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that agents answer.
const (
	opStart   = "start"   // args: fleetArgs
	opConnect = "connect" // args: connectArgs; waits until all hold a session
	opLost    = "lost"    // waits until none holds a session
	opStorm   = "storm"   // args: stormArgs; result: stormResult
)

// fleetArgs start a process of agents.
type fleetArgs struct {
	Hub   string `json:"hub"`
	CA    []byte `json:"ca"` // PEM
	CAKey []byte `json:"caKey"`
}

// connectArgs add agents, of the clusters from First on.
type connectArgs struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// stormArgs let all agents come at once.
type stormArgs struct {
	Bare string `json:"bare,omitempty"` // an address that takes TLS and no more; empty: the hub
}

// stormResult says how a storm went. Net is without what an agent waited of its
// own accord, the configured backoff with its jitter.
type stormResult struct {
	All      time.Duration `json:"all"`    // until the last one was there
	Net      time.Duration `json:"net"`    // of the agent with the longest
	Waited   time.Duration `json:"waited"` // of the agent that waited longest
	Tries    int64         `json:"tries"`
	Failures int64         `json:"failures"`
	First    string        `json:"first,omitempty"` // of them
}

// worst joins the results of several processes.
func (r stormResult) worst(o stormResult) stormResult {
	if r.First == "" {
		r.First = o.First
	}
	return stormResult{
		All: max(r.All, o.All), Net: max(r.Net, o.Net), Waited: max(r.Waited, o.Waited),
		Tries: r.Tries + o.Tries, Failures: r.Failures + o.Failures, First: r.First,
	}
}

// agentsRole is the role of many agents.
type agentsRole struct {
	fleet fleet
	all   []*simulated
}

// Do implements roles.Role.
func (r *agentsRole) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opStart:
		return nil, r.start(raw)
	case opConnect:
		return nil, r.connect(raw)
	case opLost:
		for _, a := range r.all {
			<-a.done()
		}
		return nil, nil
	case opStorm:
		return r.storm(raw)
	}
	return nil, roles.ErrUnknown
}

func (r *agentsRole) start(raw json.RawMessage) error {
	args, err := roles.Arguments[fleetArgs](raw)
	if err != nil {
		return err
	}
	debug.SetGCPercent(400) // the agents' own costs are not measured, and take the hub's cores
	r.fleet.hub, r.fleet.unread = args.Hub, carrier.NewBudget(limit.AgentUnread)
	if r.fleet.key, err = trust.NewKey(); err != nil {
		return err
	}
	r.fleet.ca, err = trust.ParseAuthority(args.CA, args.CAKey)
	return err
}

func (r *agentsRole) connect(raw json.RawMessage) error {
	args, err := roles.Arguments[connectArgs](raw)
	if err != nil {
		return err
	}
	begin := len(r.all)
	for i := range args.Count {
		a, err := r.fleet.newSimulated(args.First + i)
		if err != nil {
			return err
		}
		r.all = append(r.all, a)
	}
	return roles.InParallel(args.Count, 32, func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), roles.Patience)
		defer cancel()
		return r.all[begin+i].connect(ctx)
	})
}

// storm lets each agent come back as the product's agent does: it waits, tries,
// and waits longer after each failure.
func (r *agentsRole) storm(raw json.RawMessage) (out stormResult, err error) {
	args, err := roles.Arguments[stormArgs](raw)
	if err != nil {
		return out, err
	}
	var mu sync.Mutex
	var tries, failures atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), roles.Patience)
	defer cancel()
	begin := time.Now()
	for _, a := range r.all {
		wg.Go(func() {
			var waited time.Duration
			for try := 0; ; try++ {
				wait := run.Backoff(try, limit.BackoffMost, rand.Float64())
				waited += wait
				time.Sleep(wait)
				tries.Add(1)
				comeErr := a.come(ctx, args.Bare)
				if comeErr != nil {
					failures.Add(1)
				}
				mu.Lock()
				took := time.Since(begin)
				if comeErr != nil && out.First == "" {
					out.First = comeErr.Error()
				}
				if comeErr == nil || ctx.Err() != nil {
					out.All, out.Net, out.Waited = max(out.All, took), max(out.Net, took-waited), max(out.Waited, waited)
					mu.Unlock()
					return
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	out.Tries, out.Failures = tries.Load(), failures.Load()
	if ctx.Err() != nil {
		return out, errors.New("the storm did not end; the first failure: " + out.First)
	}
	return out, nil
}

// come makes a session with the hub, or shakes hands with the bare end.
func (a *simulated) come(ctx context.Context, bare string) error {
	if bare == "" {
		return a.connect(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake+limit.Hello)
	defer cancel()
	conn, err := a.shake(ctx, bare)
	if err != nil {
		return err
	}
	defer conn.NetConn().Close()
	// The other end says when it is done, too: with TLS 1.3 the client is first.
	deadline, _ := ctx.Deadline()
	conn.SetReadDeadline(deadline)
	_, err = conn.Read(make([]byte, 1))
	return err
}
