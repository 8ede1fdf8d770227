// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// data is what ext_authz decides by.
type data struct {
	rules        *policy.EdgeRules
	destinations map[string]policy.EdgeWay
	hosts        map[string]policy.EdgeWay
	protected    map[string]bool
	err          error // a part cannot be read
}

// readData reads the ConfigMaps that are written for ext_authz.
func readData(objects []ConfigMap, namespace string) *data {
	out := &data{destinations: map[string]policy.EdgeWay{}, hosts: map[string]policy.EdgeWay{},
		protected: map[string]bool{}}
	var policies []*policy.Policy
	for _, m := range objects {
		name := m.Metadata.Name
		if m.Metadata.Namespace != namespace || m.Metadata.Labels[LabelManagedBy] != ManagedBy {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(m.Data)) {
			file := m.Metadata.key() + "/" + key
			switch {
			case strings.HasPrefix(name, DataPolicies+"-"):
				p, findings := policy.Read(file, []byte(m.Data[key]), func(string) ([]byte, error) {
					return nil, errors.New("it names a file")
				})
				if p == nil {
					out.err = fmt.Errorf("%s cannot be read: %d findings", file, len(findings))
				}
				policies = append(policies, p)
			case strings.HasPrefix(name, DataTenants+"-"):
				out.tenant(file, []byte(m.Data[key]))
			}
		}
	}
	out.rules = policy.NewEdgeRules(policies...)
	return out
}

func (d *data) tenant(file string, text []byte) {
	var t v1alpha1.EdgeTenant
	if err := conf.Decode(file, text, &t).Err(); err != nil {
		d.err = fmt.Errorf("%s cannot be read", file)
		return
	}
	d.protected[t.Metadata.Name] = t.Spec.Protected
	for _, w := range t.Spec.Ways {
		way := policy.EdgeWay{Cluster: t.Metadata.Name, Flow: w.Flow}
		for _, x := range w.Destinations {
			d.destinations[x] = way
		}
		for _, h := range w.Names {
			d.hosts[h] = way
		}
	}
}

// about is what ext_authz decides of a shape.
func (d *data) about(s shape) (ask func(netip.Addr) (bool, string, error), starts func(func(netip.Prefix))) {
	none := func(func(netip.Prefix)) {}
	refuse := func(why string) func(netip.Addr) (bool, string, error) {
		return func(netip.Addr) (bool, string, error) { return false, why, d.err }
	}
	way, known := policy.EdgeWay{}, false
	if s.http {
		var value string
		for _, h := range connectHeaders() {
			if v, ok := s.headers[h]; ok && value != "" {
				return refuse("two headers name a destination"), none
			} else if ok {
				value = v
			}
		}
		way, known = d.destinations[value]
	} else {
		way, known = d.host(s.sni)
	}
	if !known {
		return refuse("ext_authz knows no such tenant"), none
	}
	ask = func(a netip.Addr) (bool, string, error) {
		v := d.rules.Decide(way, a, d.protected[way.Cluster])
		return v.Allow, v.Why(), d.err
	}
	return ask, func(add func(netip.Prefix)) {
		for _, r := range d.rules.Spans(way.Cluster, way.Flow) {
			for _, p := range r.Prefixes() {
				add(p)
			}
		}
	}
}

// host finds the tenant of a server name: the exact one, else the longest suffix.
func (d *data) host(name string) (policy.EdgeWay, bool) {
	if w, ok := d.hosts[name]; ok {
		return w, true
	}
	for i := 1; i < len(name); i++ {
		if name[i] != '.' && name[i] != '-' {
			continue
		}
		if w, ok := d.hosts["*"+name[i:]]; ok {
			return w, true
		}
	}
	return policy.EdgeWay{}, false
}
