// SPDX-License-Identifier: Apache-2.0

// Package check judges what a node of linked clusters has measured: what is well, what is not, and what to do next. It
// does not measure.
package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The states of a finding, from good to bad.
const (
	OK      = "ok"
	Unknown = "unknown" // it could not be measured
	Warning = "warning" // packets pass, but something is not as it should be
	Problem = "problem" // packets are lost
)

// What is checked.
const (
	Tunnel     = "tunnel"      // an echo to the peer, in the tunnel's real encapsulation
	MTU        = "mtu"         // echoes of several sizes
	Pods       = "pods"        // echoes from a pod range: sources stay, and answers find the way back
	DNS        = "dns"         // a question to the DNS Service of another cluster
	Forwarding = "forwarding"  // the machine forwards packets of pods
	Masquerade = "masquerade"  // nothing rewrites sources before the mesh says that they stay
	RPFilter   = "rp_filter"   // the kernel's check of sources
	Kernel     = "kernel"      // the kernel has what is planned
	Left       = "unmeasured"  // peers beyond the bound
	Federation = "federation"  // objects that do not count
	Reported   = "node report" // what a NodeConfig says
)

// Finding is what one check has found.
type Finding struct {
	Check   string `json:"check"`
	Cluster string `json:"cluster,omitempty"` // of the other end
	Peer    string `json:"peer,omitempty"`    // CLUSTER.NODE
	State   string `json:"state"`
	Detail  string `json:"detail"`
	Next    string `json:"next,omitempty"` // what to do; of OK nothing
}

// Echo is what came of an echo.
type Echo struct {
	From, To netip.Addr
	RTT      float64 // milliseconds; of no meaning without an answer
	Answered bool
	Why      string // no answer
	Sure     bool   // To is known to be there
}

// Size is what came of an echo in a packet of that many bytes of IP.
type Size struct {
	Bytes    int
	Answered bool
	TooLarge bool // the kernel knows that the path is narrower, so packets are made smaller
}

// Peer is a node towards which was measured.
type Peer struct {
	Cluster, Name string // Name is CLUSTER.NODE
	// Through is the gateway of the own cluster by which it is reached; empty: by a tunnel of this node.
	Through          string
	State, Path, Why string // of the mesh: direct, relayed, down
	Echo             Echo
	Sizes            []Size
	Pods             []Echo // from an address of a pod range of this node; none: it has none, or ranges are mapped
}

// Names is what came of a question to a DNS Service.
type Names struct {
	Cluster string
	Server  netip.Addr // invalid: the cluster has no range of Services
	Echo
}

// Measured is what one node has measured.
type Measured struct {
	Link      string
	InForce   bool   // the kernel has what is planned
	Why       string // it has not
	Forwards4 bool
	Forwards6 bool
	Needs4    bool // there are linked ranges of that IP version
	Needs6    bool
	Strict    bool     // the kernel's check of sources is strict on the link
	Before    []string // NAT of others that is asked before the mesh's: TABLE/CHAIN
	Peers     []Peer
	Left      int // peers that were not measured
	Names     []Names
	Problems  []string // objects that do not count
}

// Judge judges. Findings come in the order of checks, then of peers.
func Judge(m Measured) []Finding {
	out := machine(m)
	podsPass := slices.ContainsFunc(m.Peers, func(p Peer) bool { return answered(p.Pods) })
	out = append(out, sources(m, podsPass))
	for _, p := range m.Peers {
		if p.Through == "" {
			out = append(out, tunnel(p))
		}
		if p.Through == "" && p.Echo.Answered {
			out = append(out, sizes(p))
		}
		if p.Through != "" || p.Echo.Answered {
			out = append(out, pods(p, m)...)
		}
	}
	for _, n := range m.Names {
		out = append(out, names(n))
	}
	if m.Left > 0 {
		out = append(out, Finding{Check: Left, State: Unknown,
			Detail: fmt.Sprintf("%d more peers were not measured", m.Left), Next: "name the cluster: --cluster NAME"})
	}
	return out
}

// machine judges what does not depend on a peer.
func machine(m Measured) (out []Finding) {
	for _, p := range m.Problems {
		out = append(out, Finding{Check: Federation, State: Problem, Detail: p,
			Next: "correct the object at the host cluster; 'kubectl describe' shows it"})
	}
	f := Finding{Check: Kernel, State: OK, Detail: "it has what is planned"}
	if !m.InForce {
		f.State, f.Detail = Problem, cmp.Or(m.Why, "it lacks some of what is planned")
		f.Next = "'tombolo mesh status' at the node shows what is refused"
	}
	out = append(out, f)
	var missing []string
	if m.Needs4 && !m.Forwards4 {
		missing = append(missing, "net.ipv4.ip_forward")
	}
	if m.Needs6 && !m.Forwards6 {
		missing = append(missing, "net.ipv6.conf.all.forwarding")
	}
	f = Finding{Check: Forwarding, State: OK, Detail: "on"}
	if len(missing) > 0 {
		f.State, f.Detail = Problem, "off: packets of pods are dropped"
		f.Next = "sysctl -w " + strings.Join(missing, "=1 ") + "=1"
	}
	out = append(out, f)
	f = Finding{Check: Masquerade, State: OK, Detail: "nothing is asked before the mesh"}
	if len(m.Before) > 0 {
		f.State = Warning
		f.Detail = "asked before the mesh, and may rewrite sources: " + strings.Join(m.Before, ", ")
		f.Next = "except the linked ranges there, or give the chain a priority above 90 ('nft list chains')"
	}
	return append(out, f)
}

