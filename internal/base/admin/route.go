// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// RouteStatus is the answer of a 'tombolo route' to GET /v1/status.
type RouteStatus struct {
	Meta
	Version      string         `json:"version"`
	Since        time.Time      `json:"since"`
	Draining     bool           `json:"draining"`
	Link         string         `json:"link"`
	Addresses    []string       `json:"addresses"`
	Resolver     []string       `json:"resolver,omitempty"` // its addresses
	Table        int            `json:"table"`
	Rule         int            `json:"rule"`
	HealthListen string         `json:"healthListen"`
	Open         int            `json:"open"`  // connections
	Limit        int            `json:"limit"` // of them
	Clusters     []RouteCluster `json:"clusters"`
}

// RouteCluster is one cluster that is reached.
type RouteCluster struct {
	Name     string       `json:"name"`
	Identity string       `json:"identity,omitempty"` // of the certificate
	Expires  time.Time    `json:"expires,omitzero"`
	Open     int          `json:"open"` // connections
	Ranges   []RouteRange `json:"ranges"`
	DNS      *RouteDNS    `json:"dns,omitempty"` // nil: its names are not resolved here
	Hubs     []RouteHub   `json:"hubs"`
}

// RouteRange is a range of a cluster, and the one by which it is reached here.
type RouteRange struct {
	Range string `json:"range"`
	As    string `json:"as,omitempty"` // empty: the same
}

// RouteDNS are the names of a cluster.
type RouteDNS struct {
	Zone   string `json:"zone"`             // under which they are asked for here
	Domain string `json:"domain"`           // as the cluster has it
	Server string `json:"server"`           // that is asked there
	Failed string `json:"failed,omitempty"` // why the last question had no answer
}

// RouteHub is a hub of a cluster.
type RouteHub struct {
	Address  string    `json:"address"`
	Answered time.Time `json:"answered,omitzero"` // when it last did
	Failed   string    `json:"failed,omitempty"`  // why it is tried after the others now
}

// RouteExplanation is the answer to GET /v1/explain: where a connection would lead, or who would be asked for a name.
type RouteExplanation struct {
	Meta
	Asked    string     `json:"asked"`
	Resolver bool       `json:"resolver,omitempty"` // it is asked itself: what follows is empty
	Range    RouteRange `json:"range,omitzero"`     // of an address
	DNS      *RouteDNS  `json:"dns,omitempty"`      // of a name
	Cluster  string     `json:"cluster,omitempty"`
	Target   string     `json:"target,omitempty"`   // as the agent dials it, or as the cluster has the name
	Identity string     `json:"identity,omitempty"` // as policies see the caller
}
