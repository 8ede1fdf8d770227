// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindEdgeTenant is the kind of a file that describes one tenant of an edge.
const KindEdgeTenant = "EdgeTenant"

// EdgeTenant says how one cluster is reached through an edge.
type EdgeTenant struct {
	TypeMeta

	Metadata ObjectName     `json:"metadata"`
	Spec     EdgeTenantSpec `json:"spec"`
}

// ObjectName is what a file has of an object's metadata.
type ObjectName struct {
	// Name is that of the cluster, as rules of an AccessPolicy name it.
	Name string `json:"name"`
}

// EdgeTenantSpec lists the ways in.
type EdgeTenantSpec struct {
	// Protected denies whatever no rule allows, in every flow, even while no rule names the cluster.
	Protected bool `json:"protected,omitempty"`
	// Ways are all by which this cluster is reached.
	Ways []EdgeWay `json:"ways"`
}

// EdgeWay is one way into a cluster. It is found by names, protocols or both at a TLS listener, or by
// destinations at a CONNECT listener.
type EdgeWay struct {
	// Flow is what rules call it: api, vpn, proxy or ingress.
	Flow string `json:"flow"`
	// Names are server names (SNI): a host name, or *.suffix for every name below it.
	Names []string `json:"names,omitempty"`
	// Protocols limit the way to clients that offer one of them (ALPN). Without names, the way is taken by
	// clients that name no server or an unknown one.
	Protocols []string `json:"protocols,omitempty"`
	// Destinations are values of the headers Reversed-VPN and X-Gardener-Destination.
	Destinations []string `json:"destinations,omitempty"`
	// Upstreams are host:port, tried in turn. A way with destinations may leave them out: the service that the
	// destination names is meant then.
	Upstreams []string `json:"upstreams,omitempty"`
	// ProxyProtocol is what upstreams are sent first: v1 or v2 with the client's address, or none (the default).
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
}
