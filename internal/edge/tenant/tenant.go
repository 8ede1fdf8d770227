// SPDX-License-Identifier: Apache-2.0

// Package tenant knows which cluster a connection is for. It reads tenants, and keeps a
// table in which one is changed at a time, without a look at the others. It opens no
// connection and does not know who may use one.
package tenant

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

// The bounds of one tenant.
const (
	mostWays      = 64
	mostNames     = 256 // of a way
	mostUpstreams = 16
)

// Tenant is a cluster with its ways in. It never changes.
type Tenant struct {
	Name      string
	Cluster   id.Cluster // of that name
	Protected bool
	Ways      []Way
}

// Way is one way into a cluster.
type Way struct {
	Flow         string   // one of the edge's in package policy
	Names        []string // host names in lower case; one that begins with '.' or '-': every name with that end
	Protocols    []string
	Destinations []connecthead.Destination
	Upstreams    []Upstream // none: the services of the destinations
	Proxy        Proxy
}

// Upstream is where a way leads: an address, or one that the agents of a hub's cluster dial.
type Upstream struct {
	Hub, Cluster string // empty: Address is dialled from here
	Address      string // host:port
}

func (u Upstream) String() string {
	if u.Hub == "" {
		return u.Address
	}
	return "hub:" + u.Hub + "/" + u.Cluster + "/" + u.Address
}

// Proxy is a version of the PROXY protocol.
type Proxy uint8

// The versions.
const (
	NoProxy Proxy = iota
	ProxyV1
	ProxyV2
)

// Read decodes and judges the file of one tenant. It is nil if there is a problem.
func Read(file string, data []byte) (*Tenant, *conf.Document) {
	var raw v1alpha1.EdgeTenant
	doc := conf.Decode(file, data, &raw)
	if doc.Unread() {
		return nil, doc
	}
	doc.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	doc.Want("kind", v1alpha1.KindEdgeTenant, raw.Kind)
	t := valid(raw, doc.Add)
	if doc.Err() != nil {
		return nil, doc
	}
	return t, doc
}

// valid judges a decoded tenant.
func valid(raw v1alpha1.EdgeTenant, add conf.Report) *Tenant {
	t := &Tenant{Name: raw.Metadata.Name, Protected: raw.Spec.Protected}
	var err error
	if t.Cluster, err = id.ParseCluster(raw.Metadata.Name); err != nil {
		add("metadata.name", "%v", err)
	}
	switch n := len(raw.Spec.Ways); {
	case n == 0:
		add("spec.ways", "there is no way: the cluster cannot be reached")
	case n > mostWays:
		add("spec.ways", "%d ways; at most %d are accepted", n, mostWays)
		return t
	}
	for i, w := range raw.Spec.Ways {
		t.Ways = append(t.Ways, way(raw.Metadata.Name, w, func(path, format string, args ...any) {
			add(fmt.Sprintf("spec.ways[%d].%s", i, path), format, args...)
		}))
	}
	t.twice(add)
	return t
}

// way judges one way of the tenant called name.
func way(name string, w v1alpha1.EdgeWay, add conf.Report) Way {
	out := Way{Flow: w.Flow, Protocols: w.Protocols}
	none := len(w.Upstreams)+len(w.Hubs) == 0
	if !slices.Contains(policy.EdgeFlows(), w.Flow) {
		known := policy.EdgeFlows()
		add("flow", "%q is none of %s%s", w.Flow, strings.Join(known, ", "), conf.Meant(w.Flow, known...))
	}
	for field, list := range map[string][]string{
		"names": w.Names, "protocols": w.Protocols, "destinations": w.Destinations,
	} {
		if len(list) > mostNames {
			add(field, "%d entries; at most %d are accepted", len(list), mostNames)
			return out
		}
	}
	for i, text := range w.Names {
		name, err := parseName(text)
		if err != nil {
			add(fmt.Sprintf("names[%d]", i), "%s", err)
		}
		out.Names = append(out.Names, name)
	}
	for i, text := range w.Protocols {
		if text == "" || len(text) > 255 {
			add(fmt.Sprintf("protocols[%d]", i), "a protocol has 1 to 255 bytes")
		}
	}
	for i, text := range w.Destinations {
		d, err := connecthead.ParseDestination(text)
		if err != nil {
			add(fmt.Sprintf("destinations[%d]", i), "%s", err)
		} else if d.Service() == "" && none {
			add(fmt.Sprintf("destinations[%d]", i), "a socket stands for no service: name the upstreams")
		}
		out.Destinations = append(out.Destinations, d)
	}
	atTLS := len(w.Names)+len(w.Protocols) > 0
	switch {
	case !atTLS && len(w.Destinations) == 0:
		add("names", "the way has neither names, protocols nor destinations")
	case atTLS && len(w.Destinations) > 0:
		add("destinations", "names and protocols are of TLS listeners, destinations of CONNECT listeners: write two ways")
	case atTLS && none:
		add("upstreams", "there is no upstream")
	}
	out.upstreams(w, add)
	out.streams(name, w.Hubs, add)
	return out
}

