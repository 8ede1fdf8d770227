// SPDX-License-Identifier: Apache-2.0

// Package istio compiles the access lists of clusters to objects of Istio, says by which ways a gateway lets
// clients reach them, and what the written objects decide. It reads and writes values only: no
// API server, no Envoy. What it cannot know of a gateway it reports, and never takes for guarded.
package istio

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The enforcements: by which objects of Istio lists are enforced at a gateway.
const (
	Auto         = "auto"                // EnvoyFilter at filter chains of clusters, ext_authz at shared CONNECT ports
	EnvoyFilters = "envoyfilter"         // EnvoyFilter for all
	Policies     = "authorizationpolicy" // AuthorizationPolicy with action DENY for all
	ExtAuthz     = "extauthz"            // AuthorizationPolicy with action CUSTOM for all
)

// Enforcements are all that exist.
func Enforcements() []string { return []string{Auto, EnvoyFilters, Policies, ExtAuthz} }

// The labels of objects that are written.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "tombolo"
	LabelCluster   = "tombolo.dev/cluster"
)

// Facts are the objects as they stand, and the clusters with their lists.
type Facts struct {
	Gateways              []Gateway
	VirtualServices       []VirtualService
	EnvoyFilters          []EnvoyFilter
	AuthorizationPolicies []AuthorizationPolicy
	Services              []Service
	ConfigMaps            []ConfigMap
	Clusters              []Cluster // those without lists too: they are told apart from the others
}

// Cluster is a cluster that is reached through gateways.
type Cluster struct {
	Name      string
	Namespace string // of its control plane; empty: that of its destinations
	Ways      []Way
}

// Way is one way into a cluster.
type Way struct {
	Flow         string            // one of the edge's in package policy
	Hosts        []string          // server names; one that begins with * stands for every name with that end
	Destinations []string          // values of the headers of CONNECT ports
	List         policy.SourceList // who may use it
}

// Listed reports whether the way has a list.
func (w Way) Listed() bool { return w.List.Protected || len(w.List.Deny) > 0 }

// Workload is a gateway: pods with an Envoy, and how lists are enforced there.
type Workload struct {
	Namespace    string
	Labels       map[string]string // those of its pods: whatever selects them is for this gateway
	Enforcement  string
	ConnectPorts []ConnectPort
	Provider     string // who is asked with ext_authz, as the mesh's configuration calls it

	// DataNamespace is where the data of ext_authz is written. Default: Namespace.
	DataNamespace string
	// Complete says that Facts.Clusters are all clusters behind the CONNECT ports: then ext_authz is asked about every
	// request there, and a new cluster changes no listener.
	Complete bool
	// PortNames are the container ports that Services name as their target port.
	PortNames map[string]uint32
	// RootNamespace is that of the mesh. Default: istio-system.
	RootNamespace string
}

// ConnectPort is a port at which clusters are told apart by a header.
type ConnectPort struct {
	Port   uint32 // at which the gateway listens
	Header string // by which it routes; the other ones are looked at too
}

func (w Workload) root() string {
	if w.RootNamespace == "" {
		return "istio-system"
	}
	return w.RootNamespace
}

func (w Workload) dataNamespace() string {
	if w.DataNamespace == "" {
		return w.Namespace
	}
	return w.DataNamespace
}

// forChains is how lists are enforced at filter chains that are found by a server name.
func (w Workload) forChains() string {
	if w.Enforcement == Auto || w.Enforcement == "" {
		return EnvoyFilters
	}
	return w.Enforcement
}

// forConnect is how lists are enforced at the CONNECT ports.
func (w Workload) forConnect() string {
	if w.Enforcement != Auto && w.Enforcement != "" {
		return w.Enforcement
	}
	if w.Provider == "" {
		return EnvoyFilters
	}
	return ExtAuthz
}

func (w Workload) isConnect(port uint32) bool {
	for _, c := range w.ConnectPorts {
		if c.Port == port {
			return true
		}
	}
	return false
}

// Problem is something that the objects do not say, or say in a way that no guard can follow.
type Problem struct {
	Cluster string // empty: not of one
	Flow    string // empty: of all
	Object  string // such as "Gateway garden/nginx"
	What    string
}

func (p Problem) String() string {
	out := p.What
	if p.Object != "" {
		out = p.Object + ": " + out
	}
	if p.Cluster != "" {
		out = fmt.Sprintf("%s/%s: %s", p.Cluster, p.Flow, out)
	}
	return out
}

// The headers that name a destination, as Envoy has them.
func connectHeaders() []string { return []string{"reversed-vpn", "x-gardener-destination"} }

// whole are all addresses.
func whole() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// With are the facts after the objects that were written for a gateway have been replaced by planned ones.
func (f Facts) With(p Planned) Facts {
	f.EnvoyFilters = replaced(f.EnvoyFilters, p.EnvoyFilters, func(o EnvoyFilter) Meta { return o.Metadata })
	f.AuthorizationPolicies = replaced(f.AuthorizationPolicies, p.AuthorizationPolicies,
		func(o AuthorizationPolicy) Meta { return o.Metadata })
	f.ConfigMaps = replaced(f.ConfigMaps, p.ConfigMaps, func(o ConfigMap) Meta { return o.Metadata })
	return f
}

func replaced[T any](have, want []T, meta func(T) Meta) (out []T) {
	for _, o := range have {
		if meta(o).Labels[LabelManagedBy] != ManagedBy {
			out = append(out, o)
		}
	}
	return append(out, want...)
}
