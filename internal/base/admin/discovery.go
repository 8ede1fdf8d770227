// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// DiscoveryStatus is a discovery service's answer to GET /v1/status. It has counts, and
// nothing that members announced.
type DiscoveryStatus struct {
	Meta
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Since       time.Time         `json:"since"`
	Draining    bool              `json:"draining"`
	Listen      string            `json:"listen"`
	STUN        STUN              `json:"stun"`
	Redirect    string            `json:"redirect,omitempty"` // where Talos nodes are sent
	TLS         string            `json:"tls"`                // self, files or none
	CAPin       string            `json:"caPin,omitempty"`    // with self
	Certificate time.Time         `json:"certificateEnd,omitzero"`
	Store       DiscoveryStore    `json:"store"`
	Clusters    int               `json:"clusters"`
	Members     int               `json:"members"`
	Bytes       int64             `json:"bytes"`
	Watchers    int64             `json:"watchers"`
	Connections int64             `json:"connections"`
	Limits      DiscoveryLimits   `json:"limits"`
	Cluster     *DiscoveryCluster `json:"cluster,omitempty"` // only in the answer for one cluster
}

// DiscoveryStore describes where members are stored.
type DiscoveryStore struct {
	Kind     string    `json:"kind"` // memory or etcd
	Settled  bool      `json:"settled"`
	Settles  time.Time `json:"settles,omitzero"`
	Degraded string    `json:"degraded,omitempty"` // why the stored members may be lost or stale
	Since    time.Time `json:"degradedSince,omitzero"`
	Saved    time.Time `json:"saved,omitzero"`
}

// DiscoveryLimits are the bounds of a service.
type DiscoveryLimits struct {
	Clusters    int   `json:"clusters"`
	Members     int   `json:"members"` // of one cluster
	Endpoints   int   `json:"endpoints"`
	Bytes       int64 `json:"bytes"`
	Connections int   `json:"connections"`
}

// DiscoveryCluster has the counts of one cluster.
type DiscoveryCluster struct {
	ID       string `json:"id"`
	Protocol string `json:"protocol"` // native or sidero
	Members  int    `json:"members"`
	Removals int    `json:"removals"` // remembered
	Bytes    int64  `json:"bytes"`
	Watchers int    `json:"watchers"`
}
