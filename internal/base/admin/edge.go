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
	Unguarded    EdgeUnguarded  `json:"unguarded"`
}

// EdgeUnguarded counts ways that lead past the rules of their clusters.
type EdgeUnguarded struct {
	Ways     int      `json:"ways"`
	Clusters []string `json:"clusters,omitempty"` // at most 20 of those that have such ways
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
	Away     []EdgeSource    `json:"away,omitempty"`     // sources that say nothing now; what is known of them stays
}

// EdgeSource is a hub or Kubernetes, from which tenants come.
type EdgeSource struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
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

// What guards a way into a cluster.
const (
	GuardRules     = "rules"     // rules name the cluster and the flow: what none allows is denied
	GuardTenant    = "tenant"    // no rule does, and the tenant is protected: everything is denied
	GuardOpen      = "open"      // nothing, and no rule names the cluster in any flow
	GuardUnguarded = "unguarded" // nothing, although rules name the cluster in other flows
)

// EdgeCoverage is an edge's answer to GET /v1/coverage: every way into its clusters, and what guards it.
type EdgeCoverage struct {
	Meta
	Tenants int            `json:"tenants"`
	Guards  map[string]int `json:"guards"` // the number of ways, by guard
	// Ways are at most 10,000, the unguarded and the open ones first; More is the number of others.
	Ways []EdgeWay `json:"ways"`
	More int       `json:"more,omitempty"`
}

// EdgeWay is one way into a cluster.
type EdgeWay struct {
	Cluster      string     `json:"cluster"`
	Flow         string     `json:"flow"`
	Names        []string   `json:"names,omitempty"`        // at TLS listeners
	Protocols    []string   `json:"protocols,omitempty"`    // at TLS listeners
	Destinations []string   `json:"destinations,omitempty"` // at CONNECT listeners
	Upstreams    []string   `json:"upstreams,omitempty"`    // none: the services of the destinations
	Guard        string     `json:"guard"`
	Rules        []EdgeRule `json:"rules,omitempty"`
}

// EdgeRule is a rule of an AccessPolicy.
type EdgeRule struct {
	Group string `json:"group,omitempty"`
	Rule  string `json:"rule"`
	Deny  bool   `json:"deny,omitempty"`
}

// EdgeExplanation is an edge's answer to GET /v1/explain, and that of 'tombolo policy explain' from files: what it
// decides about a source.
type EdgeExplanation struct {
	Meta
	Cluster string `json:"cluster"`
	Flow    string `json:"flow"`
	Name    string `json:"name,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Source  string `json:"source"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Rule    string `json:"rule,omitempty"`
	Group   string `json:"group,omitempty"`
	At      string `json:"at,omitempty"`      // file:line of the rule; a running edge does not know it
	Version string `json:"version,omitempty"` // of the policy of a running edge
	Default string `json:"default"`           // the verdict where no rule decides
	// Protected says by what the cluster is protected in this flow.
	Protected string   `json:"protected,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}
