// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// EdgeStatus is an edge's answer to GET /v1/status.
type EdgeStatus struct {
	Meta
	Version      string         `json:"version"`
	Since        time.Time      `json:"since"`
	Draining     bool           `json:"draining"`
	Listeners    []EdgeListener `json:"listeners"`
	HealthListen string         `json:"healthListen"`
	Policy       *PolicyStatus  `json:"policy,omitempty"` // nil: none is configured
	Tenants      EdgeTenants    `json:"tenants"`
	Ejected      []string       `json:"ejected,omitempty"` // upstreams that are tried after all others
	Tunnels      EdgeTunnels    `json:"tunnels"`
}

// EdgeListener is one port of an edge.
type EdgeListener struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // tls or connect
	Listen   string `json:"listen"`
}

// EdgeTenants are the tenants in force, and the files that are refused.
type EdgeTenants struct {
	InForce  int             `json:"inForce"`
	Refused  int             `json:"refused,omitempty"`  // files
	Refusals []PolicyRefusal `json:"refusals,omitempty"` // the newest of them first
}

// EdgeTunnels counts the tunnels that are open.
type EdgeTunnels struct {
	Open     int `json:"open"`
	Limit    int `json:"limit"`
	Clusters int `json:"clusters"` // that have any
	// Most are the clusters with most tunnels, at most 20.
	Most []EdgeClusterTunnels `json:"most,omitempty"`
}

// EdgeClusterTunnels counts the tunnels of one cluster.
type EdgeClusterTunnels struct {
	Cluster string `json:"cluster"`
	Open    int    `json:"open"`
}
