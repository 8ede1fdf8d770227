// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// again is when an API server that does not have a kind is asked once more.
const again = 2 * time.Second

// Host is what a Source needs of a manager.
type Host interface {
	GetConfig() *rest.Config
	GetHTTPClient() *http.Client
	GetScheme() *runtime.Scheme
	GetRESTMapper() meta.RESTMapper
	GetCache() cache.Cache
}

// Source is what a loop reads.
type Source struct {
	Host   Host
	Log    *slog.Logger
	Until  string             // what does not happen before the API server has all kinds of Theirs, for the log
	Theirs []schema.GroupKind // read into a cache of their own, unstructured
	Ours   []client.Object    // read by the manager's cache
	// Options narrows the cache of Theirs; nil: all objects are kept as they are.
	Options func(versions []schema.GroupVersionKind) cache.Options
	// Same reports whether an update changed nothing that the loop reads; nil: each update counts.
	Same func(old, next client.Object) bool
	Wake func() // something changed; must not block
	// Edited is called before Wake if it was one of Ours; nil: it makes no difference.
	Edited func()
	// Missing is called with the kinds that the API server does not have, as long as it lacks some; nil: nobody is told.
	Missing func(ctx context.Context, kinds []schema.GroupKind)
}

// Run calls fn with the cache and the versions of Theirs as soon as the API server has all kinds and they have been
// read. It ends when fn does, with its error, and without an error when ctx ends before.
func (s Source) Run(ctx context.Context, fn func(cache.Cache, []schema.GroupVersionKind) error) error {
	versions, ok := s.versions(ctx)
	if !ok {
		return nil
	}
	var o cache.Options
	if s.Options != nil {
		o = s.Options(versions)
	}
	o.HTTPClient, o.Scheme, o.Mapper = s.Host.GetHTTPClient(), s.Host.GetScheme(), s.Host.GetRESTMapper()
	theirs, err := cache.New(s.Host.GetConfig(), o)
	if err != nil {
		return err
	}
	g := run.NewGroup(ctx)
	g.Go("caches", theirs.Start)
	defer func() {
		g.Stop()
		_ = g.Wait() // it ends with its context
	}()
	for _, kind := range versions {
		if err := Objects(ctx, theirs, Bare(kind), s.Same, s.Wake); err != nil {
			return err
		}
	}
	edited := s.Wake
	if s.Edited != nil {
		edited = func() { s.Edited(); s.Wake() }
	}
	for _, kind := range s.Ours {
		if err := Objects(ctx, s.Host.GetCache(), kind, s.Same, edited); err != nil {
			return err
		}
	}
	if !theirs.WaitForCacheSync(ctx) || !s.Host.GetCache().WaitForCacheSync(ctx) {
		return nil
	}
	return fn(theirs, versions)
}

// versions waits until the API server has all kinds. It gives the versions of Theirs, and reports false if ctx ended
// before.
func (s Source) versions(ctx context.Context) (out []schema.GroupVersionKind, ok bool) {
	kinds := slices.Clone(s.Theirs)
	for _, o := range s.Ours {
		kind, err := apiutil.GVKForObject(o, s.Host.GetScheme())
		if err == nil { // of one without a kind nothing can be asked: reading it fails
			kinds = append(kinds, kind.GroupKind())
		}
	}
	said := ""
	for {
		out = nil
		var missing []schema.GroupKind
		var names []string
		for i, kind := range kinds {
			m, err := s.Host.GetRESTMapper().RESTMapping(kind)
			switch {
			case err == nil && i < len(s.Theirs):
				out = append(out, m.GroupVersionKind)
			case err == nil:
			case meta.IsNoMatchError(err):
				missing, names = append(missing, kind), append(names, kind.String())
			default: // the API server is away
				names = append(names, kind.String())
			}
		}
		if len(names) == 0 {
			return out, true
		}
		if now := strings.Join(names, ", "); now != said {
			said = now
			s.Log.Warn("the API server does not have all kinds yet", "kinds", now, "until", s.Until)
		}
		if len(missing) > 0 && s.Missing != nil {
			s.Missing(ctx, missing)
		}
		if !run.Wait(ctx, again) {
			return nil, false
		}
	}
}

// Kinds waits until the API server has all kinds of a Source. It reports false if ctx ended before.
func (s Source) Kinds(ctx context.Context) bool {
	_, ok := s.versions(ctx)
	return ok
}

// Bare is an object of a kind without a name.
func Bare(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// Objects calls wake when an object of a kind comes, goes or changes; same is as in Source.
func Objects(ctx context.Context, c cache.Cache, kind client.Object, same func(old, next client.Object) bool,
	wake func()) error {
	i, err := c.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake() },
		DeleteFunc: func(any) { wake() },
		UpdateFunc: func(old, next any) {
			a, ok := old.(client.Object)
			b, is := next.(client.Object)
			if same == nil || !ok || !is || !same(a, b) {
				wake()
			}
		},
	})
	return err
}
