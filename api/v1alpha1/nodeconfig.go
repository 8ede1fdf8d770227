// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The directions of a policy of IPsec.
const (
	XfrmIn  = "in"
	XfrmOut = "out"
	XfrmFwd = "fwd"
)

// NodeConfigSpec is the plan of one node, as the node itself has it: a report, which changes nothing at the node. The
// object's name is that of the ClusterNode.
// +kubebuilder:object:generate=true
type NodeConfigSpec struct {
	// Peers are the nodes of other clusters that the node has a tunnel to.
	// +kubebuilder:validation:MaxItems=1024
	Peers []PlannedPeer `json:"peers,omitempty"`
	// Routes lead into tunnels.
	// +kubebuilder:validation:MaxItems=2048
	Routes []PlannedRoute `json:"routes,omitempty"`
	// XfrmPolicies say which packets IPsec encrypts.
	// +kubebuilder:validation:MaxItems=4096
	XfrmPolicies []XfrmPolicy `json:"xfrmPolicies,omitempty"`
	// XfrmStates are the two directions of each tunnel of IPsec, without their keys.
	// +kubebuilder:validation:MaxItems=2048
	XfrmStates []XfrmState `json:"xfrmStates,omitempty"`
	// IPsetsAvoidMasq are ranges to which packets of pods keep their address.
	// +kubebuilder:validation:MaxItems=1024
	IPsetsAvoidMasq []IPSetEntry `json:"ipsetsAvoidMasq,omitempty"`
	// More counts what the lists leave out.
	More *NodeConfigMore `json:"more,omitempty"`
}

// NodeConfigMore counts what the lists of a NodeConfig leave out.
// +kubebuilder:object:generate=true
type NodeConfigMore struct {
	Peers           int32 `json:"peers,omitempty"`
	Routes          int32 `json:"routes,omitempty"`
	XfrmPolicies    int32 `json:"xfrmPolicies,omitempty"`
	XfrmStates      int32 `json:"xfrmStates,omitempty"`
	IPsetsAvoidMasq int32 `json:"ipsetsAvoidMasq,omitempty"`
}

// PlannedPeer is a node of another cluster.
// +kubebuilder:object:generate=true
type PlannedPeer struct {
	// Name is that of its ClusterNode.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Engine is wireguard or ipsec.
	// +kubebuilder:validation:Enum=wireguard;ipsec
	Engine string `json:"engine,omitempty"`
	// PublicKey is its WireGuard public key.
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey,omitempty"`
	// Endpoints are ip:port at which it is tried, in turn.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=53
	Endpoints []string `json:"endpoints,omitempty"`
	// Ranges are what it is reached for, as this node sees them: mapped ones, where there are any.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	Ranges []string `json:"ranges,omitempty"`
	// MoreRanges is how many of them are left out.
	MoreRanges int32 `json:"moreRanges,omitempty"`
}

// PlannedRoute is a route for a range.
// +kubebuilder:object:generate=true
type PlannedRoute struct {
	CIDR Range `json:"cidr"`
	// Interface is where packets leave.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// Via is the next hop, if there is one.
	Via Address `json:"via,omitempty"`
	// Closed says that packets to the range are lost: no node is known that has it.
	Closed bool `json:"closed,omitempty"`
	// Table is that of the kernel.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Table int64 `json:"table,omitempty"`
	// MTU is left out if it is that of the interface.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
}

// XfrmPolicy is a policy of IPsec: packets from leftNet to rightNet travel in a tunnel from leftIP to rightIP.
// +kubebuilder:object:generate=true
type XfrmPolicy struct {
	LeftIP   Address `json:"leftIP"`
	LeftNet  Range   `json:"leftNet"`
	RightIP  Address `json:"rightIP"`
	RightNet Range   `json:"rightNet"`
	// ReqID connects policies with states.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ReqID int64 `json:"reqID"`
	// Dir is in, out or fwd.
	// +kubebuilder:validation:Enum=in;out;fwd
	Dir string `json:"dir"`
}

// XfrmState is one direction of a tunnel of IPsec. Its key stands nowhere but in the kernels of both nodes.
// +kubebuilder:object:generate=true
type XfrmState struct {
	LeftIP  Address `json:"leftIP"`
	RightIP Address `json:"rightIP"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ReqID int64 `json:"reqID"`
	// SPI is by which the receiver finds the state.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	SPI int64 `json:"spi"`
	// Algorithm is as the kernel calls it, such as rfc4106(gcm(aes)).
	// +kubebuilder:validation:MaxLength=64
	Algorithm string `json:"algorithm"`
}

// IPSetEntry is a range to which packets of pods keep their address.
// +kubebuilder:object:generate=true
type IPSetEntry struct {
	CIDR Range `json:"cidr"`
	// Name is that of the set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}
