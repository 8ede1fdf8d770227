// SPDX-License-Identifier: Apache-2.0

package member

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// mostDown is how many tunnels are named that are down.
const mostDown = 3

// health is what a NodeConfig says of a node's tunnels. The zero value is that of a node without one.
type health struct {
	reported      bool
	passes        bool // packets pass through a tunnel: that nobody uses one says nothing
	up, all, down int
	named         string // the first that are down
	engines       string
	nic           share.NIC
}

// healthOf reads a NodeConfig. A tunnel that nobody uses counts as one through which packets pass.
func healthOf(of *objects.NodeConfig) health {
	out := health{reported: true}
	var engines, down []string
	for _, t := range of.Status.Tunnels {
		if t.Engine != "" && !slices.Contains(engines, t.Engine) {
			engines = append(engines, t.Engine)
		}
		switch t.State {
		case objects.TunnelDown:
			down = append(down, t.Peer)
		case objects.TunnelUp, objects.TunnelRelayed:
			out.passes = true
		}
	}
	if n := of.Status.NIC; n != nil {
		out.nic.Reason = n.Reason
		for _, text := range n.Addresses {
			if a, err := netip.ParseAddr(string(text)); err == nil {
				out.nic.Addresses = append(out.nic.Addresses, a.Unmap())
			}
		}
	}
	out.all, out.down = len(of.Status.Tunnels)+int(of.Status.MoreTunnels), len(down)
	if out.down > 0 && out.down == len(of.Status.Tunnels) { // the worst are listed: the rest may be as they are
		out.down = out.all
	}
	out.up = out.all - out.down
	slices.Sort(engines)
	slices.Sort(down)
	out.engines, out.named = strings.Join(engines, ","), strings.Join(down[:min(len(down), mostDown)], ", ")
	return out
}

// into adds the health to a status that has all else. An unchanged condition keeps its time.
//
//	wanted: spec.engine of the Cluster
func (h health) into(s *objects.ClusterNodeStatus, before []metav1.Condition, wanted string, now time.Time) {
	if !h.reported {
		return
	}
	s.Tunnels = fmt.Sprintf("%d/%d", h.up, h.all)
	if s.Engine = h.engines; s.Engine != "" {
		s.EngineReason = engineReason(wanted, h.engines)
	}
	c := metav1.Condition{Type: objects.ConditionTunnelsUp, Status: metav1.ConditionTrue, Reason: objects.ReasonInForce,
		Message: fmt.Sprintf("packets pass through every tunnel, of %d", h.all),
		// The time of a status that is written again does not make it another one.
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	switch {
	case s.NodeStatus != objects.NodeReady:
		c.Status, c.Reason = metav1.ConditionUnknown, objects.ReasonSilent
		c.Message = "the Node is not ready: what it has reported may be old"
	case h.down > 0:
		c.Status, c.Reason = metav1.ConditionFalse, objects.ReasonTunnelDown
		c.Message = "no packet passes to " + h.named
		if more := h.down - mostDown; more > 0 {
			c.Message += fmt.Sprintf(" and %d more", more)
		}
		c.Message += "; status.tunnels of the NodeConfig says why"
	case h.all == 0:
		c.Message = "the node has no tunnels to other clusters"
	}
	if last := meta.FindStatusCondition(before, c.Type); last != nil && last.Status == c.Status {
		c.LastTransitionTime = last.LastTransitionTime
	}
	s.Conditions = []metav1.Condition{c}
}

func (h health) equal(o health) bool { return reflect.DeepEqual(h, o) }

// told adds what nodes report: whether packets pass to other clusters, and what they have found of their interface.
func told(f *share.Facts, cluster string, reported map[string]health) {
	for i := range f.Nodes {
		h := reported[v1alpha1.ClusterNodeName(cluster, f.Nodes[i].Name)]
		f.Nodes[i].Cut = h.down > 0 && h.up == 0
		f.Nodes[i].Passes, f.Nodes[i].NIC = h.passes, h.nic
	}
}

// engineReason is why a node uses the engines that it uses.
func engineReason(wanted, used string) string {
	ipsec := used == v1alpha1.LinkIPsec
	switch {
	case strings.Contains(used, ","):
		return "mesh.engine of the node is ipsec, and wireguard reaches nodes that do not run it"
	case wanted == v1alpha1.LinkIPsec && !ipsec, wanted == v1alpha1.LinkWireGuard && ipsec:
		return "spec.engine of the Cluster is " + wanted + "; mesh.engine of the nodes says otherwise, and counts"
	case wanted == v1alpha1.LinkIPsec || wanted == v1alpha1.LinkWireGuard:
		return "spec.engine of the Cluster is " + wanted
	}
	return "spec.engine of the Cluster is auto: mesh.engine of the node's configuration counts"
}

// tunnelsOf is what a status says of tunnels, as one value.
func tunnelsOf(s objects.ClusterNodeStatus) objects.ClusterNodeStatus {
	return objects.ClusterNodeStatus{Engine: s.Engine, EngineReason: s.EngineReason, Tunnels: s.Tunnels,
		Conditions: s.Conditions}
}

// reportEvery is how often what a node reports is passed on: all of them together once in a second at most. A first
// change is passed on at once.
func reportEvery(nodes int) time.Duration {
	return max(2*time.Second, time.Duration(nodes)*time.Second)
}
