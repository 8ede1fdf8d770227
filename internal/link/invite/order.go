// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/link/explain"
)

// Order is what 'tombolo link' hands to the program that has Kubernetes' client library: one of the other fields.
type Order struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // files as kubectl takes them; empty: those of the environment
	Context    string `json:"context,omitempty"`

	Token  *TokenOrder  `json:"token,omitempty"`
	Join   *JoinOrder   `json:"join,omitempty"`
	Unjoin *UnjoinOrder `json:"unjoin,omitempty"`
	List   *ListOrder   `json:"list,omitempty"`

	Check   *CheckOrder   `json:"check,omitempty"`
	Explain *ExplainOrder `json:"explain,omitempty"`
}

// MostOrder bounds an order in bytes.
const MostOrder = 4 << 20

// TokenOrder has a host cluster invite a cluster.
type TokenOrder struct {
	Cluster string        `json:"cluster"`
	Server  string        `json:"server,omitempty"` // empty: that of the kubeconfig
	Name    string        `json:"name,omitempty"`   // in the certificate; empty: as the kubeconfig and Server say
	Proxy   string        `json:"proxy,omitempty"`
	Expires time.Duration `json:"expires"`
	Objects string        `json:"objects"` // YAML of manifest.Invitation
	Secret  string        `json:"secret"`  // of the federation, if it has none yet
	Given   bool          `json:"given,omitempty"`
	Renew   bool          `json:"renew,omitempty"` // the member's token, also of one that has joined
	Wait    time.Duration `json:"wait"`            // for what controllers write
}

// JoinOrder has a cluster be linked.
type JoinOrder struct {
	Cluster   string        `json:"cluster"`
	Line      string        `json:"line,omitempty"`   // empty: with the credentials that are there
	Proxy     string        `json:"proxy,omitempty"`  // in place of the line's
	Server    string        `json:"server,omitempty"` // at which the join itself dials; empty: as the member
	Namespace string        `json:"namespace"`
	Spec      []byte        `json:"spec,omitempty"` // JSON of a ClusterSpec; empty: nothing was said
	Objects   string        `json:"objects"`        // YAML: the controller, members, and the mesh
	Mesh      bool          `json:"mesh"`           // the mesh is among them
	DryRun    bool          `json:"dryRun,omitempty"`
	Wait      time.Duration `json:"wait"`
}

// UnjoinOrder has a cluster be no longer linked.
type UnjoinOrder struct {
	Cluster   string        `json:"cluster"`
	Namespace string        `json:"namespace"`
	Host      bool          `json:"host,omitempty"`    // the kubeconfig is that of the host cluster
	HostFiles string        `json:"hostFiles"`         // a kubeconfig of the host cluster; empty: none
	Objects   string        `json:"objects,omitempty"` // YAML of manifest.Invitation
	Wait      time.Duration `json:"wait"`
}

// ListOrder asks for clusters.
type ListOrder struct{}

// CheckOrder has all nodes of a cluster check how they reach linked clusters.
type CheckOrder struct {
	Args []string `json:"args,omitempty"` // flags of 'tombolo link check'
}

// ExplainOrder asks how a packet goes.
type ExplainOrder struct {
	From string     `json:"from"` // CLUSTER.NODE, or a node that only one cluster has
	To   netip.Addr `json:"to"`
}

// Answer is what comes back.
type Answer struct {
	Line    string               `json:"line,omitempty"` // of a TokenOrder
	List    *List                `json:"list,omitempty"`
	Checked []check.Node         `json:"checked,omitempty"`
	Way     *explain.Explanation `json:"way,omitempty"`
	Fault   *Fault               `json:"fault,omitempty"`
}

// Fault is a fault as JSON.
type Fault struct {
	Code fault.Code `json:"code"`
	What string     `json:"what"`
	Why  string     `json:"why,omitempty"`
	Next string     `json:"next,omitempty"`
}

// FaultOf is an error as JSON.
func FaultOf(err error) *Fault {
	f := fault.From(err)
	if f == nil {
		return nil
	}
	return &Fault{f.Code, f.What, f.Why, f.Next}
}

// Err is the error again; nil if there is none.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	return &fault.Fault{Code: f.Code, What: f.What, Why: f.Why, Next: f.Next}
}

// List is what 'tombolo link list' shows.
type List struct {
	Clusters []Listed  `json:"clusters"`
	Pending  []Pending `json:"pending"` // join lines that were not used yet
}

// Listed is a linked cluster.
type Listed struct {
	Name        string   `json:"name"`
	NetworkType string   `json:"networkType"`
	Ranges      []string `json:"ranges"` // of pods and services, as others reach them
	Gateways    []string `json:"gateways,omitempty"`
	Nodes       Count    `json:"nodes"`   // ready, of all
	Tunnels     Count    `json:"tunnels"` // up, of all
	Heard       string   `json:"heard,omitempty"`
	Ready       bool     `json:"ready"`
	Problems    []string `json:"problems,omitempty"` // one line each
}

// Pending is a join line that was not used yet.
type Pending struct {
	Cluster string `json:"cluster"`
	Expires string `json:"expires,omitempty"` // RFC 3339
	Expired bool   `json:"expired,omitempty"`
}
