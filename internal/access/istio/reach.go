// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"slices"
	"strings"
)

// part is a part of a chain: what goes to some destinations.
type part struct {
	names        []string // by which it is asked for; none: any
	destinations []target
}

// target is where a route leads.
type target struct {
	service, namespace string
	foreign            string // the host, if it is not that of a Service
}

// add adds a chain with one part.
func (b *chainer) add(c Chain, names []string, to []target) { b.addParts(c, []part{{names, to}}) }

// addParts adds a chain, or its parts to the one HTTP chain of a port.
func (b *chainer) addParts(c Chain, parts []part) {
	for _, p := range parts {
		b.reach(&c, p)
	}
	if c.Kind == HTTP {
		i := slices.IndexFunc(b.out, func(o Chain) bool {
			return o.Kind == HTTP && o.Port == c.Port && o.Connect == c.Connect
		})
		if i >= 0 {
			o := &b.out[i]
			o.Others = o.Others || c.Others
			for _, r := range c.Reaches {
				o.reach(r)
			}
			o.settle()
			return
		}
	}
	c.settle()
	b.out = append(b.out, c)
}

// reach adds what a part leads to.
func (b *chainer) reach(c *Chain, p part) {
	names := p.names
	if len(names) == 0 {
		names = []string{"*"}
	}
	elsewhere := len(p.destinations) == 0
	for _, d := range p.destinations {
		for _, i := range b.home[d.namespace] {
			flow, way := b.f.Clusters[i].wayTo(names, d.service)
			c.reach(Reach{b.f.Clusters[i].Name, flow, names, way})
		}
		elsewhere = elsewhere || len(b.home[d.namespace]) == 0
	}
	if !elsewhere {
		return
	}
	covered := false // all names are of one way
	for _, cluster := range b.f.Clusters {
		for i, w := range cluster.Ways {
			all := true
			for _, n := range names {
				part := false
				for _, h := range w.Hosts {
					if !overlap(n, h) {
						continue
					}
					if part = part || within(n, h); within(n, h) {
						h = n
					}
					c.reach(Reach{cluster.Name, w.Flow, []string{strings.ToLower(h)}, i})
				}
				all = all && part
			}
			covered = covered || all
		}
	}
	c.Others = c.Others || !covered
	for _, d := range p.destinations {
		if d.foreign != "" && !covered {
			b.unknown(c.Object, "it leads to %s, which is no Service of Kubernetes: what is behind it is not known", d.foreign)
		}
	}
}

// reach adds one to those of the chain.
func (c *Chain) reach(r Reach) {
	i := slices.IndexFunc(c.Reaches, func(o Reach) bool { return o.Cluster == r.Cluster && o.way == r.way })
	if i < 0 {
		r.Names = slices.Clone(r.Names)
		c.Reaches = append(c.Reaches, r)
		return
	}
	o := &c.Reaches[i]
	o.Names = append(o.Names, r.Names...)
	slices.Sort(o.Names)
	o.Names = slices.Compact(o.Names)
}

// settle finds out whether one cluster has the chain for itself. An HTTP chain may get further parts.
func (c *Chain) settle() {
	if len(c.Reaches) == 1 && !c.Others && c.Kind != HTTP {
		c.Reaches[0].Names = nil
	}
}

// requests adds the chain of a server that routes requests.
func (b *chainer) requests(c Chain, s Server, routes []VirtualService) {
	if b.w.isConnect(c.Port) {
		connect := c
		connect.Connect, connect.Others = true, true
		for _, cluster := range b.f.Clusters {
			for i, w := range cluster.Ways {
				if len(w.Destinations) > 0 {
					connect.reach(Reach{cluster.Name, w.Flow, nil, i})
				}
			}
		}
		if !slices.ContainsFunc(b.out, func(o Chain) bool {
			return o.Connect && o.Port == c.Port && slices.Equal(o.SNI, c.SNI)
		}) {
			b.out = append(b.out, connect)
		}
	}
	var parts []part
	for _, v := range routes {
		to := b.withDelegates(v, 0)
		hosts := v.Spec.Hosts
		if len(s.Hosts) > 0 {
			hosts = sharedHosts(s, v)
		}
		parts = append(parts, part{serverNames(hosts), to})
	}
	if b.w.isConnect(c.Port) {
		// What a route leads to without a look at a header is a chain of its own here, if it leads to a cluster.
		parts = slices.DeleteFunc(parts, func(p part) bool {
			return !slices.ContainsFunc(p.destinations, func(d target) bool { return len(b.home[d.namespace]) > 0 })
		})
		if len(parts) == 0 {
			return
		}
	}
	b.addParts(c, parts)
}

// sharedHosts are the hosts of a VirtualService at a server, whatever their namespace.
func sharedHosts(s Server, v VirtualService) (out []string) {
	for _, h := range s.Hosts {
		if _, after, ok := strings.Cut(h, "/"); ok {
			h = after
		}
		for _, vh := range v.Spec.Hosts {
			if overlap(h, vh) {
				if within(h, vh) {
					vh = h
				}
				out = append(out, vh)
			}
		}
	}
	return out
}

// withDelegates are the destinations of the routes of a VirtualService, and of those that it delegates to.
func (b *chainer) withDelegates(v VirtualService, depth int) (out []target) {
	for _, h := range v.Spec.HTTP {
		out = append(out, destinations(h.Route, v)...)
		out = append(out, destinations(h.Copies, v)...)
		if h.Copy != nil {
			out = append(out, destinations([]Route{{*h.Copy}}, v)...)
		}
		if h.Delegate == nil || depth > 0 { // Istio follows one
			continue
		}
		ns := h.Delegate.Namespace
		if ns == "" {
			ns = v.Metadata.Namespace
		}
		for _, d := range b.f.VirtualServices {
			if d.Metadata.Name == h.Delegate.Name && d.Metadata.Namespace == ns {
				out = append(out, b.withDelegates(d, depth+1)...)
			}
		}
	}
	return out
}

// automatic adds what AUTO_PASSTHROUGH opens: every service of the mesh whose name a host of the server matches.
func (b *chainer) automatic(c Chain, s Server) {
	hosts := serverNames(s.Hosts)
	if hosts == nil {
		hosts = []string{"*"}
	}
	c.Others = true
	for _, cluster := range b.f.Clusters {
		for _, ns := range cluster.namespaces() {
			services := "*." + ns + ".svc.cluster.local"
			if !slices.ContainsFunc(hosts, func(h string) bool { return overlap(h, services) }) {
				continue
			}
			for i, w := range cluster.Ways {
				c.reach(Reach{cluster.Name, w.Flow, []string{services}, i})
			}
		}
	}
	b.out = append(b.out, c)
}

// clashes reports names that two chains of one port have: Istio leaves one of them out.
func (b *chainer) clashes() {
	type at struct {
		port uint32
		name string
	}
	first := map[at]Chain{}
	for _, c := range b.out {
		if c.Connect {
			continue
		}
		for _, n := range c.SNI {
			o, taken := first[at{c.Port, n}]
			if !taken {
				first[at{c.Port, n}] = c
			} else if len(o.Reaches)+len(c.Reaches) > 0 {
				b.problem(c.Object, "%s at port %d is claimed by %s too: Istio takes the older one", n, c.Port, o.Object)
			}
		}
	}
}
