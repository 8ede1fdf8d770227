// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// labelGatewayAPI names the Gateway of the Gateway API for which Istio made some pods.
const labelGatewayAPI = "gateway.networking.k8s.io/gateway-name"

// attached reports whether an EnvoyFilter is for the gateway.
func (w Workload) attached(m Meta, s EnvoyFilterSpec) bool {
	if !w.Reads(m.Namespace) {
		return false
	}
	if len(s.TargetRefs) > 0 {
		return w.targeted(m, s.TargetRefs)
	}
	return s.WorkloadSelector == nil || subset(s.WorkloadSelector.Labels, w.Labels)
}

// Reads reports whether EnvoyFilters of a namespace can count at the gateway: its own, and the mesh's root namespace.
func (w Workload) Reads(namespace string) bool {
	return namespace == w.Namespace || namespace == w.root()
}

// owns reports whether an object at the gateway was written here. Of one with the label elsewhere nobody takes care.
func (w Workload) owns(m Meta) bool {
	return m.Labels[LabelManagedBy] == ManagedBy && m.Namespace == w.Namespace
}

// targeted reports whether one of some references names the gateway.
func (w Workload) targeted(m Meta, refs []TargetRef) bool {
	name := w.Labels[labelGatewayAPI]
	return name != "" && m.Namespace == w.Namespace && slices.ContainsFunc(refs, func(r TargetRef) bool {
		return r.Kind == "Gateway" && r.Name == name
	})
}

// adding are those of some EnvoyFilters that are for the gateway, and of others.
func (b *chainer) adding(all []EnvoyFilter) iter.Seq2[int, EnvoyFilter] {
	return func(yield func(int, EnvoyFilter) bool) {
		for i, e := range all {
			if b.w.attached(e.Metadata, e.Spec) && !b.w.owns(e.Metadata) && !yield(i, e) {
				return
			}
		}
	}
}

// forGateways reports whether a patch is for gateways, and not empty.
func (p ConfigPatch) forGateways() bool {
	c := p.Match.Context
	return (c == "" || c == "ANY" || c == "GATEWAY") && len(p.Patch.Value) > 0
}

// added adds the chains that EnvoyFilters add, and reports patches that lead to a cluster in another way.
func (b *chainer) added() {
	for i, e := range b.adding(b.f.EnvoyFilters) {
		object := "EnvoyFilter " + e.Metadata.key()
		for j, p := range e.Spec.ConfigPatches {
			if !p.forGateways() {
				continue
			}
			if c, err := p.addedCluster(); err != nil {
				b.unknown(object, "patch %d cannot be read: %v", j, err)
				continue
			} else if c != nil {
				b.nameable(object, j, c)
				continue
			}
			chains, err := addedChains(p)
			if err != nil {
				b.unknown(object, "patch %d cannot be read: %v", j, err)
				continue
			}
			if chains == nil {
				b.otherwise(object, j, p)
				continue
			}
			for _, a := range chains {
				if a.pipe != "" {
					continue // who comes there was judged where he came in, and has no address any more
				}
				c := Chain{Kind: Added, Object: object, Port: a.port, SNI: a.names, filter: i, patch: j, chain: a.at}
				b.mentions(&c, b.follow(a.to))
				c.settle()
				b.out = append(b.out, c)
			}
		}
	}
}

// addedChain is a chain that a patch adds.
type addedChain struct {
	at    int // among those of a listener; -1: the default one, or the patch's own
	port  uint32
	names []string
	pipe  string // at which it listens: not at a port
	value any
	texts []string // of the guards that are its first filters
	to    mentioned
}

// adds reports whether a patch adds chains.
func (p ConfigPatch) adds() bool {
	operation := p.Patch.Operation
	return (p.ApplyTo == "FILTER_CHAIN" || p.ApplyTo == "LISTENER") &&
		(operation == "ADD" || strings.HasPrefix(operation, "INSERT"))
}

