// SPDX-License-Identifier: Apache-2.0

package istio

// Gap is what is wrong with a way.
type Gap string

// The gaps.
const (
	Open    Gap = "open"    // nothing guards it
	Doubled Gap = "doubled" // several guards do: the narrowest holds
	Differs Gap = "differs" // the guard decides otherwise than the list
	Unknown Gap = "unknown" // what it decides cannot be known
)

// Uncovered is a way into a cluster that is not guarded as its list says.
type Uncovered struct {
	Cluster string
	Flow    string
	Way     string // the chain or the object
	Kind    Gap
	Why     string
}
