// SPDX-License-Identifier: Apache-2.0

package server

import (
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

// authorizer judges tokens of agents by the API's TokenReview.
func (s *Server) authorizer() (func(context.Context, string) (konnectivity.Holder, error), error) {
	load := func() (kube.Access, error) { return kube.Load(s.Kubeconfig, s.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	client := kube.NewClientOf(load, nil)
	r := &reviewer{
		want: fmt.Sprintf("system:serviceaccount:%s:%s", s.AgentNamespace, s.AgentServiceAccount),
		review: func(ctx context.Context, token string) (kube.Review, error) {
			return client.ReviewToken(ctx, token, s.Audience)
		},
		asking: run.NewLimiter(reviewsAtOnce),
		known:  map[[sha256.Size]byte]judged{},
	}
	return r.authorize, nil
}

// reviewer remembers the tokens that were good, for a while. It keeps no token.
type reviewer struct {
	want   string // the user
	review func(ctx context.Context, token string) (kube.Review, error)
	asking *run.Limiter // of reviews: anybody who reaches the port has one made

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
	if err := r.asking.Acquire(ctx); err != nil {
		return konnectivity.Holder{}, err
	}
	got, err := r.review(ctx, token)
	r.asking.Release()
	switch {
	case err != nil:
		return konnectivity.Holder{}, err
	case got.User != r.want:
		return konnectivity.Holder{}, fault.New(fault.CodeUnauthorized, "the agent's token is another one's").
			Whyf("it is %s's, and %s is expected", got.User, r.want).
			Hint("correct --agent-namespace and --agent-service-account, or the agent's account")
	}
	holder := konnectivity.HolderOfToken(got.User, got.Node)
	r.remember(key, holder, time.Now())
	return holder, nil
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
