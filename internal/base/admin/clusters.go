// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// ClusterList is the answer to GET /v1/clusters.
type ClusterList struct {
	Meta
	Clusters []ClusterInfo `json:"clusters"`
}

// ClusterInfo is one row of a ClusterList.
type ClusterInfo struct {
	Name       string    `json:"name"`
	Created    time.Time `json:"created,omitzero"` // zero: only the configuration names it
	Agents     int       `json:"agents"`           // connected
	Nodes      int       `json:"nodes"`            // connected to the relay
	Tokens     int       `json:"tokens"`           // still usable
	Sockets    int       `json:"sockets"`
	Configured bool      `json:"configured,omitempty"` // the hub's configuration names it
	Policies   []string  `json:"policies,omitempty"`   // files that name it
	WireGuard  string    `json:"wireguard,omitempty"`  // its address, while it is on
}

// ClusterNames is the answer to GET /v1/clusters/names: the clusters into which an edge may dial.
type ClusterNames struct {
	Meta
	Version string   `json:"version"` // of the list; sent back to wait for another one
	Names   []string `json:"names"`   // sorted
}

// ClusterRemoval is the answer to DELETE /v1/clusters/{cluster}: what was removed with it.
type ClusterRemoval struct {
	Meta
	Name        string   `json:"name"`
	Tokens      int      `json:"tokens"`
	Agents      int      `json:"agents"` // names
	Nodes       int      `json:"nodes"`
	Clients     int      `json:"clients"`     // certificates
	Connections int      `json:"connections"` // closed
	Warnings    []string `json:"warnings,omitempty"`
}

// PortStatus describes a port of the hub, as the agents of one cluster use it.
type PortStatus struct {
	Name    string `json:"name"`
	Target  string `json:"target"`
	Streams int    `json:"streams"` // live ones of the cluster
}
