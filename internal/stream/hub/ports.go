// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// port is a way back: what agents of some clusters may dial on the hub's side.
type port struct {
	name     string
	target   policy.Target
	clusters []string // names, with at most one *
}

// ports are all that there are; the names differ.
type ports []port

func parsePorts(raw []v1alpha1.PortConfig, add conf.Report) (out ports) {
	names := map[string]int{}
	for i, rp := range raw {
		at := fmt.Sprintf("ports[%d]", i)
		if err := wire.CheckPort(rp.Name); err != nil {
			add(at+".name", "%v", err)
		} else if first, twice := names[rp.Name]; twice {
			add(at+".name", "ports[%d] has the name %q already", first, rp.Name)
		} else {
			names[rp.Name] = i
		}
		target, err := policy.ParseTarget(rp.Target)
		if err != nil {
			add(at+".target", "%v", err)
		} else if why := forbidden(netip.AddrPortFrom(target.Addr, target.Port), target, nil); why != "" {
			add(at+".target", "%s is %s, which is not dialled for agents", rp.Target, why)
		}
		if len(rp.Clusters) == 0 {
			add(at+".clusters", "it is empty: name the clusters whose agents may, \"*\" for all")
		}
		for j, c := range rp.Clusters {
			if err := policy.CheckPattern(c); err != nil {
				add(fmt.Sprintf("%s.clusters[%d]", at, j), "%v", err)
			}
		}
		out = append(out, port{rp.Name, target, rp.Clusters})
	}
	return out
}

// forbidden says what an address is that is not dialled for a port, empty if it may be: a listener of the hub, or a
// special address. A loopback address may be written, but no name leads to one.
func forbidden(at netip.AddrPort, target policy.Target, own []policy.Listener) string {
	if !at.Addr().IsValid() {
		return ""
	}
	if (policy.Request{Addr: at.Addr(), Port: at.Port(), Own: own}).MeetsOwn() {
		return policy.ListenerOfHub
	}
	addr := at.Addr().Unmap()
	if addr.IsLoopback() && addr == target.Addr {
		return ""
	}
	return policy.Special(addr)
}

// checkOwn refuses ports that lead to the hub itself, as far as their targets are addresses.
func (ps ports) checkOwn(own []policy.Listener) error {
	for i, p := range ps {
		if why := forbidden(netip.AddrPortFrom(p.target.Addr, p.target.Port), p.target, own); why != "" {
			return fault.Newf(fault.CodeConfig, "ports[%d].target: %s is %s", i, p.target, why).
				Whyf("an agent must not reach the hub through the hub").Hint("correct the target of port %s", p.name)
		}
	}
	return nil
}

// of lists those of a cluster.
func (ps ports) of(cluster string) (out ports) {
	for _, p := range ps {
		if slices.ContainsFunc(p.clusters, func(c string) bool { return policy.MatchPattern(c, cluster) }) {
			out = append(out, p)
		}
	}
	return out
}

// find gives the port of that name for agents of a cluster. One that does not exist and one that only others may use
// are refused alike, so that names cannot be guessed.
func (ps ports) find(cluster, name string) (port, *fault.Fault) {
	own := ps.of(cluster)
	i := slices.IndexFunc(own, func(p port) bool { return p.name == name })
	if i < 0 || name == "" {
		return port{}, fault.Newf(fault.CodePolicyDenied, "cluster %s has no such port at this hub", cluster).
			Hint("name the port and the cluster under 'ports' in the hub's configuration")
	}
	return own[i], nil
}
