// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// BackendList is the answer to GET /v1/backends: what carries the dials of each cluster.
type BackendList struct {
	Meta
	Default  string           `json:"default"` // of clusters without a backend of their own
	Backends []Backend        `json:"backends"`
	Clusters []ClusterBackend `json:"clusters"`
}

// Backend is one that is configured. One that no cluster uses may be removed from the configuration.
type Backend struct {
	Name     string `json:"name"`
	Clusters int    `json:"clusters"` // that have it, or streams by it
}

// ClusterBackend is what carries the dials of one cluster; also the answer to PUT /v1/clusters/{cluster}/backend.
type ClusterBackend struct {
	Meta
	Name    string         `json:"name"`
	Backend string         `json:"backend"`
	Own     bool           `json:"own,omitempty"`  // not the default
	Open    map[string]int `json:"open,omitempty"` // streams, by backend
	// LastByProxy is when something else than agents was last asked to carry a dial, since the hub's start.
	LastByProxy time.Time    `json:"lastByProxy,omitzero"`
	Constraints []Constraint `json:"constraints"`
}

// The types of constraints.
const (
	AgentsReady = "AgentsReady" // agents could carry the dials
	UsesAgents  = "UsesAgents"  // nothing else carries any
)

// Constraint says whether something holds of a cluster that others wait for.
type Constraint struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// BackendChoice is the body of PUT /v1/clusters/{cluster}/backend.
type BackendChoice struct {
	Backend string `json:"backend"` // empty: the default
	Force   bool   `json:"force,omitempty"`
}
