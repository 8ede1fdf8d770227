// SPDX-License-Identifier: Apache-2.0

package extauthz

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

// The names of the ConfigMaps that a controller writes begin so, and the labels that they have.
const (
	policyMaps = istio.DataPolicies + "-"
	tenantMaps = istio.DataTenants + "-"
	mapLabels  = istio.LabelManagedBy + "=" + istio.ManagedBy
)

// ConfigMapOptions are what ConfigMaps need.
type ConfigMapOptions struct {
	Client    *kube.Client
	Namespace string
	Policy    *authz.Table
	Tenants   *tenantfile.Feed
	Log       *slog.Logger
	Reloaded  func(error) // counts a change of the policy, nil, or a policy that is refused
}

// ConfigMaps puts into force what a controller writes for ext_authz, within moments: one entry for each cluster in
// ConfigMaps of policies, and one in those of tenants. An entry that is gone stays for the time linger, since entries
// move from one ConfigMap to another, and a cluster without its list is open.
type ConfigMaps struct {
	ConfigMapOptions
	source *kube.Objects

	mu       sync.Mutex
	maps     map[string]map[string]string // data, by the name of the ConfigMap
	policies entries
	tenants  entries
}

// entries are texts by cluster.
type entries struct {
	texts map[string]string
	gone  map[string]time.Time // since when an entry is in no ConfigMap
}

// NewConfigMaps makes ConfigMaps that have read nothing yet.
func NewConfigMaps(o ConfigMapOptions) *ConfigMaps {
	none := func() entries { return entries{map[string]string{}, map[string]time.Time{}} }
	return &ConfigMaps{
		ConfigMapOptions: o, source: kube.NewConfigMaps(o.Client, o.Log, o.Namespace, mapLabels),
		maps: map[string]map[string]string{}, policies: none(), tenants: none(),
	}
}

// Run follows the ConfigMaps until ctx ends.
func (m *ConfigMaps) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	g.Go("follow", func(ctx context.Context) error { return m.source.Run(ctx, m) })
	g.Go("linger", func(ctx context.Context) error {
		for run.Wait(ctx, linger/2) {
			m.apply(func() {})
		}
		return nil
	})
	g.Go("retry", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-m.Tenants.Again():
				m.Tenants.Retry()
			}
		}
	})
	return g.Wait()
}

// Whole implements kube.Receiver.
func (m *ConfigMaps) Whole(all map[string]json.RawMessage, cut bool) {
	m.apply(func() {
		if !cut {
			clear(m.maps)
		}
		for name, raw := range all {
			m.put(name, raw)
		}
	})
}

// One implements kube.Receiver.
func (m *ConfigMaps) One(name string, raw json.RawMessage) { m.apply(func() { m.put(name, raw) }) }

// Away implements kube.Receiver. What is known stays.
func (m *ConfigMaps) Away(why error) { m.Tenants.Away(why) }

func (m *ConfigMaps) put(name string, raw json.RawMessage) {
	_, name, _ = strings.Cut(name, "/")
	var o struct {
		Data map[string]string `json:"data"`
	}
	switch {
	case raw == nil:
		delete(m.maps, name)
	case json.Unmarshal(raw, &o) == nil:
		m.maps[name] = o.Data
	}
}

// apply changes the ConfigMaps, and puts into force what follows: policies first, so that a new tenant has its list.
func (m *ConfigMaps) apply(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	now := time.Now()
	m.setPolicies(m.policies.next(m.all(policyMaps), now))
	if changed, gone := m.tenants.next(m.all(tenantMaps), now); len(changed)+len(gone) > 0 {
		texts := make(map[string][]byte, len(changed))
		for name, text := range changed {
			texts[name] = []byte(text)
		}
		m.Tenants.Change(texts, gone)
	}
}

// all are the entries of the ConfigMaps of one kind.
func (m *ConfigMaps) all(prefix string) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.maps)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for key, text := range m.maps[name] {
			out[strings.TrimSuffix(key, ".yaml")] = text
		}
	}
	return out
}

// next takes over the entries that there are now. It says which are new or changed, and which are gone for good.
func (e entries) next(all map[string]string, now time.Time) (changed map[string]string, gone []string) {
	changed = map[string]string{}
	for name, text := range all {
		delete(e.gone, name)
		if old, there := e.texts[name]; !there || old != text {
			changed[name], e.texts[name] = text, text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.texts)) {
		if _, there := all[name]; there {
			continue
		}
		since, known := e.gone[name]
		switch {
		case !known:
			e.gone[name] = now
		case now.Sub(since) >= linger:
			delete(e.gone, name)
			delete(e.texts, name)
			gone = append(gone, name)
		}
	}
	return changed, gone
}

// setPolicies puts policies into force. One that is refused keeps its last good content; if it never had any, its
// cluster is closed.
func (m *ConfigMaps) setPolicies(changed map[string]string, gone []string) {
	next := map[string]*policy.Policy{}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		file := m.Namespace + "/" + policyMaps + "*/" + name
		p, found := policy.Read(file, []byte(changed[name]), func(string) ([]byte, error) {
			return nil, errors.New("an entry of a ConfigMap cannot name a file")
		})
		if err := policyfile.Fault(file, found); err != nil {
			x := fault.From(err)
			m.Log.Error("a policy is refused; its last good content stays, or else its cluster is closed",
				telemetry.AttrCluster, name, telemetry.AttrCode, x.Code, telemetry.AttrReason, x.Error())
			m.Reloaded(err)
			if m.Policy.Names(name) {
				continue
			}
			p = closed(name)
		}
		next[name] = p
	}
	for _, name := range gone {
		next[name] = nil
	}
	if len(next) == 0 && m.Policy.Configured() {
		return
	}
	m.Policy.Replace(true, next) // no stream lives here that could end
	m.Reloaded(nil)
	m.Log.Info("policy loaded", "changed", len(next))
}

// closed lets nobody into a cluster.
func closed(cluster string) *policy.Policy {
	p, _ := policy.Of(v1alpha1.AccessContent{Rules: []v1alpha1.AccessRule{{
		Name: "unreadable", Clusters: []string{cluster}, Flows: policy.EdgeFlows(),
		Sources: []string{"0.0.0.0/0", "::/0"}, Deny: []string{"*"},
	}}})
	return p
}
