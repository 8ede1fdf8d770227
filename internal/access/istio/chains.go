// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The kinds of filter chains.
const (
	Passthrough = "passthrough" // TLS that the gateway does not end: one chain for each TLS match of a VirtualService
	TLSToTCP    = "tls"         // TLS ends at the gateway, TCP goes on
	HTTPS       = "https"       // TLS ends at the gateway, and it routes requests
	HTTP        = "http"        // requests without TLS; CONNECT ports are of this kind
	TCP         = "tcp"         // neither
	Automatic   = "automatic"   // AUTO_PASSTHROUGH: one chain for each service of the mesh
	Added       = "added"       // by an EnvoyFilter: no other EnvoyFilter or AuthorizationPolicy reaches it
)

// Chain is a filter chain that the gateway will have.
type Chain struct {
	Port    uint32   // at which the gateway listens; 0: not a port, or not known
	SNI     []string // server names that lead to it; none: any
	Kind    string
	Connect bool   // requests are told apart by headers
	Object  string // from which it comes, such as "VirtualService ns/name"
	Reaches []Reach
	Others  bool // it leads elsewhere too

	filter, patch, chain int    // of an added one: where it is
	routes               string // as Istio calls those of a server that ends TLS and routes requests

	except map[string][]string // by a name of a reach: names that it matches, and that are of others
}

// Reach is a cluster to which a chain leads.
type Reach struct {
	Cluster string
	Flow    string
	Names   []string // by which the cluster is asked for in this chain; none: it has the chain for itself

	way int // of the cluster; -1: it has none of that flow
}

func (c Chain) String() string {
	at := fmt.Sprintf("port %d", c.Port)
	if c.Port == 0 {
		at = "no known port"
	}
	if len(c.SNI) > 0 {
		at += " for " + strings.Join(c.SNI, ", ")
	}
	return fmt.Sprintf("%s chain at %s of %s", c.Kind, at, c.Object)
}

// http reports whether the gateway reads requests there.
func (c Chain) http() bool { return c.Kind == HTTP || c.Kind == HTTPS }

// Chains lists every filter chain that leads to one of the clusters, or may, sorted. It goes by the objects as
// Istio's pilot does where that is certain, and otherwise by all that pilot may make of them: of two servers
// or routes with one name Istio takes the older one, here both count.
func Chains(f Facts, w Workload) ([]Chain, []Problem) { return chainsOf(f, w, nil) }

// chainsOf are the chains of some facts. more are EnvoyFilters that may say where clusters of Envoy lead.
func chainsOf(f Facts, w Workload, more []EnvoyFilter) ([]Chain, []Problem) {
	b := &chainer{f: f, w: w, home: map[string][]int{}, onward: map[string]mentioned{}}
	for i, c := range f.Clusters {
		for _, ns := range c.namespaces() {
			b.home[ns] = append(b.home[ns], i)
		}
	}
	for _, g := range f.Gateways {
		if !subset(g.Spec.Selector, w.Labels) {
			continue
		}
		for i, s := range g.Spec.Servers {
			for _, port := range b.listens(g, s.Port.Number) {
				b.server(g, i, s, port)
			}
		}
	}
	b.clashes()
	b.leadOn(f.EnvoyFilters)
	b.leadOn(more)
	b.added()
	if name := w.Labels[labelGatewayAPI]; name != "" {
		b.unknown("Gateway "+w.Namespace+"/"+name, "it is one of the Gateway API, whose listeners and routes are not read")
	}
	b.except()
	for i := range b.out {
		slices.SortFunc(b.out[i].Reaches, func(x, y Reach) int {
			return cmp.Or(strings.Compare(x.Cluster, y.Cluster), cmp.Compare(x.way, y.way))
		})
	}
	slices.SortStableFunc(b.out, func(x, y Chain) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port), slices.Compare(x.SNI, y.SNI), strings.Compare(x.Kind, y.Kind),
			strings.Compare(x.Object, y.Object))
	})
	return b.out, b.problems
}

// chainer collects chains.
type chainer struct {
	f        Facts
	w        Workload
	home     map[string][]int     // clusters by the namespaces of their control planes
	spaces   []string             // these, sorted
	onward   map[string]mentioned // by the names of Envoy's clusters, and the paths of pipes
	out      []Chain
	problems []Problem
}

