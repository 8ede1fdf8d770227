// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindMeshConfig is a node's configuration.
const KindMeshConfig = "MeshConfig"

// MeshConfig configures a node: its cluster, what it announces, and where it learns of
// the others.
type MeshConfig struct {
	TypeMeta

	// Cluster is the cluster of the node.
	Cluster MeshCluster `json:"cluster"`
	// Node is this machine.
	Node MeshNode `json:"node,omitempty"`
	// Announce is what the node announces.
	Announce MeshAnnounce `json:"announce,omitempty"`
	// Sources are where it learns of the others.
	Sources MeshSources `json:"sources,omitempty"`
	// Mesh is what 'tombolo mesh' does on this machine.
	Mesh MeshOptions `json:"mesh,omitempty"`
	// Cache keeps known members on disk. Default true.
	Cache *bool `json:"cache,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8448.
	HealthListen string `json:"healthListen,omitempty"`
	// Log configures logging.
	Log LogConfig `json:"log,omitempty"`
}

// MeshCluster identifies a cluster by its secrets.
type MeshCluster struct {
	// SecretFiles hold the cluster's secrets, mode 0600. More than one while a secret is
	// rotated: the first is that of the older protocol.
	SecretFiles []string `json:"secretFiles"`
	// ID is the cluster's id at services of the older protocol.
	ID string `json:"id,omitempty"`
}

// MeshNode is this machine.
type MeshNode struct {
	// Name is the stable name of the machine. Default: the environment variable NODE_NAME,
	// which pods have, else the host name.
	Name string `json:"name,omitempty"`
	// StateDir holds the member's key and the cache. Default /var/lib/tombolo/mesh.
	StateDir string `json:"stateDir,omitempty"`
	// RunDir holds the admin socket, announce/announce.sock. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
}

// MeshAnnounce is what a node announces; the fields are those of a member.
type MeshAnnounce struct {
	MemberSpec
	// PrivateKeyFile holds the node's WireGuard private key, in place of publicKey: base64 as
	// from wg genkey, mode 0600. With it the node proves that the key is its own.
	PrivateKeyFile string `json:"privateKeyFile,omitempty"`
	// PodRanges also announces the pod ranges of this machine's Node (spec.podCIDRs), from
	// sources.kubernetes: other nodes then send packets for these pods into the mesh. Default false.
	PodRanges bool `json:"podRanges,omitempty"`
	// Lease is how long others keep the node after its last announcement, 1m to 30m. Default 30m.
	Lease Duration `json:"lease,omitempty"`
}

// MeshSources are where a node learns of the others. Each alone suffices.
type MeshSources struct {
	// Services are discovery services.
	Services []MeshService `json:"services,omitempty"`
	// File is a file of kind MemberList.
	File string `json:"file,omitempty"`
	// Kubernetes is an API server through which nodes find each other.
	Kubernetes *MeshKubernetes `json:"kubernetes,omitempty"`
	// Linked has the node reach other clusters, as objects of kind Cluster and ClusterNode at that API server say.
	Linked *MeshLinked `json:"linked,omitempty"`
}

// MeshLinked says which of the linked clusters a node belongs to.
type MeshLinked struct {
	// Cluster is the name of the node's own Cluster. The node is its ClusterNode CLUSTER.NODE, of sources.kubernetes.node.
	Cluster string `json:"cluster"`
}

// MeshKubernetes is an API server through which nodes find each other.
type MeshKubernetes struct {
	// Kubeconfig is the file with the API server's address and our credentials, such as
	// kubelet's /etc/kubernetes/kubelet.conf. It may be created later.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// InCluster uses the pod's service account instead.
	InCluster bool `json:"inCluster,omitempty"`
	// Node is the name of this machine's Node. Default announce.nodename; in a pod the
	// environment variable NODE_NAME.
	Node string `json:"node,omitempty"`
	// Read is what to read: members and annotations. Default members.
	Read *[]string `json:"read,omitempty"`
	// Write is what to write about this node: members and annotations. Default members.
	Write *[]string `json:"write,omitempty"`
	// Lease is how long this node's Member object is valid after a renewal, 1m to 30m. Default 15m.
	Lease Duration `json:"lease,omitempty"`
}

// MeshService is a discovery service.
type MeshService struct {
	// Name is shown as the source of facts. Default the host and port.
	Name string `json:"name,omitempty"`
	// URL is https://host[:port]; http needs insecure.
	URL string `json:"url"`
	// Protocol is auto, native or sidero. Default auto: native, or the older one if the
	// service does not support it.
	Protocol string `json:"protocol,omitempty"`
	// CAFile holds the CAs of the service's certificate. Default: the system's.
	CAFile string `json:"caFile,omitempty"`
	// Pin is the base64url SHA-256 of a public key (SPKI) in the service's chain, in
	// place of CAs: what 'tombolo discovery status' shows as CA pin.
	Pin string `json:"pin,omitempty"`
	// Proxy is the URL of an HTTP proxy, none, or environment. Default environment:
	// HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy string `json:"proxy,omitempty"`
	// ProxyFile holds the proxy's URL instead, mode 0600, for a URL with a password.
	ProxyFile string `json:"proxyFile,omitempty"`
	// Insecure permits http.
	Insecure bool `json:"insecure,omitempty"`
}