// addedChains are those of a patch; nil if it adds none.
func addedChains(p ConfigPatch) ([]addedChain, error) {
	if !p.adds() {
		return nil, nil
	}
	if p.chains != nil {
		return p.chains, nil
	}
	v, err := generic(p.Patch.Value)
	if err != nil {
		return nil, err
	}
	if p.ApplyTo == "FILTER_CHAIN" {
		a := addedChain{at: -1, value: v, names: namesOf(v), texts: guardTexts(v), to: mentions(v)}
		if p.Match.Listener != nil {
			a.port = p.Match.Listener.PortNumber
		}
		return []addedChain{a}, nil
	}
	out := []addedChain{}
	at := field(v, "address")
	all := addedChain{port: number(field(field(at, "socket_address"), "port_value"))}
	all.pipe, _ = field(field(at, "pipe"), "path").(string)
	list, _ := field(v, "filter_chains").([]any)
	for i, c := range list {
		a := all
		a.at, a.value, a.names, a.texts, a.to = i, c, namesOf(c), guardTexts(c), mentions(c)
		out = append(out, a)
	}
	if c := field(v, "default_filter_chain"); c != nil {
		a := all
		a.at, a.value, a.texts, a.to = -1, c, guardTexts(c), mentions(c)
		out = append(out, a)
	}
	return out, nil
}

// guardTexts are the guards that are the first filters of a chain, as JSON with sorted fields.
func guardTexts(chain any) (out []string) {
	filters, _ := field(chain, "filters").([]any)
	for _, f := range filters {
		if name, _ := field(f, "name").(string); !isGuard(name) {
			break
		}
		out = append(out, text(f))
	}
	return out
}

// Prepare reads the chains and clusters that an EnvoyFilter adds once for all questions to it and its copies.
func (e *EnvoyFilter) Prepare() {
	for i := range e.Spec.ConfigPatches {
		p := &e.Spec.ConfigPatches[i]
		if chains, err := addedChains(*p); err == nil {
			p.chains = chains
		}
		if c, err := p.addedCluster(); err == nil {
			p.cluster = c
		}
	}
}

// addedFilters are the filters of an added chain as they are written.
func addedFilters(p ConfigPatch, at int) ([]json.RawMessage, error) {
	plain, err := snake(p.Patch.Value)
	if err != nil {
		return nil, err
	}
	type chain struct {
		Filters []json.RawMessage `json:"filters"`
	}
	if p.ApplyTo == "FILTER_CHAIN" {
		var c chain
		err := json.Unmarshal(plain, &c)
		return c.Filters, err
	}
	var l struct {
		FilterChains       []chain `json:"filter_chains"`
		DefaultFilterChain chain   `json:"default_filter_chain"`
	}
	if err := json.Unmarshal(plain, &l); err != nil {
		return nil, err
	}
	if at < 0 {
		return l.DefaultFilterChain.Filters, nil
	}
	if at >= len(l.FilterChains) {
		return nil, fmt.Errorf("it has no chain %d", at)
	}
	return l.FilterChains[at].Filters, nil
}

// generic decodes a message of Envoy, with the names of its fields as in its definition.
func generic(raw json.RawMessage) (any, error) {
	plain, err := snake(raw)
	if err != nil {
		return nil, err
	}
	var v any
	return v, json.Unmarshal(plain, &v)
}

func field(v any, name string) any {
	m, _ := v.(map[string]any)
	return m[name]
}

func number(v any) uint32 {
	f, ok := v.(float64)
	if !ok || f < 0 || f > 65535 {
		return 0
	}
	return uint32(f)
}

func namesOf(chain any) (out []string) {
	list, _ := field(field(chain, "filter_chain_match"), "server_names").([]any)
	for _, n := range list {
		if s, ok := n.(string); ok {
			out = append(out, s)
		}
	}
	return serverNames(out)
}

// walk visits all texts of a value, and the names of its fields.
func walk(v any, text, name func(string)) {
	switch v := v.(type) {
	case string:
		text(v)
	case []any:
		for _, e := range v {
			walk(e, text, name)
		}
	case map[string]any:
		for k, e := range v {
			name(k)
			walk(e, text, name)
		}
	}
}

