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
)

// authorizer judges tokens of agents by the API's TokenReview.
func (s *Server) authorizer() (func(context.Context, string) (string, error), error) {
	load := func() (kube.Access, error) { return kube.Load(s.Kubeconfig, s.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	client := kube.NewClientOf(load, nil)
	r := &reviewer{
		want: fmt.Sprintf("system:serviceaccount:%s:%s", s.AgentNamespace, s.AgentServiceAccount),
		review: func(ctx context.Context, token string) (string, error) {
			return client.ReviewToken(ctx, token, s.Audience)
		},
		asking: run.NewLimiter(reviewsAtOnce),
		known:  map[[sha256.Size]byte]time.Time{},
	}
	return r.authorize, nil
}

// reviewer remembers the tokens that were good, for a while. It keeps no token.
type reviewer struct {
	want   string // the user
	review func(ctx context.Context, token string) (user string, err error)
	asking *run.Limiter // of reviews: anybody who reaches the port has one made

	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time // until when
}

func (r *reviewer) authorize(ctx context.Context, token string) (string, error) {
	key := sha256.Sum256([]byte(token))
	if r.remembers(key, time.Now()) {
		return r.want, nil
	}
	if err := r.asking.Acquire(ctx); err != nil {
		return "", err
	}
	user, err := r.review(ctx, token)
	r.asking.Release()
	switch {
	case err != nil:
		return "", err
	case user != r.want:
		return "", fault.New(fault.CodeUnauthorized, "the agent's token is another one's").
			Whyf("it is %s's, and %s is expected", user, r.want).
			Hint("correct --agent-namespace and --agent-service-account, or the agent's account")
	}
	r.remember(key, time.Now())
	return user, nil
}

func (r *reviewer) remembers(key [sha256.Size]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.known[key])
}

func (r *reviewer) remember(key [sha256.Size]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= reviews {
		clear(r.known)
	}
	r.known[key] = now.Add(reviewed)
}
