// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// goodTenant is a tenant with what is in force of it.
type goodTenant struct {
	version string // of what is stored
	inForce
	Ways
}

// inForce is a tenant that counts.
type inForce struct {
	tenant  *tenant.Tenant // nil: none does
	spec    v1alpha1.EdgeTenantSpec
	partial bool // what can be read of one that is refused
}

func (f inForce) claims() (out []string) {
	if f.tenant == nil {
		return nil
	}
	out = append(out, nameClaim(f.tenant.Name))
	for claim := range f.tenant.Claims() {
		out = append(out, claim)
	}
	slices.Sort(out)
	return out
}

func nameClaim(name string) string { return fmt.Sprintf("cluster %q", name) }

// home is the namespace of the object, if the API server is there too: nobody from elsewhere may list destinations in
// it. Several tenants may live in one namespace, so it is no claim.
func (f inForce) home(key string) []string {
	if f.tenant == nil {
		return nil
	}
	ns, _, _ := strings.Cut(key, "/")
	if _, services := namespaces(f.tenant); slices.Contains(services, ns) {
		return []string{homeClaim(ns)}
	}
	return nil
}

func homeClaim(namespace string) string { return "control plane in " + namespace }

// holders are those who have a claim, each as namespace/name. There may be several after a start.
type holders map[string][]string

func (h holders) add(key string, f inForce) {
	for _, claim := range append(f.claims(), f.home(key)...) {
		if !slices.Contains(h[claim], key) {
			h[claim] = append(h[claim], key)
		}
	}
}

func (h holders) remove(key string, f inForce) {
	for _, claim := range append(f.claims(), f.home(key)...) {
		h[claim] = slices.DeleteFunc(h[claim], func(k string) bool { return k == key })
	}
}

// other says which claim of a tenant somebody else has, except those that it has itself: after a start.
func (h holders) other(key string, f inForce) string {
	for _, claim := range f.claims() {
		if by := h[claim]; len(by) > 0 && !slices.Contains(by, key) {
			return claim + " is claimed by " + by[0]
		}
	}
	if f.tenant == nil {
		return ""
	}
	destinations, _ := namespaces(f.tenant)
	for _, ns := range destinations {
		if by := h[homeClaim(ns)]; len(by) > 0 && !strings.HasPrefix(key, ns+"/") {
			return fmt.Sprintf("namespace %q has the control plane of %s", ns, by[0])
		}
	}
	return ""
}

// resolve says what is in force of each tenant. What a tenant has, no other one can take from it: an edit that claims
// it is refused, and what the other one had before stays. Age decides only between those that are both new.
func (m *Memory) resolve(tenants []Tenant) []goodTenant {
	slices.SortFunc(tenants, func(a, b Tenant) int {
		return cmp.Or(strings.Compare(a.Created, b.Created), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	out, wanted := make([]goodTenant, len(tenants)), make([]inForce, len(tenants))
	key := func(i int) string { return tenants[i].Namespace + "/" + tenants[i].Name }
	has := holders{}
	for i, t := range tenants {
		out[i], wanted[i] = m.before(key(i), t)
		if by := has[nameClaim(t.Name)]; out[i].tenant != nil && len(by) > 0 { // both would write the same objects
			out[i].inForce, wanted[i] = inForce{}, out[i].inForce
		}
		has.add(key(i), out[i].inForce)
	}
	for again := true; again; { // what one gives up, another one may get
		again = false
		for i := range tenants {
			if wanted[i].tenant == nil {
				continue
			}
			by := has.other(key(i), wanted[i])
			if by != "" {
				out[i].Refused = cmp.Or(out[i].Refused, by)
				continue
			}
			if !wanted[i].partial {
				out[i].Refused = ""
			}
			has.remove(key(i), out[i].inForce)
			out[i].inForce, wanted[i] = wanted[i], inForce{}
			has.add(key(i), out[i].inForce)
			again = true
		}
	}
	m.tenants = map[string]goodTenant{}
	for i := range out {
		good := &out[i]
		if good.Refused != "" && good.tenant != nil && !good.partial {
			good.InForce = &good.spec
		}
		for _, claim := range good.claims() {
			if by := slices.DeleteFunc(slices.Clone(has[claim]), func(k string) bool { return k == key(i) }); len(by) > 0 {
				good.Shared = claim + " is claimed by " + by[0] + " too"
				break
			}
		}
		m.tenants[key(i)] = *good
	}
	return out
}

// before is a tenant with what was in force of it, and what should be if nobody else has it; that has no tenant if
// nothing is to change.
func (m *Memory) before(key string, t Tenant) (good goodTenant, wanted inForce) {
	good = goodTenant{version: t.Version, Ways: Ways{Namespace: t.Namespace, Name: t.Name}}
	last, met := m.tenants[key]
	if met && last.version == t.Version && last.Refused == "" {
		good.inForce = last.inForce
		return good, inForce{}
	}
	read, why := readTenant(t.Name, t.Spec)
	good.Refused = why
	switch noted := t.Refused && t.Kept != nil; {
	case met && (!last.Lost || !noted): // a note of another replica is more than nothing
		good.inForce, good.Lost = last.inForce, last.Lost && read == nil
	case noted:
		kept, broken := readTenant(t.Name, *t.Kept)
		good.inForce = inForce{tenant: kept, spec: *t.Kept}
		good.Lost = broken != "" && read == nil
	case t.Refused || !t.Seen || m.met: // it never was in force
	case read != nil: // it was, unless it was edited meanwhile
		good.inForce = inForce{tenant: read, spec: t.Spec}
		return good, inForce{}
	default:
		good.Lost = true
	}
	if read != nil {
		return good, inForce{tenant: read, spec: t.Spec}
	}
	// Who asks to be protected is not left open because of a bad name among the good ones.
	if nothing := good.tenant == nil || good.partial; nothing && (t.Spec.Protected || good.Lost) {
		wanted = inForce{tenant: tenant.Readable(t.Name, t.Spec), partial: true}
	}
	return good, wanted
}

func readTenant(name string, spec v1alpha1.EdgeTenantSpec) (*tenant.Tenant, string) {
	data, err := json.Marshal(v1alpha1.EdgeTenant{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindEdgeTenant},
		Metadata: v1alpha1.ObjectName{Name: name}, Spec: spec,
	})
	if err != nil {
		return nil, err.Error()
	}
	out, doc := tenant.Read(name, data)
	if ps := doc.Problems(); len(ps) > 0 {
		return nil, ps[0].Path + ": " + ps[0].Message
	}
	return out, ""
}
