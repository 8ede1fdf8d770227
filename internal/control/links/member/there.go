// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/control/manager"
)

const (
	// asked is how long the host cluster may take for an answer before it counts as away.
	asked = 5 * time.Second
	// lookEvery is how often it is asked whether it is there: libraries do not say that it refuses connections.
	lookEvery = 3 * time.Second
	// mostWait bounds the time between two tries to reach it.
	mostWait = 20 * time.Second
)

// there is the host cluster.
type there struct {
	client client.Client // without a cache
	groups rest.Interface
	clock  *clock
	config *rest.Config
	copies bool // it is another cluster than the own one, as far as is known
	name   string
	wake   func()
	again  chan struct{} // follow it anew

	mu     sync.Mutex
	cache  cache.Cache
	synced []func() bool // of what is followed; nil: nothing is yet
	doubt  error         // why it may be away
	gone   bool          // it was away
	tries  int
}

func newThere(cfg controlconf.Links, h manager.Host, wake func(), now func() time.Time) (*there, error) {
	out := &there{name: cfg.Cluster, config: rest.CopyConfig(h.GetConfig()), again: make(chan struct{}, 1), wake: wake,
		clock: &clock{now: now, changed: wake}}
	var err error
	if cfg.HostKubeconfig != "" {
		if out.config, err = remote(cfg.HostKubeconfig, h.GetConfig()); err != nil {
			return nil, err
		}
		out.copies = true
	}
	out.config.Wrap(out.clock.wrap)
	if out.client, err = client.New(out.config, client.Options{Scheme: h.GetScheme()}); err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(out.config)
	if err != nil {
		return nil, err
	}
	out.groups = d.RESTClient()
	return out, nil
}

func remote(file string, own *rest.Config) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "it is not known how to reach the host cluster").Because(err).
			Hint("correct features.links.hostKubeconfig")
	}
	config.UserAgent, config.QPS, config.Burst = own.UserAgent, own.QPS, own.Burst
	return config, nil
}

// run follows the objects of the host cluster until ctx ends. One that was away is followed anew: libraries wait up to
// a minute until they ask again.
func (t *there) run(ctx context.Context) error {
	for ctx.Err() == nil {
		c, err := cache.New(t.config, cache.Options{Scheme: t.client.Scheme(), Mapper: t.client.RESTMapper(),
			DefaultTransform: cache.TransformStripManagedFields(), DefaultWatchErrorHandler: t.broke})
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.cache, t.synced = c, nil
		t.mu.Unlock()
		g := run.NewGroup(ctx)
		g.Go("cache", c.Start)
		g.Go("kinds", func(ctx context.Context) error {
			for !t.follow(ctx, c) {
				if !run.Wait(ctx, t.pause()) {
					return nil
				}
			}
			return nil
		})
		g.Go("look", func(ctx context.Context) error {
			for run.Wait(ctx, lookEvery) {
				if err := t.look(ctx); err != nil && ctx.Err() == nil {
					t.doubted(err)
				}
			}
			return nil
		})
		g.Go("anew", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-t.again:
				g.Stop()
			}
			return nil
		})
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// broke is what reading objects ended with. That a watch ends is nothing unusual.
func (t *there) broke(_ context.Context, _ *toolscache.Reflector, err error) {
	if !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.doubted(err)
	}
}

// follow begins to follow, if the API server has the kinds.
func (t *there) follow(ctx context.Context, c cache.Cache) bool {
	var synced []func() bool
	for _, kind := range []client.Object{&objects.Cluster{}, &objects.ClusterNode{}} {
		i, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { t.wake() }, DeleteFunc: func(any) { t.wake() }, UpdateFunc: func(any, any) { t.wake() },
			})
		}
		if err != nil {
			t.doubted(err)
			return false
		}
		synced = append(synced, i.HasSynced)
	}
	t.mu.Lock()
	t.synced = synced
	t.mu.Unlock()
	t.wake()
	return true
}

// doubted notes that the host cluster may be away, and has the loop ask it.
func (t *there) doubted(err error) {
	if t.suspect(err) {
		t.wake()
	}
}

// suspect notes that the host cluster may be away. It reports whether that is new.
func (t *there) suspect(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doubt != nil {
		return false
	}
	t.doubt = err
	return true
}

// whole is a reader of all objects of the host cluster: what it does not have is not there. It is nil as long as not
// all of them were read.
func (t *there) whole() client.Reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.completeLocked() {
		return nil
	}
	return t.cache
}

// completeLocked reports whether all objects were read; mu is held.
func (t *there) completeLocked() bool {
	for _, synced := range t.synced {
		if !synced() {
			return false
		}
	}
	return len(t.synced) > 0
}

// away says why the host cluster cannot be used. One that is in doubt is asked.
func (t *there) away(ctx context.Context) error {
	t.mu.Lock()
	doubt := t.doubt
	t.mu.Unlock()
	if doubt == nil {
		return nil
	}
	err := t.ask(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch complete := t.completeLocked(); {
	case err != nil:
		t.doubt, t.gone = err, t.gone || complete
		return err
	case !complete: // it answers, but does not give its objects
		return doubt
	case t.gone:
		t.synced = nil // what is known is old
		select {
		case t.again <- struct{}{}:
		default:
		}
	}
	t.doubt, t.gone, t.tries = nil, false, 0
	return nil
}

// ask asks the host cluster whether it is there, with all kinds. A kind that is about to go counts as gone: its objects
// go first, and what is known of other clusters has to stay.
func (t *there) ask(ctx context.Context) error {
	if err := t.look(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	var served metav1.APIResourceList
	err := t.groups.Get().AbsPath("/apis", objects.GroupVersion().Group, objects.GroupVersion().Version).Do(ctx).
		Into(&served)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return lacking(served.APIResources)
}

// lacking says which kind of linked clusters an API server does not serve: of one that is about to go no object can be
// created.
func lacking(served []metav1.APIResource) error {
	for _, kind := range []string{v1alpha1.KindCluster, v1alpha1.KindClusterNode} {
		if !slices.ContainsFunc(served, func(r metav1.APIResource) bool {
			return r.Kind == kind && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "create")
		}) {
			return &meta.NoKindMatchError{GroupKind: objects.GroupVersion().WithKind(kind).GroupKind(),
				SearchedVersions: []string{objects.GroupVersion().Version}}
		}
	}
	return nil
}

// look asks the host cluster whether it is there.
func (t *there) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	err := t.client.Get(ctx, client.ObjectKey{Name: t.name}, &objects.Cluster{})
	if kinds.Lacking(err, v1alpha1.KindCluster) != nil {
		return err
	}
	return client.IgnoreNotFound(err)
}

// sure asks the host cluster before something is removed that it does not have any longer.
func (t *there) sure(ctx context.Context) error {
	err := t.ask(ctx)
	if err != nil {
		t.doubted(err)
	}
	return err
}

// pause is how long to wait before the next try.
func (t *there) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries++
	return run.Backoff(t.tries, mostWait, rand.Float64())
}