func (w *Way) upstreams(raw v1alpha1.EdgeWay, add conf.Report) {
	if n := len(raw.Upstreams) + len(raw.Hubs); n > mostUpstreams {
		add("upstreams", "%d upstreams; at most %d are accepted", n, mostUpstreams)
		return
	}
	for i, text := range raw.Upstreams {
		at := fmt.Sprintf("upstreams[%d]", i)
		host, port, err := net.SplitHostPort(text)
		if err != nil || !conf.IsPort(port) || port == "0" {
			add(at, "%q is not host:port", text)
			continue
		}
		if _, err := netip.ParseAddr(host); err != nil {
			if _, err := hostname.Parse(host); err != nil {
				add(at, "%s", err)
			}
		}
		if slices.Contains(raw.Upstreams[:i], text) {
			add(at, "%q is listed twice", text)
		}
		w.Upstreams = append(w.Upstreams, Upstream{Address: text})
	}
	switch raw.ProxyProtocol {
	case "", "none":
	case "v1":
		w.Proxy = ProxyV1
	case "v2":
		w.Proxy = ProxyV2
	default:
		add("proxyProtocol", "%q is none of none, v1, v2", raw.ProxyProtocol)
	}
}

// streams judges the upstreams behind hubs.
func (w *Way) streams(tenant string, raw []v1alpha1.EdgeStream, add conf.Report) {
	for i, s := range raw {
		at := fmt.Sprintf("hubs[%d]", i)
		u := Upstream{Hub: s.Name, Cluster: cmp.Or(s.Cluster, tenant)}
		if err := id.CheckHub(s.Name); err != nil {
			add(at+".name", "%v", err)
		}
		if _, err := id.ParseCluster(u.Cluster); s.Cluster != "" && err != nil {
			add(at+".cluster", "%v", err)
		}
		target, err := policy.ParseTarget(s.Target)
		if err != nil {
			add(at+".target", "%v", err)
			continue
		}
		if u.Address = target.String(); slices.Contains(w.Upstreams, u) {
			add(at, "%s is listed twice", u)
		}
		w.Upstreams = append(w.Upstreams, u)
	}
}

// Readable is what can be read of a tenant that is refused: the names and destinations of the ways whose flow is known.
// It is nil if there are none. It says what has to be guarded, and not where a connection goes.
func Readable(name string, spec v1alpha1.EdgeTenantSpec) *Tenant {
	cluster, err := id.ParseCluster(name)
	if err != nil {
		return nil
	}
	t := &Tenant{Name: name, Cluster: cluster, Protected: spec.Protected}
	for _, raw := range spec.Ways {
		w := Way{Flow: raw.Flow}
		for _, text := range raw.Names {
			if name, err := parseName(text); err == nil && !slices.Contains(w.Names, name) {
				w.Names = append(w.Names, name)
			}
		}
		for _, text := range raw.Destinations {
			if d, err := connecthead.ParseDestination(text); err == nil && !slices.Contains(w.Destinations, d) {
				w.Destinations = append(w.Destinations, d)
			}
		}
		if slices.Contains(policy.EdgeFlows(), w.Flow) && len(w.Names)+len(w.Destinations) > 0 {
			t.Ways = append(t.Ways, w)
		}
	}
	if len(t.Ways) == 0 {
		return nil
	}
	return t
}

// parseName reads a host name, or one that begins with "*." or "*-".
func parseName(text string) (string, error) {
	begin, rest := "", text
	if strings.HasPrefix(text, "*.") || strings.HasPrefix(text, "*-") {
		begin, rest = text[1:2], text[2:]
	}
	name, err := hostname.Parse(rest)
	return begin + name, err
}

// KnowsHubs reports upstreams behind hubs that the edge does not know.
func (t *Tenant) KnowsHubs(known []string, add conf.Report) {
	for i, w := range t.Ways {
		at := 0 // of the hubs
		for _, u := range w.Upstreams {
			if u.Hub == "" {
				continue
			}
			if !slices.Contains(known, u.Hub) {
				add(fmt.Sprintf("spec.ways[%d].hubs[%d].name", i, at), "the edge's configuration has no hub %q%s", u.Hub,
					conf.Meant(u.Hub, known...))
			}
			at++
		}
	}
}

// Claims lists what belongs to this tenant alone, with the field that claims it. The namespace of a destination is
// among it: who may list one destination of a control plane could else list the others, and open them.
func (t *Tenant) Claims() map[string]string {
	out := map[string]string{}
	for i := range t.Ways {
		t.Ways[i].each(func(k key, field string) {
			path := fmt.Sprintf("spec.ways[%d].%s", i, field)
			out[k.String()] = path
			claim := fmt.Sprintf("namespace %q of destinations", k.destination.Namespace)
			if out[claim] == "" && k.destination.Namespace != "" {
				out[claim] = path
			}
		})
	}
	return out
}

// twice reports what two ways of one tenant claim.
func (t *Tenant) twice(add conf.Report) {
	seen := map[key]bool{}
	for i := range t.Ways {
		t.Ways[i].each(func(k key, field string) {
			if seen[k] {
				add(fmt.Sprintf("spec.ways[%d].%s", i, field), "%s is claimed by another way of this tenant", k)
			}
			seen[k] = true
		})
	}
}
