// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// filter is one that is known: with rules, with rules that say when ext_authz is asked, or neither.
type filter struct {
	name  string
	http  bool
	kind  string
	rules *rbacv3.RBAC
	when  *rbacv3.RBAC // the rules that ext_authz of Istio looks at
	asks  string       // of ext_authz: the cluster of Envoy
	every bool         // it asks whatever the rules of an earlier filter say
}

func (f filter) told() Filter {
	return Filter{f.name, f.http, f.kind, append(sorted(f.rules.GetPolicies()), sorted(f.when.GetPolicies())...)}
}

// chain has the filters up to the one that ends it: what comes after has no effect.
type chain struct {
	filters []filter
	http    bool
	to      []string                    // of tcp_proxy
	routes  *routev3.RouteConfiguration // of an HTTP chain
	portoff bool                        // the port in a host is not looked at
}

// The filters that let everything pass, as pilot writes them.
var passing = []string{"envoy.filters.network.sni_cluster", "istio.stats", "istio.metadata_exchange",
	"envoy.filters.http.grpc_stats", "istio.alpn", "envoy.filters.http.cors", "envoy.filters.http.fault",
	"envoy.filters.http.grpc_web", "envoy.filters.http.connect_authority"}

func readChain(c *listenerv3.FilterChain, routes map[string]*routev3.RouteConfiguration) (out chain, err error) {
	for _, f := range c.Filters {
		read, m, err := readFilter(f.Name, f.GetTypedConfig(), false)
		if err != nil {
			return out, err
		}
		out.filters = append(out.filters, read)
		switch m := m.(type) {
		case *tcp.TcpProxy:
			switch to := m.ClusterSpecifier.(type) {
			case *tcp.TcpProxy_Cluster:
				out.to = []string{to.Cluster}
			case *tcp.TcpProxy_WeightedClusters:
				for _, w := range to.WeightedClusters.Clusters {
					out.to = append(out.to, w.Name)
				}
			}
			return out, nil
		case *hcmv3.HttpConnectionManager:
			return out, out.requests(m, routes)
		}
	}
	return out, fmt.Errorf("a chain has no filter that ends it")
}

// requests reads what an HTTP chain has.
func (c *chain) requests(m *hcmv3.HttpConnectionManager, routes map[string]*routev3.RouteConfiguration) error {
	c.http = true
	switch r := m.RouteSpecifier.(type) {
	case *hcmv3.HttpConnectionManager_Rds:
		c.routes = routes[r.Rds.RouteConfigName]
	case *hcmv3.HttpConnectionManager_RouteConfig:
		c.routes = r.RouteConfig
	}
	if c.routes == nil {
		return fmt.Errorf("the routes of an HTTP chain are not known")
	}
	if m.GetXffNumTrustedHops() > 0 || m.GetUseRemoteAddress() == nil || !m.GetUseRemoteAddress().GetValue() {
		return fmt.Errorf("an HTTP chain takes the client's address from elsewhere")
	}
	c.portoff = c.routes.IgnorePortInHostMatching || m.GetStripAnyHostPort()
	for _, f := range m.HttpFilters {
		read, _, err := readFilter(f.Name, f.GetTypedConfig(), true)
		if err != nil {
			return err
		}
		c.filters = append(c.filters, read)
		if read.kind == "end" {
			return nil
		}
	}
	return fmt.Errorf("an HTTP chain has no router")
}

