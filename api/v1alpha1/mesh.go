// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindMeshConfig is a node's configuration.
const KindMeshConfig = "MeshConfig"

// MeshConfig configures a node: which cluster it belongs to, what it says of
// itself, and where it learns of the others.
type MeshConfig struct {
	TypeMeta

	// Cluster is the cluster of the node.
	Cluster MeshCluster `json:"cluster"`
	// Node is this machine.
	Node MeshNode `json:"node,omitempty"`
	// Announce is what the node says of itself.
	Announce MeshAnnounce `json:"announce,omitempty"`
	// Sources are where it learns of the others.
	Sources MeshSources `json:"sources,omitempty"`
	// Cache keeps known members on disk. Default true.
	Cache *bool `json:"cache,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8448.
	HealthListen string `json:"healthListen,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
}

// MeshCluster is a cluster by its secrets.
type MeshCluster struct {
	// SecretFiles hold the cluster's secrets, mode 0600, the newest first. More
	// than one while a secret is rotated.
	SecretFiles []string `json:"secretFiles"`
	// ID is the cluster's id at services of the older protocol.
	ID string `json:"id,omitempty"`
}

// MeshNode is this machine.
type MeshNode struct {
	// Name is the stable name of the machine. Default its host name.
	Name string `json:"name,omitempty"`
	// StateDir holds the member's key and the cache. Default /var/lib/tombolo/mesh.
	StateDir string `json:"stateDir,omitempty"`
}

// MeshAnnounce is what a node says of itself; the fields are those of a member.
type MeshAnnounce struct {
	MemberSpec
	// Lease is how long the others know the node after it was heard last, 1m to 30m. Default 30m.
	Lease Duration `json:"lease,omitempty"`
}

// MeshSources are where a node learns of the others. Each alone suffices.
type MeshSources struct {
	// Services are discovery services.
	Services []MeshService `json:"services,omitempty"`
	// File is a file of kind MemberList.
	File string `json:"file,omitempty"`
}

// MeshService is a discovery service.
type MeshService struct {
	// Name is shown as the source of facts. Default the host and port.
	Name string `json:"name,omitempty"`
	// URL is https://host[:port]; http needs insecure.
	URL string `json:"url"`
	// Protocol is auto, native or sidero. Default auto: native, and the older one
	// where a service does not know it.
	Protocol string `json:"protocol,omitempty"`
	// CAFile holds the CAs of the service's certificate. Default those of the system.
	CAFile string `json:"caFile,omitempty"`
	// Pin is the base64url SHA-256 of a public key (SPKI) in the service's chain, in
	// place of CAs: what 'tombolo discovery status' shows as CA pin.
	Pin string `json:"pin,omitempty"`
	// Proxy is the URL of an HTTP proxy, none, or environment. Default environment:
	// HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy string `json:"proxy,omitempty"`
	// ProxyFile holds the proxy's URL instead, mode 0600, where there is a password in it.
	ProxyFile string `json:"proxyFile,omitempty"`
	// Insecure permits http.
	Insecure bool `json:"insecure,omitempty"`
}
