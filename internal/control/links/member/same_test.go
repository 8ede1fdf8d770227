// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

// askedServer is an API server that is asked for a Cluster.
type askedServer struct {
	client.Client
	has   *objects.Cluster
	fails error
	times int
}

func (a *askedServer) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.times++
	switch {
	case a.fails != nil:
		return a.fails
	case a.has == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, key.Name)
	}
	a.has.DeepCopyInto(into.(*objects.Cluster))
	return nil
}

// TestHostItself: a host cluster that is the own one is known, even while the cache has not got its objects, and none of
// them is made a copy.
func TestHostItself(t *testing.T) {
	host := nothing().put("a", "x", "h", false)
	for name, c := range map[string]struct {
		own   linked
		has   *objects.Cluster
		fails error
		want  bool
		asked int
	}{
		"in the cache":         {own: host, want: true},
		"not in the cache yet": {own: nothing(), has: host.clusters["a"], want: true, asked: 1},
		"a copy":               {own: nothing().put("a", "x", "o", true)},
		"none yet":             {own: nothing(), asked: 1},
		"away":                 {own: nothing(), fails: errors.New("away"), asked: 1},
	} {
		server := &askedServer{has: c.has, fails: c.fails}
		l := &loop{cfg: controlconf.Links{Cluster: "a"}, own: server, there: &there{copies: true}}
		got, err := l.same(t.Context(), host, c.own)
		if got != c.want || l.there.copies == c.want || (err != nil) != (c.fails != nil) || server.times != c.asked {
			t.Errorf("%s: %v, %v, asked %d times", name, got, err, server.times)
		}
	}
}
