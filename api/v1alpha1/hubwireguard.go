// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HubWireGuardConfig configures the WireGuard network between a seed's endpoints and its clusters.
type HubWireGuardConfig struct {
	// Enabled is for clusters that say nothing themselves. Default false.
	Enabled bool `json:"enabled,omitempty"`
	// Range has the addresses of the whole seed, IPv4, private or shared. The first 16 are for the network, for endpoints
	// and to spare; each cluster gets the first free one after them.
	Range string `json:"range"`
	// ParentRange is that of the seed above, if this seed is a cluster of one: it must not overlap range.
	ParentRange string `json:"parentRange,omitempty"`
	// MaxClusters bounds the clusters that are on, for endpoints without WireGuard in the kernel. Default 0: as many as
	// the range has.
	MaxClusters int `json:"maxClusters,omitempty"`
	// VPNServer is where the OpenVPN server of each cluster is, on the seed's side: host:port with {cluster} in it.
	VPNServer string `json:"vpnServer,omitempty"`
	// Endpoints are where clusters connect to, 1 to 8. The first one has the address .1 of range, the second .2.
	Endpoints []HubWireGuardEndpoint `json:"endpoints"`
}

// HubWireGuardEndpoint is where clusters connect to.
type HubWireGuardEndpoint struct {
	// Name is the stable name of the node.
	Name string `json:"name"`
	// Address is host:port as clusters reach it.
	Address string `json:"address"`
	// PublicKey is the WireGuard public key, base64.
	PublicKey string `json:"publicKey"`
	// Engine is that of its mesh, kernel or userspace: clusters probe their paths to the latter. Default userspace.
	Engine string `json:"engine,omitempty"`
}

// KindClusterState is what 'tombolo cluster export' writes.
const KindClusterState = "ClusterState"

// ClusterState is what a hub keeps of a cluster, for another hub. It holds keys.
type ClusterState struct {
	TypeMeta

	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// WireGuard is its place in the WireGuard network.
	WireGuard ClusterWireGuard `json:"wireguard"`
}

// ClusterWireGuard is the place of a cluster in the WireGuard network of a seed.
type ClusterWireGuard struct {
	// Mode is inherit, on or off.
	Mode string `json:"mode"`
	// Address is that of the cluster in the seed's range.
	Address string `json:"address,omitempty"`
	// PublicKey and PrivateKey are those of WireGuard, base64. A cluster that has made its key itself has no privateKey.
	PublicKey  string `json:"publicKey,omitempty"`
	PrivateKey string `json:"privateKey,omitempty"`
	// Secret is what the cluster and the endpoints have in common, as of 'tombolo discovery secret create'.
	Secret string `json:"secret,omitempty"`
}
