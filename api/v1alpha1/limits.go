// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
)

// HubLimitsConfig bounds the resources of a hub, and of its clusters, agents and callers.
type HubLimitsConfig struct {
	// Memory bounds the memory of the process. Default: GOMEMLIMIT, or nine tenths of
	// the memory limit of its cgroup, or none.
	Memory *Bytes `json:"memory,omitempty"`
	LimitsConfig
}

// LimitsConfig bounds each cluster, and each agent and caller in it.
type LimitsConfig struct {
	Cluster BoundsConfig `json:"cluster,omitempty"`
	Agent   BoundsConfig `json:"agent,omitempty"`
	Caller  BoundsConfig `json:"caller,omitempty"`
	// Relay bounds the relay between the nodes of a cluster.
	Relay RelayLimitsConfig `json:"relay,omitempty"`
}

// RelayLimitsConfig are the bounds of a cluster's relay.
type RelayLimitsConfig struct {
	Nodes              *Amount `json:"nodes,omitempty"`              // connected; default 5000
	NodeBytesPerSecond *Bytes  `json:"nodeBytesPerSecond,omitempty"` // that each node sends; default 128MiB
	BytesPerSecond     *Bytes  `json:"bytesPerSecond,omitempty"`     // that all of them send; default 256MiB
}

// BoundsConfig are the bounds of a cluster, an agent or a caller.
type BoundsConfig struct {
	Sessions          *Amount `json:"sessions,omitempty"`          // of agents; connections of a caller
	Streams           *Amount `json:"streams,omitempty"`           // live ones, dials under way included
	PendingDials      *Amount `json:"pendingDials,omitempty"`      // dials under way
	DialsPerSecond    *Amount `json:"dialsPerSecond,omitempty"`    // in the long run
	DialBurst         *Amount `json:"dialBurst,omitempty"`         // at once; default 5 seconds' worth
	BytesInPerSecond  *Bytes  `json:"bytesInPerSecond,omitempty"`  // into the cluster
	BytesOutPerSecond *Bytes  `json:"bytesOutPerSecond,omitempty"` // out of the cluster
	UnreadBytes       *Bytes  `json:"unreadBytes,omitempty"`       // received and not read yet
}

// none is the text for no bound.
const none = "none"

// Amount is a number from 1, or "none" in a file for no bound.
type Amount struct {
	N    int64
	None bool
}

// UnmarshalText reads a whole number without a sign, or none.
func (a *Amount) UnmarshalText(text []byte) error {
	s := string(text)
	if s == none {
		*a = Amount{None: true}
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil || n == 0 || strings.HasPrefix(s, "0") {
		return fmt.Errorf("%q is neither a whole number from 1 nor none", s)
	}
	*a = Amount{N: int64(n)}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (a Amount) MarshalText() ([]byte, error) {
	if a.None {
		return []byte(none), nil
	}
	return strconv.AppendInt(nil, a.N, 10), nil
}

// Bytes is a Size above 0, or "none" in a file for no bound.
type Bytes struct {
	N    Size
	None bool
}

// UnmarshalText reads a size with its unit, or none.
func (b *Bytes) UnmarshalText(text []byte) error {
	if string(text) == none {
		*b = Bytes{None: true}
		return nil
	}
	var n Size
	if err := n.UnmarshalText(text); err != nil {
		return fmt.Errorf("%q is neither a size such as 64KiB, 100MiB or 1GiB nor none", text)
	}
	*b = Bytes{N: n}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) {
	if b.None {
		return []byte(none), nil
	}
	return b.N.MarshalText()
}
