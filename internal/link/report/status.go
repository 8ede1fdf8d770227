// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// The bounds of a status, within those of the kind.
const (
	mostTunnels     = 512
	mostDifferences = 64
	mostDifference  = 512 // bytes
	mostReason      = 200 // bytes
	mostAddresses   = 32  // of an interface
)

// Status is the status of a NodeConfig as it is written.
type Status struct {
	AppliedGeneration int64    `json:"appliedGeneration,omitempty"`
	Differs           int32    `json:"differs"`
	Differences       []string `json:"differences,omitempty"`
	Tunnels           []Tunnel `json:"tunnels,omitempty"`
	MoreTunnels       int32    `json:"moreTunnels,omitempty"`
	NIC               *NIC     `json:"nic,omitempty"`
}

// NIC is the interface that leads to other clusters, as a node has found it.
type NIC struct {
	Interface string       `json:"interface,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // that others may try, the best first
	Reason    string       `json:"reason,omitempty"`    // why there is none
}

// Tunnel is the state of the tunnel to a node of another cluster.
type Tunnel struct {
	Peer   string    `json:"peer"`
	Engine string    `json:"engine,omitempty"`
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Alone  bool      `json:"alone,omitempty"`
	Since  time.Time `json:"since,omitzero"` // by the second, in UTC
}

// Has is what a node has of a plan, at a time. A tunnel keeps the time of its state from the status before.
//
//	generation: that of the plan as the API server has it
func Has(f Facts, before Status, generation int64, now time.Time) Status {
	out := Status{AppliedGeneration: before.AppliedGeneration}
	if n := f.NIC; n != nil {
		addresses, _ := first(n.Addresses, mostAddresses)
		out.NIC = &NIC{n.Interface, addresses, cut(n.Reason, mostReason)}
	}
	if f.InForce {
		out.AppliedGeneration = generation
	}
	steps, _ := first(f.Differs, mostDifferences)
	for _, s := range steps {
		out.Differences = append(out.Differences, cut(s.String(), mostDifference))
	}
	if out.Differs = int32(min(len(f.Differs), 1<<30)); out.Differs == 0 && !f.InForce && f.Why != "" {
		out.Differs, out.Differences = 1, []string{cut(f.Why, mostDifference)}
	}
	since := map[string]Tunnel{}
	for _, t := range before.Tunnels {
		since[t.Peer] = t
	}
	for _, p := range others(f.Peers) {
		t := Tunnel{Peer: p.Name, Engine: p.Engine.String(), State: p.State, Reason: cut(p.Reason, mostReason),
			Alone: p.Alone,
			Since: now.UTC().Truncate(time.Second)}
		if last, ok := since[t.Peer]; ok && last.State == t.State {
			t.Since = last.Since
		}
		out.Tunnels = append(out.Tunnels, t)
	}
	if len(out.Tunnels) > mostTunnels { // those are left out that are well
		slices.SortStableFunc(out.Tunnels, func(a, b Tunnel) int { return rank(a) - rank(b) })
		out.Tunnels, out.MoreTunnels = first(out.Tunnels, mostTunnels)
		slices.SortFunc(out.Tunnels, func(a, b Tunnel) int { return strings.Compare(a.Peer, b.Peer) })
	}
	return out
}

func rank(t Tunnel) int { return slices.Index([]string{Down, Relayed, Up, Unused}, t.State) }

func cut(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

// News reports whether one status says something that people should know soon after another. Reasons change with every
// ping, and tunnels are used or not all the time: they are written along with the rest.
func News(before, now Status) bool {
	if before.AppliedGeneration != now.AppliedGeneration || before.Differs != now.Differs ||
		before.MoreTunnels != now.MoreTunnels || len(before.Tunnels) != len(now.Tunnels) ||
		!reflect.DeepEqual(before.NIC, now.NIC) {
		return true
	}
	for i, t := range now.Tunnels {
		last := before.Tunnels[i]
		well := (last.State == Unused || last.State == Up) && (t.State == Unused || t.State == Up)
		if last.Peer != t.Peer || last.Alone != t.Alone || last.State != t.State && !well {
			return true
		}
	}
	return false
}
