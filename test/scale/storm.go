// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// mostStorm is how long a storm may take, in times of the bare handshakes.
const mostStorm = 2.0

// takeStorm lets a hub die and come back, and all of its agents with it, beside
// a second hub whose streams nobody shall disturb.
func takeStorm(ctx context.Context, r *runner) error {
	const calm = 10 // streams of the other hub
	other, err := r.newSite(ctx, calm, 1)
	if err != nil {
		return err
	}
	defer other.stop()
	if err := other.connect(ctx, 0, calm); err != nil {
		return err
	}
	s, err := r.newSite(ctx, r.storm[len(r.storm)-1], 2)
	if err != nil {
		return err
	}
	defer s.stop()
	bare, err := s.startBare(ctx)
	if err != nil {
		return err
	}
	pings, err := other.begin(ctx, loadArgs{Kind: loadPing, Clusters: calm, Streams: calm})
	if err != nil {
		return err
	}
	have := 0
	var storm, naked stormResult
	for _, n := range r.storm {
		if err := s.connect(ctx, have, n-have); err != nil {
			return err
		}
		have = n
		if naked, err = s.storm(ctx, stormArgs{Bare: bare}); err != nil {
			return err
		}
		if storm, err = s.restart(ctx, n); err != nil {
			return err
		}
		r.say("%-10s %6d: %s; bare handshakes: %s %s%s", "storm", n, storm, naked, storm.First, naked.First)
		if err := r.results.Add(record{Measurement: "storm", At: n, Values: map[string]float64{
			"netSeconds": storm.Net.Seconds(), "allSeconds": storm.All.Seconds(), "waitedSeconds": storm.Waited.Seconds(),
			"tries": float64(storm.Tries), "failures": float64(storm.Failures),
			"bareNetSeconds": naked.Net.Seconds(), "bareAllSeconds": naked.All.Seconds(), "bareTries": float64(naked.Tries),
		}}); err != nil {
			return err
		}
	}
	beside, err := other.end(ctx, pings)
	if err != nil {
		return err
	}
	if err := r.latency("storm", "streams of another hub", calm, beside); err != nil {
		return err
	}
	if err := r.line(line{name: "storm of " + grouped(have) + " agents, of bare handshakes, without backoff",
		value: storm.Net.Seconds() / naked.Net.Seconds(), target: mostStorm,
		note: fmt.Sprintf("%s; bare %s", storm, naked)}); err != nil {
		return err
	}
	if err := r.line(line{name: "the same until the last was there, backoff included",
		value: storm.All.Seconds() / naked.All.Seconds(), target: mostStorm}); err != nil {
		return err
	}
	if err := r.line(line{name: "streams of another hub that the storm cut, of " + grouped(calm), value: float64(beside.Failures), target: 0,
		note: beside.First}); err != nil {
		return err
	}
	return r.line(line{name: "streams of the hub that restarts", value: math.NaN(), target: 0, why: "they end with it"})
}

func (r stormResult) String() string {
	return fmt.Sprintf("%.2f s without backoff, %.2f s with it (at most %.2f s), %d tries, %d failed",
		r.Net.Seconds(), r.All.Seconds(), r.Waited.Seconds(), r.Tries, r.Failures)
}

func (s *site) startBare(ctx context.Context) (address string, err error) {
	p, err := s.spawn(roleBare, "bare")
	if err != nil {
		return "", err
	}
	address = s.r.address(8443)
	s.r.sites++
	return address, p.Call(ctx, opStart, 0, bareArgs{Listen: address, CA: s.ca, CAKey: s.caKey}, nil)
}

// storm lets all agents come at once, from all processes.
func (s *site) storm(ctx context.Context, args stormArgs) (out stormResult, err error) {
	var mu sync.Mutex
	return out, s.each(func(_ int, p *roles.Process) error {
		var one stormResult
		err := p.Call(ctx, opStorm, time.Minute, args, &one)
		mu.Lock()
		defer mu.Unlock()
		out = out.worst(one)
		return err
	})
}

// restart kills the hub, waits until every agent has noticed, and starts it anew.
// The agents' clock runs from when it listens again, so that the time that a
// start takes is nobody's.
func (s *site) restart(ctx context.Context, agents int) (out stormResult, err error) {
	s.hub.Kill()
	s.hub.Wait()
	if err := s.each(func(_ int, p *roles.Process) error { return p.Call(ctx, opLost, time.Minute, nil, nil) }); err != nil {
		return out, err
	}
	if err := s.startHub(ctx); err != nil {
		return out, err
	}
	var wg sync.WaitGroup
	var profileErr error
	wg.Go(func() { profileErr = s.profile(ctx, fmt.Sprintf("storm-%d", agents), 4*time.Second) })
	out, err = s.storm(ctx, stormArgs{})
	wg.Wait()
	if err != nil {
		return out, err
	}
	if profileErr != nil {
		return out, profileErr
	}
	l, err := s.look(ctx)
	if err == nil && l.Sessions != agents {
		err = fmt.Errorf("after the storm the hub has %d sessions of %d", l.Sessions, agents)
	}
	return out, err
}
