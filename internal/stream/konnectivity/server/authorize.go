// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// reviewer judges tokens of agents by the API's TokenReview.
func (s *Server) reviewer() (*reviewer, error) {
	load := func() (kube.Access, error) { return kube.Load(s.Kubeconfig, s.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	client := kube.NewClientOf(load, nil)
	return &reviewer{
		want: fmt.Sprintf("system:serviceaccount:%s:%s", s.AgentNamespace, s.AgentServiceAccount),
		review: func(ctx context.Context, token string) (kube.Review, error) {
			return client.ReviewToken(ctx, token, s.Audience)
		},
		count:  func(o outcome) { s.metrics.Reviews.WithLabelValues(string(o)).Inc() },
		every:  cmp.Or(s.Reviews, reviewEvery),
		asking: run.NewLimiter(reviewsAtOnce), again: run.NewLimiter(reviewsAgain),
		known: map[[sha256.Size]byte]judged{},
	}, nil
}

// reviewer remembers the tokens that were good, for a while. It keeps no token but those of agents that are connected.
type reviewer struct {
	want   string // the user
	review func(ctx context.Context, token string) (kube.Review, error)
	count  func(outcome)
	every  time.Duration // between two reviews of a token, at least
	asking *run.Limiter  // of first reviews: anybody who reaches the port has one made
	again  *run.Limiter  // of the others

	mu    sync.Mutex
	known map[[sha256.Size]byte]judged
}

// judged is a token that was good.
type judged struct {
	holder konnectivity.Holder
	until  time.Time // it is not asked about again
}

func (r *reviewer) authorize(ctx context.Context, token string) (konnectivity.Holder, error) {
	key := sha256.Sum256([]byte(token))
	if holder, ok := r.remembers(key, time.Now()); ok {
		return holder, nil
	}
	holder, err := r.ask(ctx, token, r.asking)
	if err != nil {
		return holder, err
	}
	r.remember(key, holder, time.Now())
	return holder, nil
}

// ask has the API server judge a token.
func (r *reviewer) ask(ctx context.Context, token string, places *run.Limiter) (konnectivity.Holder, error) {
	if err := places.Acquire(ctx); err != nil {
		return konnectivity.Holder{}, err
	}
	defer places.Release()
	got, err := r.review(ctx, token)
	switch {
	case err != nil:
		return konnectivity.Holder{}, err
	case got.User != r.want:
		return konnectivity.Holder{}, fault.New(fault.CodeUnauthorized, "the agent's token is another one's").
			Whyf("it is %s's, and %s is expected", got.User, r.want).
			Hint("correct --agent-namespace and --agent-service-account, or the agent's account")
	}
	return konnectivity.HolderOfToken(got.User, got.Node), nil
}

func (r *reviewer) remembers(key [sha256.Size]byte, now time.Time) (konnectivity.Holder, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.known[key]
	return j.holder, now.Before(j.until)
}

func (r *reviewer) remember(key [sha256.Size]byte, holder konnectivity.Holder, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= reviews {
		clear(r.known)
	}
	r.known[key] = judged{holder, now.Add(reviewed)}
}

func (r *reviewer) forget(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, sha256.Sum256([]byte(token)))
}
