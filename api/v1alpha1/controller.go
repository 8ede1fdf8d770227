// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindControllerConfig is the kind of the controller's configuration.
const KindControllerConfig = "ControllerConfig"

// ControllerConfig configures the controller, which keeps objects in Kubernetes as others say they should be. At least
// one feature is needed.
type ControllerConfig struct {
	TypeMeta

	// Kubeconfig is a file. Default: the service account of the pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Namespace holds the Lease and the Secret with certificates. Default: that of the pod.
	Namespace string `json:"namespace,omitempty"`
	// Name is that of the Lease and of the Service of the webhooks, and the first word of all other objects. Default
	// tombolo-controller.
	Name string `json:"name,omitempty"`
	// Features are what the controller does; one that is left out is off.
	Features ControllerFeatures `json:"features"`
	// Webhooks are what the API server asks.
	Webhooks ControllerWebhooks `json:"webhooks,omitempty"`
	// LeaderElection says which of several replicas writes.
	LeaderElection ControllerElection `json:"leaderElection,omitempty"`
	// HealthListen is the http port for probes and metrics. Default 127.0.0.1:8449.
	HealthListen string `json:"healthListen,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
	// DrainTimeout is how long requests to webhooks may continue after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
}

// ControllerFeatures are what the controller can do, by name.
type ControllerFeatures struct {
	// Access enforces objects of kind AccessPolicy at gateways of Istio.
	Access *AccessFeature `json:"access,omitempty"`
	// ShootAdmission judges the access lists of Shoots when they are written to a garden.
	ShootAdmission *ShootAdmission `json:"shootAdmission,omitempty"`
	// Links keeps the objects of linked clusters.
	Links *LinksFeature `json:"links,omitempty"`
}

// LinksFeature configures what the controller does for linked clusters. At least one of cluster and host is needed.
type LinksFeature struct {
	// Cluster is the name of the Cluster that this one is: its nodes, its ranges and their readiness are written to the
	// host cluster, and what that has of other clusters is written here, for this cluster's nodes.
	Cluster string `json:"cluster,omitempty"`
	// HostKubeconfig is a file with the address of the host cluster's API server and our credentials there. Default: this
	// cluster is the host cluster too.
	HostKubeconfig string `json:"hostKubeconfig,omitempty"`
	// Host accepts or refuses the ranges of all clusters: this one is the host cluster.
	Host bool `json:"host,omitempty"`
	// Gateways is how many gateways this cluster has with networkType gateway, 1 to 16. Default 2.
	Gateways int `json:"gateways,omitempty"`
	// GatewaySelector has labels of the nodes that may be gateways: KEY=VALUE, joined by commas. Default: all.
	GatewaySelector string `json:"gatewaySelector,omitempty"`
}

// ShootAdmission configures the webhook for Shoots.
type ShootAdmission struct {
	// MaxRanges bounds the ranges of one list. Default 50; -1 is no bound.
	MaxRanges int `json:"maxRanges,omitempty"`
}

// AccessFeature configures the enforcement of access lists.
type AccessFeature struct {
	// Gateways are where lists are enforced. With none, policies are only checked.
	Gateways []AccessGateway `json:"gateways,omitempty"`
	// FormerNamespaces are those of gateways that are no longer listed: what was written there is removed, after what
	// replaces it is in force.
	FormerNamespaces []string `json:"formerNamespaces,omitempty"`
	// RootNamespace is that of the mesh: EnvoyFilters there count at every gateway. Default istio-system.
	RootNamespace string `json:"rootNamespace,omitempty"`
	// Settle is how long Istio and the gateways need until what was written is in force: a guard is taken away only that
	// long after what replaces it. Default 10s.
	Settle Duration `json:"settle,omitempty"`
	// AdditionalRanges may reach every protected cluster: CIDRs or addresses, as a group of their own.
	AdditionalRanges []string `json:"additionalRanges,omitempty"`
	// Gardener reads the access lists of Gardener's shoots. Needs gateways.
	Gardener *GardenerFeature `json:"gardener,omitempty"`
	// MaxRanges bounds the ranges of users in one Extension. Default 50; -1 is no bound.
	MaxRanges int `json:"maxRanges,omitempty"`
}

// GardenerFeature reads Extensions of type acl.
type GardenerFeature struct {
	// Answer tells gardenlet in the status of each Extension what came of it, in the place of Gardener's extension.
	// Default: false, no Extension is touched.
	Answer bool `json:"answer,omitempty"`
}

// AccessGateway is a gateway of Istio: pods with an Envoy.
type AccessGateway struct {
	// Namespace is that of the pods.
	Namespace string `json:"namespace"`
	// Selector has labels of the pods: KEY=VALUE, joined by commas.
	Selector string `json:"selector"`
	// Enforcement is by which objects lists are enforced: auto (the default), envoyfilter, authorizationpolicy or
	// extauthz.
	Enforcement string `json:"enforcement,omitempty"`
	// ConnectPorts are ports at which a header tells the clusters apart.
	ConnectPorts []AccessConnectPort `json:"connectPorts,omitempty"`
	// Provider is who is asked by ext_authz, as the mesh's configuration calls it.
	Provider string `json:"provider,omitempty"`
	// DataNamespace is where the data of ext_authz is written. Default: Namespace.
	DataNamespace string `json:"dataNamespace,omitempty"`
	// Complete says that all clusters behind the connectPorts have an EdgeTenant. Then ext_authz is asked about every
	// request there, and a new cluster changes no listener; a destination that is nobody's is refused.
	Complete bool `json:"complete,omitempty"`
	// PortNames are the container ports that the gateway's Services have as a targetPort by name.
	PortNames []AccessPortName `json:"portNames,omitempty"`
}

// AccessPortName is a named container port of a gateway.
type AccessPortName struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

// AccessConnectPort is a port of a gateway for HTTP CONNECT.
type AccessConnectPort struct {
	Port int `json:"port"`
	// Header is by which the gateway routes: Reversed-VPN or X-Gardener-Destination.
	Header string `json:"header"`
}

// ControllerWebhooks configures what the API server asks.
type ControllerWebhooks struct {
	// Listen is the https port. Default :9443.
	Listen string `json:"listen,omitempty"`
	// Names are further names and addresses of the webhooks, where the API server reaches them by a URL.
	Names []string `json:"names,omitempty"`
	// CertificateLife is how long a certificate of the webhooks is valid. It is renewed after two thirds. Default
	// 2160h, at least 10s.
	CertificateLife Duration `json:"certificateLife,omitempty"`
}

// ControllerElection says which of several replicas writes.
type ControllerElection struct {
	// LeaseDuration is how long the others wait for a leader that is silent. Default 15s, at least 2s.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
}
