// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The kinds of members.
const (
	KindMemberList = "MemberList" // a file
	KindMember     = "Member"     // an object of Kubernetes
)

// MemberList is a file of members that the operator of a machine writes.
type MemberList struct {
	TypeMeta

	// Members are the members; this machine may be one of them.
	Members []MemberEntry `json:"members"`
}

// MemberEntry is one member of a file.
type MemberEntry struct {
	// Name is the stable name of the node.
	Name string `json:"name"`
	MemberSpec
	// SecretFile holds a secret that this machine shares with the member alone, mode 0600, as 'tombolo discovery secret'
	// makes it: it takes the place of cluster.secretFiles between the two. It is beside the list if the path is relative.
	SecretFile string `json:"secretFile,omitempty"`
	// EndpointNames are host:port where WireGuard listens, beside endpoints. They are resolved again and again. At most 8.
	EndpointNames []string `json:"endpointNames,omitempty"`
}

// Member is what a node says of itself as an object of Kubernetes, of scope
// Cluster. Its name is that of the Node, so that a policy can hold each node to
// its own. It has no status: only the node itself writes it, all of it at once.
// Nothing in it is secret: anyone who may read it belongs to the cluster.
//
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Overlay",type=string,JSONPath=`.spec.overlay6`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Endpoints",type=string,JSONPath=`.spec.endpoints`,priority=1
// +kubebuilder:printcolumn:name="Ranges",type=string,JSONPath=`.spec.ranges`,priority=1
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.spec.renewTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Member struct {
	TypeMeta

	Metadata MemberMeta       `json:"metadata"`
	Spec     MemberObjectSpec `json:"spec"`
}

// MemberMeta is what we read of an object's metadata.
type MemberMeta struct {
	Name string `json:"name"`
	// Generation grows with each change of the spec: the version of what is stated.
	Generation int64 `json:"generation,omitempty"`
}

// MemberObjectSpec is what an object states: facts, and for how long they hold.
//
// +kubebuilder:validation:XValidation:rule="has(self.renewTime) == has(self.leaseSeconds)",message="a lease has renewTime and leaseSeconds"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.publicKey) || has(self.publicKey)",message="a member does not lose its key"
type MemberObjectSpec struct {
	MemberSpec
	MemberLabels
	MemberLease
}

// MemberLabels is what an object says of itself that a file or a configuration says elsewhere.
type MemberLabels struct {
	// Node is the stable name of the node, by which hubs know it: that of its certificate. A
	// hub proves it; here it is a hint.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// Clusters are the ids of the cluster's secrets that the node has. They are no secrets.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=55
	// +kubebuilder:validation:items:Pattern=`^t1-[0-9a-v]{52}$`
	Clusters []string `json:"clusters,omitempty"`
	// Lost are linked clusters that the node, a gateway, does not reach now: others of its cluster send to these through
	// another gateway.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	Lost []string `json:"lost,omitempty"`
}

// MemberLease is how long an object holds. Without it, for as long as it is there.
type MemberLease struct {
	// RenewTime is when the node was last there, by its own clock; each renewal
	// changes it. Readers measure the lease by their own clocks.
	// +kubebuilder:validation:Format=date-time
	RenewTime string `json:"renewTime,omitempty"`
	// LeaseSeconds is how long the member lives after a renewal.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1800
	LeaseSeconds int `json:"leaseSeconds,omitempty"`
}

// MemberSpec is what is stated of a member. Every field may be left out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.overlay6) || isIP(self.overlay6) && ip(self.overlay6).family() == 6",message="overlay6 is an IPv6 address"
// +kubebuilder:validation:XValidation:rule="!has(self.overlay4) || isIP(self.overlay4) && ip(self.overlay4).family() == 4",message="overlay4 is an IPv4 address"
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || self.addresses.all(a, isIP(a))",message="addresses are IP addresses"
// +kubebuilder:validation:XValidation:rule="!has(self.ranges) || self.ranges.all(r, isCIDR(r) && cidr(r) == cidr(r).masked())",message="ranges are CIDRs without host bits"
// +kubebuilder:validation:XValidation:rule="!has(self.excluded) || self.excluded.all(r, isCIDR(r) && cidr(r) == cidr(r).masked())",message="excluded are CIDRs without host bits"
type MemberSpec struct {
	// Nodename is the name of the Kubernetes node.
	// +kubebuilder:validation:MaxLength=253
	Nodename string `json:"nodename,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`
	// PublicKey is the WireGuard public key, base64.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// Pin is by what others know the member's certificate for IPsec: the SHA-256 of its public key, base64 without
	// padding.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]$`
	Pin string `json:"pin,omitempty"`
	// Engine is what encrypts the member's packets: wireguard or ipsec. Left out, it is wireguard.
	// +kubebuilder:validation:Enum=wireguard;ipsec
	Engine string `json:"engine,omitempty"`
	// Overlay6 and Overlay4 are the member's addresses in the mesh.
	// +kubebuilder:validation:MaxLength=45
	Overlay6 string `json:"overlay6,omitempty"`
	// +kubebuilder:validation:MaxLength=15
	Overlay4 string `json:"overlay4,omitempty"`
	// Addresses are those of the machine itself.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`
	// Endpoints are ip:port where WireGuard listens, as others may reach it.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=53
	Endpoints []string `json:"endpoints,omitempty"`
	// Ranges are CIDRs behind the member, Excluded those of them that are not.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	Ranges []string `json:"ranges,omitempty"`
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	Excluded []string `json:"excluded,omitempty"`
	// Role is controlplane or worker.
	// +kubebuilder:validation:Enum=controlplane;worker
	Role string `json:"role,omitempty"`
	// APIServerPort is where kube-apiserver listens on a control plane.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	APIServerPort *int `json:"apiServerPort,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	OperatingSystem string `json:"operatingSystem,omitempty"`
	// Mesh is the version of the path protocol that the member speaks; 0: WireGuard alone.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Mesh int `json:"mesh,omitempty"`
	// RelayCluster is the cluster of the member's certificate at hubs.
	// +kubebuilder:validation:MaxLength=63
	RelayCluster string `json:"relayCluster,omitempty"`
	// Relays are the names of the hubs that it is attached to.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	Relays []string `json:"relays,omitempty"`
}
