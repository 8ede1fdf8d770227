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
	// Verdict is that of all hops: allowed if the hub allows and an agent does.
	Verdict string `json:"verdict"`
	Hops    []Hop  `json:"hops"`
}

// Hop is one place where a dial is decided.
type Hop struct {
	Place   string `json:"place"` // hub or agent
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Why     string `json:"why"`
	Version string `json:"version,omitempty"` // of the policy that speaks of the cluster
}

// The verdicts of an explanation.
const (
	VerdictAllowed = "allowed"
	VerdictDenied  = "denied"
	VerdictOpen    = "open" // the address of the name decides, or what is not told
)