// dynamic are the fields and filters of Envoy by which a connection may go anywhere.
func dynamic() []string {
	return []string{"cluster_header", "cluster_specifier_plugin", "inline_cluster_specifier_plugin",
		"envoy.filters.network.sni_cluster", "envoy.filters.network.sni_dynamic_forward_proxy",
		"envoy.filters.http.dynamic_forward_proxy"}
}

// led visits the clusters that texts name by their services.
func (b *chainer) led(m mentioned, visit func(Cluster, string)) {
	var all []string
	for _, s := range m.texts { // most name no service
		if strings.Contains(s, ".svc") || strings.Contains(s, "--kube-apiserver-socket") {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return
	}
	if b.spaces == nil {
		b.spaces = slices.Sorted(maps.Keys(b.home))
	}
	for _, ns := range b.spaces {
		for _, s := range all {
			if strings.Contains(s, "."+ns+".svc") || strings.Contains(s, ns+"--kube-apiserver-socket") {
				for _, i := range b.home[ns] {
					visit(b.f.Clusters[i], s)
				}
			}
		}
	}
}

// mentions adds the clusters that the filters of an added chain lead to.
func (b *chainer) mentions(c *Chain, m mentioned) {
	found := false
	b.led(m, func(cluster Cluster, s string) {
		found = true
		if way := cluster.byDestination(s); way >= 0 {
			c.reach(Reach{cluster.Name, cluster.Ways[way].Flow, nil, way})
			return
		}
		flow, way := cluster.wayTo(c.SNI, s[strings.LastIndexByte(s, '|')+1:])
		c.reach(Reach{cluster.Name, flow, nil, way})
	})
	c.Others = m.anywhere || !found
	if !m.anywhere {
		return
	}
	for _, cluster := range b.f.Clusters {
		for i, w := range cluster.Ways {
			c.reach(Reach{cluster.Name, w.Flow, nil, i})
		}
	}
}

// otherwise reports a patch that leads to a cluster, and is no chain.
func (b *chainer) otherwise(object string, j int, p ConfigPatch) {
	if r := p.Match.RouteConfiguration; r != nil && b.w.isConnect(r.PortNumber) {
		return // routes of a CONNECT port are expected to lead there
	}
	if p.ApplyTo == "CLUSTER" || p.ApplyTo == "EXTENSION_CONFIG" || p.ApplyTo == "BOOTSTRAP" {
		return // a cluster is reached by chains
	}
	v, err := generic(p.Patch.Value)
	if err != nil {
		b.unknown(object, "patch %d cannot be read: %v", j, err)
		return
	}
	m := b.follow(mentions(v))
	b.led(m, func(c Cluster, service string) {
		if !m.anywhere && b.behindGuard(p, c, service) {
			return
		}
		b.problemOf(c, object, "patch %d of %s leads to the cluster: whether a guard is before it is not known", j, p.ApplyTo)
	})
	if at := p.Match.Listener; m.anywhere && (at == nil || !b.w.isConnect(at.PortNumber)) {
		b.unknown(object, "patch %d of %s leads wherever a client wants: whether a guard is before it is not known", j,
			p.ApplyTo)
	}
}

// behindGuard reports whether a patch is for the routes of servers whose chains lead to a way of one cluster alone, as
// the patch does: their guard is before all routes.
func (b *chainer) behindGuard(p ConfigPatch, c Cluster, service string) bool {
	at := p.Match.RouteConfiguration
	if at == nil || at.Name == "" {
		return false
	}
	found := false
	for _, o := range b.out {
		if o.routes != at.Name {
			continue
		}
		_, way := c.wayTo(o.SNI, service[strings.LastIndexByte(service, '|')+1:])
		if found = true; o.Others || len(o.Reaches) != 1 || o.Reaches[0].Cluster != c.Name || o.Reaches[0].way != way {
			return false
		}
	}
	return found
}
