// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The kinds of an edge.
const (
	KindEdgeConfig = "EdgeConfig"
	KindEdgeTenant = "EdgeTenant"
)

// EdgeConfig configures an edge. Listeners and a source of tenants are needed: files, hubs
// or Kubernetes.
type EdgeConfig struct {
	TypeMeta

	// Listeners are the ports of the front door.
	Listeners []EdgeListener `json:"listeners"`
	// Tenants are files of kind EdgeTenant, and folders of them.
	Tenants []string `json:"tenants,omitempty"`
	// Policies are files of kind AccessPolicy, and folders of them. With none, everybody reaches every tenant
	// that is not protected.
	Policies []string `json:"policies,omitempty"`
	// Hubs are those through whose agents tenants are reached.
	Hubs []EdgeHub `json:"hubs,omitempty"`
	// Kubernetes watches objects of kind EdgeTenant.
	Kubernetes *EdgeKubernetes `json:"kubernetes,omitempty"`
	// HealthListen is the http port for probes and metrics. Default 127.0.0.1:8447.
	HealthListen string `json:"healthListen,omitempty"`
	// RunDir holds the admin socket, edge/edge.sock. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
	// Audit says where the records of tunnels and refusals go.
	Audit AuditConfig `json:"audit,omitempty"`
	// Streams bounds dials and tunnels.
	Streams StreamsConfig `json:"streams,omitempty"`
	// DrainTimeout is how long live tunnels may continue after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// Limits bounds connections.
	Limits EdgeLimitsConfig `json:"limits,omitempty"`
}

// EdgeListener is one port.
type EdgeListener struct {
	// Name stands in records, logs and metrics.
	Name string `json:"name"`
	// Listen is host:port or :port.
	Listen string `json:"listen"`
	// Protocol is tls (routed by server name, TLS is not ended) or connect (HTTP CONNECT, routed by header).
	Protocol string `json:"protocol"`
	// ProxyProtocol says which peers are load balancers that send a PROXY protocol header.
	ProxyProtocol ProxyProtocolConfig `json:"proxyProtocol,omitempty"`
	// UnknownName is the answer of a tls listener to a client that names no server, or one of no tenant: alert
	// (unrecognized_name of TLS, the default) or close (no answer).
	UnknownName string `json:"unknownName,omitempty"`
}

// EdgeHub is a hub through whose agents tenants are reached.
type EdgeHub struct {
	// Name is what tenants call it.
	Name string `json:"name"`
	// Address is the host:port of its main port.
	Address string `json:"address"`
	// Certificate is a file made by 'tombolo certificate issue --role edge'. It is read again when it changes.
	Certificate string `json:"certificate"`
	// ProxyProtocol is v2 for a hub that requires a PROXY protocol header from this edge. Default none.
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
	// Tenants makes a tenant of each cluster of the hub into which its policy lets this edge dial.
	Tenants *EdgeHubTenants `json:"tenants,omitempty"`
}

// EdgeKubernetes says where objects of kind EdgeTenant are.
type EdgeKubernetes struct {
	// Kubeconfig is a file. Default: the service account of the pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Namespace limits them to one. Default: all.
	Namespace string `json:"namespace,omitempty"`
}

// EdgeHubTenants says what the tenant of a hub's cluster is like.
type EdgeHubTenants struct {
	// Names are server names (SNI) with {cluster} in them, for the cluster's name.
	Names []string `json:"names"`
	// Target is host:port as the cluster's agents resolve it.
	Target string `json:"target"`
	// Flow is what rules call the way. Default api.
	Flow string `json:"flow,omitempty"`
	// Protected denies whatever no rule allows.
	Protected bool `json:"protected,omitempty"`
	// ProxyProtocol is what the target is sent first: v1, v2 or none (the default).
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
}

// ProxyProtocolConfig says from whom a PROXY protocol header is taken, and then required.
type ProxyProtocolConfig struct {
	// From are CIDRs and addresses. From anybody else a header is refused.
	From []string `json:"from,omitempty"`
}

// EdgeLimitsConfig bounds connections. A source is an IPv4 address or an IPv6 /64.
type EdgeLimitsConfig struct {
	// Connections bounds all tunnels. Default: what the process may open.
	Connections int `json:"connections,omitempty"`
	// PerSource bounds the connections of one source. Default 1024.
	PerSource int `json:"perSource,omitempty"`
	// PerCluster bounds the tunnels of one cluster. Default 4096.
	PerCluster int `json:"perCluster,omitempty"`
}

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
// +kubebuilder:object:generate=true
type EdgeTenantSpec struct {
	// Protected denies whatever no rule allows, in every flow, even while no rule names the cluster.
	Protected bool `json:"protected,omitempty"`
	// Ways are all by which this cluster is reached.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Ways []EdgeWay `json:"ways"`
}

// EdgeWay is one way into a cluster. It is found by names, protocols or both at a TLS listener, or by
// destinations at a CONNECT listener.
// +kubebuilder:object:generate=true
type EdgeWay struct {
	// Flow is what rules call it: api, vpn, proxy or ingress.
	// +kubebuilder:validation:Enum=api;vpn;proxy;ingress
	Flow string `json:"flow"`
	// Names are server names (SNI): a host name, or *.suffix or *-suffix for every name with that end.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=255
	Names []string `json:"names,omitempty"`
	// Protocols limit the way to clients that offer one of them (ALPN). Without names, the way is taken by
	// clients that name no server or an unknown one.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=255
	Protocols []string `json:"protocols,omitempty"`
	// Destinations are values of the headers Reversed-VPN and X-Gardener-Destination.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	Destinations []string `json:"destinations,omitempty"`
	// Upstreams are host:port, tried in turn. A way with destinations may leave them out: the service that the
	// destination names is meant then.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=300
	Upstreams []string `json:"upstreams,omitempty"`
	// Hubs are upstreams behind agents of hubs, tried in turn with the others.
	// +kubebuilder:validation:MaxItems=16
	Hubs []EdgeStream `json:"hubs,omitempty"`
	// ProxyProtocol is what upstreams are sent first: v1 or v2 with the client's address, or none (the default).
	// +kubebuilder:validation:Enum="";none;v1;v2
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
}

// EdgeStream is a target that a hub's agents dial.
// +kubebuilder:object:generate=true
type EdgeStream struct {
	// Name is that of the hub in the edge's configuration.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Cluster is the hub's name of the cluster. Default: the tenant's name.
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster,omitempty"`
	// Target is host:port as the agent resolves it.
	// +kubebuilder:validation:MaxLength=300
	Target string `json:"target"`
}