// sources judges the kernel's check of sources by what passes.
func sources(m Measured, passes bool) Finding {
	f := Finding{Check: RPFilter, State: OK, Detail: "not strict on " + m.Link}
	switch {
	case m.Strict && passes:
		f.Detail = "strict on " + m.Link + ", and packets of pods pass"
	case m.Strict:
		f.State, f.Detail = Warning, "strict on "+m.Link+": it may drop packets of other clusters"
		f.Next = "sysctl -w net.ipv4.conf.all.rp_filter=2"
	}
	return f
}

func tunnel(p Peer) Finding {
	f := Finding{Check: Tunnel, Cluster: p.Cluster, Peer: p.Name, State: OK}
	path := cmp.Or(p.State, "no tunnel")
	if p.Path != "" {
		path += " by " + p.Path
	}
	if p.Echo.Answered {
		f.Detail = fmt.Sprintf("%s, %.1f ms", path, p.Echo.RTT)
		if p.State == "relayed" {
			f.State, f.Next = Warning, "let UDP pass between the two nodes for a direct path; 'tombolo mesh netcheck' at both"
			f.Detail += because(p.Why)
		}
		return f
	}
	f.State, f.Detail = Problem, path+because(cmp.Or(p.Why, p.Echo.Why))
	switch p.State {
	case "direct", "relayed":
		f.Next = "its policy or firewall drops echo requests: 'tombolo mesh status' at the peer counts what is dropped"
	case "":
		f.Next = "see why the mesh does not run at the peer: 'tombolo mesh status' there"
	default:
		f.Next = "'tombolo mesh netcheck' at both nodes: UDP has to pass, or both need a hub ('mesh.join')"
	}
	return f
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// sizes judges which packets pass. Whatever the kernel knows to be too large is made smaller, so it is not lost.
func sizes(p Peer) Finding {
	f := Finding{Check: MTU, Cluster: p.Cluster, Peer: p.Name, State: OK}
	passed, lost := 0, 0
	for _, s := range p.Sizes {
		switch {
		case s.Answered:
			passed = max(passed, s.Bytes)
		case !s.TooLarge && (lost == 0 || s.Bytes < lost):
			lost = s.Bytes
		}
	}
	switch {
	case len(p.Sizes) == 0:
		f.State, f.Detail = Unknown, "not measured"
	case lost > 0 && lost < passed: // loss, not the path
		f.State, f.Detail = Warning, fmt.Sprintf("%d bytes pass, but an echo of %d was lost twice", passed, lost)
		f.Next = "check again; if it stays, the path loses packets"
	case lost > 0:
		f.State, f.Detail = Problem, fmt.Sprintf("packets of %d bytes are lost, %d pass", lost, passed)
		f.Next = fmt.Sprintf("set mesh.mtu of both nodes to %d", passed)
		if passed == 0 {
			f.Detail = fmt.Sprintf("packets of %d bytes are lost", lost)
			f.Next = "check again: the path may be down by now"
		}
	default:
		f.Detail = fmt.Sprintf("%d bytes pass", passed)
	}
	return f
}

func answered(all []Echo) bool {
	return slices.ContainsFunc(all, func(e Echo) bool { return e.Answered })
}

// pods judges echoes from a pod range.
func pods(p Peer, m Measured) []Finding {
	if len(p.Pods) == 0 {
		return nil
	}
	f := Finding{Check: Pods, Cluster: p.Cluster, Peer: p.Name, State: OK}
	through := ""
	if p.Through != "" {
		through = " through " + p.Through
	}
	for _, e := range p.Pods {
		if e.Answered {
			f.Detail = fmt.Sprintf("%s is answered by %s%s, %.1f ms", e.From, e.To, through, e.RTT)
			return []Finding{f}
		}
	}
	e := p.Pods[0]
	if i := slices.IndexFunc(p.Pods, func(e Echo) bool { return e.Sure }); i >= 0 {
		e = p.Pods[i]
	}
	f.State = Problem
	f.Detail = fmt.Sprintf("what %s sends to %s%s is not answered", e.From, e.To, through)
	switch {
	case !e.Sure:
		f.State, f.Next = Unknown, "perhaps nobody has that address: try a pod, from a pod"
	case len(m.Before) > 0:
		f.Next = "its source may be rewritten, see " + Masquerade
	case m.Strict:
		f.Next = "its answer may be dropped, see " + RPFilter
	default:
		f.Next = "'tombolo link explain " + e.From.String() + "' at the peer shows the way back; its policy may drop it too"
	}
	return []Finding{f}
}

func names(n Names) Finding {
	f := Finding{Check: DNS, Cluster: n.Cluster, State: OK}
	switch {
	case !n.Server.IsValid():
		f.State, f.Detail = Unknown, "the cluster has no range of Services"
		f.Next = "'kubectl describe tcl " + n.Cluster + "' shows what was learned"
	case n.Answered:
		f.Detail = fmt.Sprintf("%s answers, %.1f ms", n.Server, n.RTT)
	default:
		f.State, f.Detail = Warning, fmt.Sprintf("no answer of %s%s", n.Server, because(n.Why))
		f.Next = "if its DNS Service has another address, name it: --dns " + n.Cluster + "=ADDRESS"
	}
	return f
}

// Worst is the worst state of some findings.
func Worst(all []Finding) string {
	order := []string{OK, Unknown, Warning, Problem}
	worst := 0
	for _, f := range all {
		worst = max(worst, slices.Index(order, f.State))
	}
	return order[worst]
}
