// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

// feed is a source of tenants that is followed until the edge ends.
type feed struct {
	*tenantfile.Feed
	follow func(ctx context.Context, into *tenantfile.Feed) error
}

func (f *feed) run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	g.Go("follow", func(ctx context.Context) error { return f.follow(ctx, f.Feed) })
	g.Go("retry", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-f.Again():
				f.Retry()
			}
		}
	})
	return g.Wait()
}

// tenant is the text of the tenant of a cluster.
func (h Hub) tenant(cluster string) []byte {
	way := v1alpha1.EdgeWay{
		Flow: h.Tenants.Flow, ProxyProtocol: h.Tenants.ProxyProtocol,
		Hubs: []v1alpha1.EdgeStream{{Name: h.Name, Cluster: cluster, Target: h.Tenants.Target}},
	}
	if way.Flow == "" {
		way.Flow = "api"
	}
	for _, n := range h.Tenants.Names {
		way.Names = append(way.Names, strings.ReplaceAll(n, id.ClusterMark, cluster))
	}
	text, err := json.Marshal(v1alpha1.EdgeTenant{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindEdgeTenant},
		Metadata: v1alpha1.ObjectName{Name: cluster},
		Spec:     v1alpha1.EdgeTenantSpec{Protected: h.Tenants.Protected, Ways: []v1alpha1.EdgeWay{way}},
	})
	if err != nil {
		return nil // there is nothing in it that JSON lacks
	}
	return text
}

// hubFeed makes tenants of a hub's clusters.
type hubFeed struct {
	door *hubDoor
	log  *slog.Logger
}

// follow asks for the names of the clusters, and waits at the hub for others. While the hub gives no
// answer, the last known tenants stay.
func (h *hubFeed) follow(ctx context.Context, into *tenantfile.Feed) error {
	version, told, pause := "", fault.Code(""), feedFirst
	for {
		names, err := h.ask(ctx, version)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			into.Away(err)
			f := fault.From(err)
			if f.Code != told {
				h.log.Warn("a hub does not say which clusters it has; the last known tenants stay", "hub", h.door.Name,
					telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
			}
			told = f.Code
			if !run.Wait(ctx, pause/2+rand.N(pause/2)) {
				return nil
			}
			pause = min(2*pause, feedMost)
			continue
		}
		told, pause = "", feedFirst
		if names.Version != version {
			version = names.Version
			texts := make(map[string][]byte, len(names.Names))
			for _, cluster := range names.Names {
				texts[cluster] = h.door.tenant(cluster)
			}
			into.Replace(texts)
		}
		into.Away(nil)
		if !run.Wait(ctx, feedFirst) { // whatever the hub does, it is asked once a second at most
			return nil
		}
	}
}

func (h *hubFeed) ask(ctx context.Context, version string) (out admin.ClusterNames, err error) {
	client, err := h.door.now()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, namesAnswer)
	defer cancel()
	query := url.Values{"target": {h.door.Tenants.Target}, "version": {version}}
	err = client.Call(ctx, http.MethodGet, "/v1/clusters/names?"+query.Encode(), nil, &out)
	if err == nil && out.Version == "" {
		err = fault.New(fault.CodeHubAway, "the answer is not a hub's")
	}
	return out, err
}

// objects makes tenants of objects of kind EdgeTenant. While the API server is away, what is known stays.
type objects struct{ *tenantfile.Feed }

// Whole implements kube.Receiver.
func (o objects) Whole(all map[string]json.RawMessage, cut bool) {
	texts := make(map[string][]byte, len(all))
	for name, raw := range all {
		texts[name] = objectText(raw)
	}
	if cut { // what is not in it may exist
		o.Change(texts, nil)
		return
	}
	o.Replace(texts)
}

// One implements kube.Receiver.
func (o objects) One(name string, raw json.RawMessage) {
	if raw == nil {
		o.Change(nil, []string{name})
		return
	}
	o.Change(map[string][]byte{name: objectText(raw)}, nil)
}

// objectText is an object as a file has it, without what the API server adds.
func objectText(raw json.RawMessage) []byte {
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec,omitempty"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return raw // which is refused
	}
	o.APIVersion, o.Kind = cmp.Or(o.APIVersion, v1alpha1.Version), cmp.Or(o.Kind, v1alpha1.KindEdgeTenant)
	text, err := json.Marshal(o)
	if err != nil {
		return raw
	}
	return text
}