func readFilter(name string, config *anypb.Any, http bool) (out filter, m proto.Message, err error) {
	out = filter{name: name, http: http, kind: "other"}
	if config == nil {
		return out, nil, fmt.Errorf("filter %s has no configuration", name)
	}
	if m, err = config.UnmarshalNew(); err != nil {
		return out, nil, fmt.Errorf("filter %s: %w", name, err)
	}
	switch m := m.(type) {
	case *networkrbac.RBAC:
		if m.Matcher != nil || m.ShadowMatcher != nil {
			return out, m, fmt.Errorf("filter %s has a matcher", name)
		}
		return out, m, out.rbac(m.Rules, m.ShadowRules, m.ShadowRulesStatPrefix)
	case *httprbac.RBAC:
		if m.Matcher != nil || m.ShadowMatcher != nil {
			return out, m, fmt.Errorf("filter %s has a matcher", name)
		}
		return out, m, out.rbac(m.Rules, m.ShadowRules, m.ShadowRulesStatPrefix)
	case *authz.ExtAuthz:
		out.kind, out.asks = "ext_authz", m.GetGrpcService().GetEnvoyGrpc().GetClusterName()
		if out.every = m.FilterEnabledMetadata == nil; out.asks == "" || m.FailureModeAllow {
			return out, m, fmt.Errorf("filter %s has a form that is not known", name)
		}
		return out, m, nil
	case *httpauthz.ExtAuthz:
		out.kind, out.asks = "ext_authz", m.GetGrpcService().GetEnvoyGrpc().GetClusterName()
		out.every = m.FilterEnabledMetadata == nil
		if m.FilterEnabled != nil || out.asks == "" || m.FailureModeAllow {
			return out, m, fmt.Errorf("filter %s has a form that is not known", name)
		}
		return out, m, nil
	case *tcp.TcpProxy, *hcmv3.HttpConnectionManager:
		out.kind = "end"
		return out, m, nil
	}
	switch {
	case http && name == "envoy.filters.http.router":
		out.kind = "end"
	case !slices.Contains(passing, name):
		return out, m, fmt.Errorf("filter %s is not known here", name)
	}
	return out, m, nil
}

// rbac takes rules; those that are not enforced count where ext_authz looks at them.
func (f *filter) rbac(rules, shadow *rbacv3.RBAC, prefix string) error {
	f.kind, f.rules = "rbac", rules
	switch prefix {
	case "istio_ext_authz_":
		f.when = shadow
	case "", "istio_dry_run_allow_", "istio_dry_run_deny_":
	default:
		return fmt.Errorf("filter %s has shadow rules of a kind that is not known: %s", f.name, prefix)
	}
	return nil
}

// leads are the clusters of Envoy to which a request for a host may go; empty: for any.
func (c chain) leads(authority string) (out []string) {
	if !c.http {
		return c.to
	}
	if authority != "" {
		if v := c.vhost(authority); v != nil {
			out = clusters(v)
		}
	} else {
		for _, v := range c.routes.VirtualHosts {
			out = append(out, clusters(v)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// vhost finds the virtual host as Envoy does: the exact domain, then the longest end, then the longest start, then any.
func (c chain) vhost(authority string) (found *routev3.VirtualHost) {
	name := strings.ToLower(authority)
	if i := strings.LastIndexByte(name, ':'); c.portoff && i > strings.LastIndexByte(name, ']') {
		name = name[:i]
	}
	best := -1
	for _, v := range c.routes.VirtualHosts {
		for _, d := range v.Domains {
			d, rank := strings.ToLower(d), -1
			switch {
			case d == name:
				rank = 1 << 20
			case d == "*":
				rank = 0
			case strings.HasPrefix(d, "*") && strings.HasSuffix(name, d[1:]) && len(name) >= len(d):
				rank = 1<<16 + len(d)
			case strings.HasSuffix(d, "*") && strings.HasPrefix(name, d[:len(d)-1]):
				rank = len(d)
			}
			if rank > best {
				best, found = rank, v
			}
		}
	}
	return found
}

func clusters(v *routev3.VirtualHost) (out []string) {
	for _, r := range v.Routes {
		switch a := r.Action.(type) {
		case *routev3.Route_Redirect, *routev3.Route_DirectResponse:
		case *routev3.Route_Route:
			switch to := a.Route.ClusterSpecifier.(type) {
			case *routev3.RouteAction_Cluster:
				out = append(out, to.Cluster)
			case *routev3.RouteAction_ClusterHeader:
				out = append(out, "header:"+strings.ToLower(to.ClusterHeader))
			case *routev3.RouteAction_WeightedClusters:
				for _, w := range to.WeightedClusters.Clusters {
					out = append(out, w.Name)
				}
			default:
				out = append(out, "unknown")
			}
			for _, p := range a.Route.RequestMirrorPolicies {
				out = append(out, p.Cluster)
			}
		default:
			out = append(out, "unknown")
		}
	}
	return out
}

// plain is a message as JSON with one form.
func plain(m proto.Message) (json.RawMessage, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