func (b *chainer) problem(object, format string, args ...any) {
	b.problemOf(Cluster{}, object, format, args...)
}

// problemOf reports something about one cluster, once.
func (b *chainer) problemOf(c Cluster, object, format string, args ...any) {
	p := Problem{Cluster: c.Name, Object: object, What: fmt.Sprintf(format, args...)}
	if !slices.Contains(b.problems, p) {
		b.problems = append(b.problems, p)
	}
}

// unknown reports, for every cluster with a list, that it may be reached in a way that cannot be judged.
func (b *chainer) unknown(object, format string, args ...any) {
	for _, c := range b.f.Clusters {
		if c.listed() {
			b.problemOf(c, object, format, args...)
		}
	}
}

// except takes the names of other shoots out of what leads to one.
func (b *chainer) except() {
	var ids []string
	see := func(m Meta) {
		if id, ok := shortID(m.Namespace); ok {
			ids = append(ids, id)
		}
	}
	for _, s := range b.f.Services {
		see(s.Metadata)
	}
	for _, g := range b.f.Gateways {
		see(g.Metadata)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	by := map[string]Cluster{}
	for _, c := range b.f.Clusters {
		by[c.Name] = c
	}
	for i := range b.out {
		c := &b.out[i]
		for _, r := range c.Reaches {
			for _, n := range r.Names {
				if names := by[r.Cluster].longer(n, ids); names != nil && c.except == nil {
					c.except = map[string][]string{n: names}
				} else if names != nil {
					c.except[n] = names
				}
			}
		}
	}
}

// listens finds the ports at which a gateway listens for the port of a server: where a Service of the pods has that
// port, its target port. Port 0 is one that is not known.
func (b *chainer) listens(g Gateway, number uint32) []uint32 {
	var out []uint32
	object := "Gateway " + g.Metadata.key()
	for _, s := range b.f.Services {
		if !b.w.selected(s) {
			continue
		}
		if _, off := s.Metadata.Labels["experimental.istio.io/disable-gateway-port-translation"]; off {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Port != number {
				continue
			}
			target, ok := b.w.target(p)
			if !ok { // found by its server names alone
				b.problem(object, "port %d leads to the target port %s of Service %s, which is not known: "+
					"list it in portNames of the gateway", number, p.TargetPort, s.Metadata.key())
			}
			if !slices.Contains(out, target) {
				out = append(out, target)
			}
		}
	}
	switch len(out) {
	case 0:
		return []uint32{number}
	case 1:
	default:
		b.problem(object, "port %d has several target ports in Services of the gateway: Istio listens at one of them",
			number)
	}
	return out
}

// target is the target port of one of a Service.
func (w Workload) target(p ServicePort) (uint32, bool) {
	if len(p.TargetPort) == 0 {
		return p.Port, true
	}
	var number uint32
	if json.Unmarshal(p.TargetPort, &number) == nil {
		return cmp.Or(number, p.Port), true
	}
	var name string
	if json.Unmarshal(p.TargetPort, &name) != nil {
		return 0, false
	}
	port, ok := w.PortNames[name]
	return port, ok && port != 0
}

// server adds the chains of one server at one port.
func (b *chainer) server(g Gateway, i int, s Server, port uint32) {
	c := Chain{Port: port, Object: "Gateway " + g.Metadata.key()}
	protocol := strings.ToUpper(s.Port.Protocol)
	plain := protocol == "HTTP" || protocol == "HTTP2" || protocol == "GRPC" || protocol == "GRPC-WEB"
	mode := ""
	if s.TLS != nil {
		mode = cmp.Or(strings.ToUpper(s.TLS.Mode), "PASSTHROUGH")
	}
	routes := b.routes(g, s)
	switch {
	case plain && s.TLS != nil && s.TLS.HTTPSRedirect:
		return // it answers with a redirection
	case plain:
		c.Kind = HTTP
		b.requests(c, s, routes)
	case mode == "":
		c.Kind = TCP
		b.connections(c, s, routes)
	case mode == "AUTO_PASSTHROUGH":
		c.Kind = Automatic
		b.automatic(c, s)
	case mode == "PASSTHROUGH":
		c.Kind = Passthrough
		b.passthrough(c, g, s, routes)
	case protocol == "HTTPS":
		c.Kind, c.SNI = HTTPS, serverNames(s.Hosts)
		c.routes = fmt.Sprintf("https.%d.%s.%s.%s", s.Port.Number, s.Port.Name, g.Metadata.Name, g.Metadata.Namespace)
		if s.Bind != "" {
			c.routes += "." + s.Bind
		}
		b.requests(c, s, routes)
	default:
		c.Kind, c.SNI = TLSToTCP, serverNames(s.Hosts)
		b.connections(c, s, routes)
	}
}

// serverNames are the names of a chain for some hosts; none if one of them is any.
func serverNames(hosts []string) []string {
	var out []string
	for _, h := range hosts {
		if _, after, ok := strings.Cut(h, "/"); ok {
			h = after
		}
		if h == "*" {
			return nil
		}
		out = append(out, h)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// routes are the VirtualServices of a server: bound to its gateway, for one of its hosts.
func (b *chainer) routes(g Gateway, s Server) (out []VirtualService) {
	for _, v := range b.f.VirtualServices {
		if boundTo(v.Spec.Gateways, v.Metadata.Namespace, g) && len(shared(g, s, v)) > 0 {
			out = append(out, v)
		}
	}
	return out
}

func boundTo(names []string, namespace string, g Gateway) bool {
	return slices.ContainsFunc(names, func(n string) bool { return gatewayName(n, namespace) == g.Metadata.key() })
}

// gatewayName resolves the name that a VirtualService gives: ns/name, ./name, name, or name.ns with more.
func gatewayName(name, namespace string) string {
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		if ns == "." {
			ns = namespace
		}
		return ns + "/" + rest
	}
	if first, rest, ok := strings.Cut(name, "."); ok {
		ns, _, _ := strings.Cut(rest, ".")
		return ns + "/" + first
	}
	return namespace + "/" + name
}

// shared are the hosts of a VirtualService that a server has too: the narrower ones.
func shared(g Gateway, s Server, v VirtualService) (out []string) {
	for _, h := range s.Hosts {
		if ns, rest, ok := strings.Cut(h, "/"); ok {
			if ns == "." {
				ns = g.Metadata.Namespace
			}
			if ns != "*" && ns != v.Metadata.Namespace {
				continue
			}
			h = rest
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
	slices.Sort(out)
	return slices.Compact(out)
}

// passthrough adds a chain for each TLS match.
func (b *chainer) passthrough(c Chain, g Gateway, s Server, routes []VirtualService) {
	for _, v := range routes {
		c.Object = "VirtualService " + v.Metadata.key()
		for _, t := range v.Spec.TLS {
			for _, m := range t.Match {
				if m.Port != 0 && m.Port != s.Port.Number || len(t.Route) == 0 ||
					len(m.Gateways) > 0 && !boundTo(m.Gateways, v.Metadata.Namespace, g) {
					continue
				}
				c.SNI = serverNames(m.SNIHosts)
				b.add(c, c.SNI, destinations(t.Route, v))
			}
		}
	}
}

// connections adds the one chain of a server whose connections all go to one place.
func (b *chainer) connections(c Chain, s Server, routes []VirtualService) {
	for _, v := range routes {
		c.Object = "VirtualService " + v.Metadata.key()
		for _, t := range v.Spec.TCP {
			if len(t.Match) > 0 && !slices.ContainsFunc(t.Match, func(m L4Match) bool {
				return m.Port == 0 || m.Port == s.Port.Number
			}) {
				continue
			}
			b.add(c, c.SNI, destinations(t.Route, v))
		}
	}
}

func destinations(routes []Route, v VirtualService) (out []target) {
	for _, r := range routes {
		var to target
		to.service, to.namespace = serviceOf(r.Destination.Host, v.Metadata.Namespace)
		if parts := strings.Split(r.Destination.Host, "."); len(parts) > 1 && (len(parts) < 3 || parts[2] != "svc") {
			to.foreign = r.Destination.Host // one of a ServiceEntry, which is not read
		}
		out = append(out, to)
	}
	return out
}
