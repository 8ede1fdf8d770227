// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

// overlap reports whether a name can match both hosts. A host that begins with * is every name with that end.
func overlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	sa, wa := strings.CutPrefix(a, "*")
	sb, wb := strings.CutPrefix(b, "*")
	switch {
	case wa && wb:
		return strings.HasSuffix(sa, sb) || strings.HasSuffix(sb, sa)
	case wa:
		return strings.HasSuffix(b, sa)
	case wb:
		return strings.HasSuffix(a, sb)
	}
	return a == b
}

// within reports whether each name that matches a matches b too.
func within(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	sa, wa := strings.CutPrefix(a, "*")
	sb, wb := strings.CutPrefix(b, "*")
	if !wb {
		return a == b
	}
	if wa {
		return strings.HasSuffix(sa, sb)
	}
	return strings.HasSuffix(a, sb)
}

// example is a name that matches a host.
func example(host string) string {
	if rest, ok := strings.CutPrefix(host, "*"); ok {
		return "tombolo-verify" + strings.ToLower(rest)
	}
	return strings.ToLower(host)
}

// serviceOf splits the name of a service, as a route in a namespace has it.
func serviceOf(host, namespace string) (name, ns string) {
	name, rest, dotted := strings.Cut(strings.TrimSuffix(strings.ToLower(host), "."), ".")
	if !dotted {
		return name, namespace
	}
	ns, _, _ = strings.Cut(rest, ".")
	return name, ns
}

// namespaces are those of a cluster's control plane.
func (c Cluster) namespaces() (out []string) {
	if c.Namespace != "" {
		out = append(out, c.Namespace)
	}
	for _, w := range c.Ways {
		for _, text := range w.Destinations {
			if d, err := connecthead.ParseDestination(text); err == nil && !slices.Contains(out, d.Namespace) {
				out = append(out, d.Namespace)
			}
		}
	}
	return out
}

// listed reports whether one of the ways has a list.
func (c Cluster) listed() bool { return slices.ContainsFunc(c.Ways, Way.Listed) }

// atConnect reports whether a destination has a list.
func (c Cluster) atConnect() bool {
	return slices.ContainsFunc(c.Ways, func(w Way) bool { return len(w.Destinations) > 0 && w.Listed() })
}

// wayTo finds the way that leads to a service: that of the host, else that of the flow of such services.
func (c Cluster) wayTo(names []string, service string) (flow string, way int) {
	for i, w := range c.Ways {
		if slices.ContainsFunc(w.Hosts, func(h string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return overlap(n, h) })
		}) {
			return w.Flow, i
		}
	}
	flow = policy.FlowIngress
	switch {
	case strings.HasPrefix(service, "kube-apiserver"):
		flow = policy.FlowAPI
	case strings.HasPrefix(service, "vpn-seed-server"):
		flow = policy.FlowVPN
	}
	return flow, slices.IndexFunc(c.Ways, func(w Way) bool { return w.Flow == flow })
}

// byDestination finds the way with a destination; -1: there is none.
func (c Cluster) byDestination(text string) int {
	return slices.IndexFunc(c.Ways, func(w Way) bool { return slices.Contains(w.Destinations, text) })
}

// label is the name of a way in what is written: its flow, with a number if an earlier way has that flow.
func (c Cluster) label(way int) string {
	w := c.Ways[way]
	if i := slices.IndexFunc(c.Ways, func(o Way) bool { return o.Flow == w.Flow }); i < way {
		return fmt.Sprintf("%s-%d", w.Flow, way)
	}
	return w.Flow
}

// shortID is the id of a shoot in the names of its Ingresses, by the namespace of its control plane.
func shortID(namespace string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(namespace, "shoot-")
	return strings.TrimPrefix(rest, "-"), ok
}

// longer are the hosts of other shoots that a wildcard host of one matches too. In Gardener a name ends with the id of
// its shoot: *-p--s.DOMAIN are the names of shoot--p--s, and match those of shoot--x-p--s.
func (c Cluster) longer(host string, ids []string) (out []string) {
	rest, wild := strings.CutPrefix(strings.ToLower(host), "*-")
	own, domain, _ := strings.Cut(rest, ".")
	if !wild || !slices.ContainsFunc(c.namespaces(), func(ns string) bool {
		id, ok := shortID(ns)
		return ok && id == own
	}) {
		return nil
	}
	for _, id := range ids {
		if strings.HasSuffix(id, "-"+own) {
			out = append(out, "*-"+id+"."+domain)
		}
	}
	return out
}

func subset(labels, of map[string]string) bool {
	for k, v := range labels {
		if got, ok := of[k]; !ok || got != v {
			return false
		}
	}
	return true
}
