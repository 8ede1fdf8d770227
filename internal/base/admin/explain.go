// SPDX-License-Identifier: Apache-2.0

package admin

// Explanation is the answer to GET /v1/clusters/{cluster}/explain: what each hop
// would decide about a dial. Nothing is dialled and no name is resolved.
type Explanation struct {
	Meta
	Cluster string `json:"cluster"`
	Target  string `json:"target"`
	Caller  string `json:"caller,omitempty"`
	Egress  string `json:"egress,omitempty"`
	Source  string `json:"source,omitempty"`
	// Verdict is the combined one: allowed if the hub and at least one agent allow.
	Verdict string `json:"verdict"`
	Hops    []Hop  `json:"hops"`
}

// Hop is one place where a dial is decided.
type Hop struct {
	Place   string `json:"place"` // hub or agent; ports: of the hub, for an agent that asks
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Why     string `json:"why"`
	Version string `json:"version,omitempty"` // of the policy for the cluster
}

// The verdicts of an explanation.
const (
	VerdictAllowed = "allowed"
	VerdictDenied  = "denied"
	VerdictOpen    = "open" // it depends on the name's address, or on unknown facts
)
