// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"reflect"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/links/read"
	"github.com/tombolo-io/tombolo/internal/control/watch"
	"github.com/tombolo-io/tombolo/internal/link/learn"
)

const (
	relearn = 30 * time.Second // objects of CNIs are not followed
	retry   = 2 * time.Second
	patient = time.Minute // a pass with all that it reads or writes
)

// learner learns the ranges of the own cluster, beside the loop: it reads much, and other changes must not wait for it.
type learner struct {
	from      client.Client // without a cache
	namespace string
	wake      *watch.Loop
	changed   func()

	mu     sync.Mutex
	wanted *question
	known  *learn.Result // nil: nothing yet
	err    error         // of the last reading
}

// question is what the ranges depend on, beside objects that are not followed.
type question struct {
	spec  learn.Spec
	nodes map[string][]string // their ranges, by UID
}

func newLearner(from client.Client, namespace string, changed func()) *learner {
	return &learner{from: from, namespace: namespace, wake: watch.NewLoop(gather), changed: changed}
}

// ask has the ranges learned, at once if the question is another one. It gives what is known now, nil if nothing is.
func (l *learner) ask(spec v1alpha1.ClusterSpec, nodes map[string]node) (*learn.Result, error) {
	q := question{learn.Spec{CNI: spec.CNI, PodRanges: spec.ClusterPodCIDRs, ExternalAPIServer: spec.UseExternalAPIServer},
		map[string][]string{}}
	for _, n := range nodes {
		q.nodes[n.UID] = n.Ranges
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted == nil || !reflect.DeepEqual(*l.wanted, q) {
		l.wanted = &q
		l.wake.Wake()
	}
	return l.known, l.err
}

// run learns until ctx ends.
func (l *learner) run(ctx context.Context) { l.wake.Run(ctx, l.pass) }

func (l *learner) pass(parent context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	l.mu.Lock()
	q := l.wanted
	l.mu.Unlock()
	if q == nil {
		return 0
	}
	facts, err := read.Facts(ctx, l.from, q.spec, l.namespace)
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed := l.err != nil; failed != (err != nil) {
		l.changed()
	}
	if l.err = err; err != nil {
		return retry
	}
	if now := learn.From(facts, q.spec); l.known == nil || !reflect.DeepEqual(*l.known, now) {
		l.known = &now
		l.changed()
	}
	return relearn
}
