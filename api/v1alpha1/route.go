// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindRouteConfig is the kind of RouteConfig.
const KindRouteConfig = "RouteConfig"

// RouteConfig configures routed mode: connections to the ranges of clusters are taken from a TUN device, and
// continued as streams through hubs.
type RouteConfig struct {
	TypeMeta

	// Clusters are those that are reached.
	Clusters []RouteCluster `json:"clusters"`
	// Link is the name of the TUN device. Default tombolo-route.
	Link string `json:"link,omitempty"`
	// Addresses are those of the link, at most one of each family: the source of connections into it. Default
	// 192.0.0.8 and fd74:6f6d:626f::8.
	Addresses []string `json:"addresses,omitempty"`
	// Resolver are the addresses at which names of clusters are resolved, at port 53, at most one of each family. Default
	// 192.0.0.53 and fd74:6f6d:626f::53 if a cluster has dns.
	Resolver []string `json:"resolver,omitempty"`
	// Table is the number of the routing table. Default 181.
	Table int `json:"table,omitempty"`
	// Rule is the priority of the rule that leads into the table. Default 32510.
	Rule int `json:"rule,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8448.
	HealthListen string `json:"healthListen,omitempty"`
	// RunDir holds the admin socket, route/route.sock. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
	// Streams bounds dials and connections.
	Streams StreamsConfig `json:"streams,omitempty"`
	// DrainTimeout is how long live connections may continue after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// Limits bounds connections.
	Limits RouteLimitsConfig `json:"limits,omitempty"`
}

// RouteCluster is one cluster, the hubs through which it is reached, and what is routed to it.
type RouteCluster struct {
	// Name is that of the cluster at its hubs.
	Name string `json:"name"`
	// Hubs are host:port of their main ports. They stand in for each other.
	Hubs []string `json:"hubs"`
	// Certificate is a file made by 'tombolo certificate issue --role route'. It is read again when it changes.
	Certificate string `json:"certificate"`
	// Ranges are what is routed to the cluster.
	Ranges []RouteRange `json:"ranges"`
	// DNS is the server of the cluster's names. Default none: they are not resolved here.
	DNS *RouteDNS `json:"dns,omitempty"`
}

// RouteDNS says who knows the names of a cluster.
type RouteDNS struct {
	// Server is the address of the DNS server there, such as 10.96.0.10, with a port if it is not 53.
	Server string `json:"server"`
	// Domain is that of the cluster. Default cluster.local.
	Domain string `json:"domain,omitempty"`
	// Zone is under which the names of the domain are asked for here. Default the same; clusters with one domain need
	// zones of their own, such as c2.internal.
	Zone string `json:"zone,omitempty"`
}

// RouteRange is one range of a cluster.
type RouteRange struct {
	// Range is a CIDR as the cluster has it.
	Range string `json:"range"`
	// As is the CIDR of the same size by which it is reached here. Default the same.
	As string `json:"as,omitempty"`
}

// RouteLimitsConfig bounds connections.
type RouteLimitsConfig struct {
	// Connections bounds all of them. Default 4096.
	Connections int `json:"connections,omitempty"`
	// PerSource bounds those of one source address. Default 4096.
	PerSource int `json:"perSource,omitempty"`
}
