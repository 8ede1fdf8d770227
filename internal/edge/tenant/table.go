// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

// key is what a connection is routed by. No two ways have one.
type key struct {
	name        string // exact, or an end with a leading dot or hyphen
	protocol    string
	destination connecthead.Destination
}

// String says what a way claims, for people.
func (k key) String() string {
	switch {
	case k.destination != connecthead.Destination{}:
		return fmt.Sprintf("destination %q", k.destination)
	case k.name == "":
		return fmt.Sprintf("protocol %q without a name", k.protocol)
	}
	name := Pattern(k.name)
	if k.protocol != "" {
		return fmt.Sprintf("name %q with protocol %q", name, k.protocol)
	}
	return fmt.Sprintf("name %q", name)
}

// isEnd reports whether a name stands for all that end so.
func isEnd(name string) bool { return name != "" && (name[0] == '.' || name[0] == '-') }

// Pattern is a name of a way as tenants are written.
func Pattern(name string) string {
	if isEnd(name) {
		return "*" + name
	}
	return name
}

// each calls do with every key of a way, and the field that it comes from.
func (w *Way) each(do func(k key, field string)) {
	for i, d := range w.Destinations {
		do(key{destination: d}, fmt.Sprintf("destinations[%d]", i))
	}
	names, protocols := w.Names, w.Protocols
	if len(names) == 0 && len(protocols) == 0 {
		return
	}
	if len(names) == 0 {
		names = []string{""}
	}
	if len(protocols) == 0 {
		protocols = []string{""}
	}
	for i, n := range names {
		for j, p := range protocols {
			field := fmt.Sprintf("names[%d]", i)
			if n == "" {
				field = fmt.Sprintf("protocols[%d]", j)
			}
			do(key{name: n, protocol: p}, field)
		}
	}
}

// Route is where a connection goes.
type Route struct {
	Tenant *Tenant
	Way    *Way
}

// Claim is a name, protocol or destination that another tenant has.
type Claim struct {
	Path  string // of the field, such as spec.ways[0].names[1]
	What  string
	Other string // name of the tenant that has it
}

// Table routes connections. It may be used by many at a time; a tenant is changed as a
// whole, at a cost that does not depend on the number of tenants.
type Table struct {
	mu      sync.RWMutex
	tenants map[string]*Tenant
	routes  map[key]Route
}

// NewTable makes an empty one.
func NewTable() *Table { return &Table{tenants: map[string]*Tenant{}, routes: map[key]Route{}} }

// Put adds a tenant, or takes it in the place of the one with its name. If others have
// what it claims, nothing changes: who came first stays.
func (t *Table) Put(tenant *Tenant) []Claim { return t.Replace(tenant.Name, tenant) }

// Replace is Put of a tenant that also takes the place of the one called old: its name has changed.
func (t *Table) Replace(old string, tenant *Tenant) []Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []Claim
	for i := range tenant.Ways {
		tenant.Ways[i].each(func(k key, field string) {
			if r, taken := t.routes[k]; taken && r.Tenant.Name != tenant.Name && r.Tenant.Name != old {
				claims = append(claims, Claim{fmt.Sprintf("spec.ways[%d].%s", i, field), k.String(), r.Tenant.Name})
			}
		})
	}
	if len(claims) > 0 {
		return claims
	}
	t.remove(old)
	t.remove(tenant.Name)
	t.tenants[tenant.Name] = tenant
	for i := range tenant.Ways {
		w := &tenant.Ways[i]
		w.each(func(k key, _ string) { t.routes[k] = Route{tenant, w} })
	}
	return nil
}

// Remove takes a tenant away.
func (t *Table) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(name)
}

func (t *Table) remove(name string) {
	old := t.tenants[name]
	if old == nil {
		return
	}
	delete(t.tenants, name)
	for i := range old.Ways {
		old.Ways[i].each(func(k key, _ string) { delete(t.routes, k) })
	}
}

// Get finds a tenant by its name; nil: there is none.
func (t *Table) Get(name string) *Tenant {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.tenants[name]
}

// Len is the number of tenants.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.tenants)
}

// All lists the tenants by name.
func (t *Table) All() []*Tenant {
	t.mu.RLock()
	out := slices.Collect(maps.Values(t.tenants))
	t.mu.RUnlock() // sorting many takes longer than a route may wait
	slices.SortFunc(out, func(a, b *Tenant) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ByName routes a TLS client: by the most exact name, with one of the protocols it
// offers before none; then by a protocol alone.
func (t *Table) ByName(name string, protocols []string) (Route, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if name != "" {
		if r, ok := t.at(name, protocols, true); ok {
			return r, true
		}
		for i := 1; i < len(name); i++ { // the longest end first; an end is not the whole name
			if !isEnd(name[i:]) {
				continue
			}
			if r, ok := t.at(name[i:], protocols, true); ok {
				return r, true
			}
		}
	}
	return t.at("", protocols, false)
}

func (t *Table) at(name string, protocols []string, without bool) (Route, bool) {
	for _, p := range protocols {
		if r, ok := t.routes[key{name: name, protocol: p}]; ok && p != "" {
			return r, true
		}
	}
	if !without {
		return Route{}, false
	}
	r, ok := t.routes[key{name: name}]
	return r, ok
}

// ByDestination routes a CONNECT.
func (t *Table) ByDestination(d connecthead.Destination) (Route, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.routes[key{destination: d}]
	return r, ok
}
