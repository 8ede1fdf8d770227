// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/edge/extauthz"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// asked is a question, and what the lists say to it.
type asked struct {
	question
	want bool
	of   string
	open bool // there is no list
}

// judge asks the oracle, and the ext_authz of the edge where the gateway does, and compares.
func (o *oracle) judge(t failing, f istio.Facts, w istio.Workload, p pod, all []asked) reply {
	t.Helper()
	questions := make([]question, 0, len(all))
	for _, a := range all {
		questions = append(questions, a.question)
	}
	r := o.ask(t, at(f, w, p, questions...))
	outside := newOutside(t, f, w)
	for i, a := range r.Answers {
		if a.None {
			t.Fatal(fmt.Sprintf("%s: no chain takes %+v", all[i].of, all[i].question))
		}
		if got := a.Allow && outside.allow(t, a, all[i].question); got != all[i].want {
			t.Fatal(fmt.Sprintf("%s: %+v: %v, want %v: %+v", all[i].of, all[i].question, got, all[i].want, a))
		}
	}
	return r
}

// outside is the ext_authz of the edge, with the data that is written for it.
type outside struct{ *extauthz.Server }

func newOutside(t failing, f istio.Facts, w istio.Workload) outside {
	t.Helper()
	policies, tenants := map[string]*policy.Policy{}, tenant.NewTable()
	for _, m := range f.ConfigMaps {
		if m.Metadata.Namespace != w.Namespace {
			continue
		}
		for name, text := range m.Data {
			if strings.Contains(m.Metadata.Name, "policies") {
				p, findings := policy.Read(name, []byte(text), func(string) ([]byte, error) { return nil, fs.ErrNotExist })
				if p == nil {
					t.Fatal(findings)
				}
				policies[name] = p
				continue
			}
			one, doc := tenant.Read(name, []byte(text))
			if one == nil {
				t.Fatal(doc.Err())
			}
			if claims := tenants.Put(one); claims != nil {
				t.Fatal(claims)
			}
		}
	}
	table := authz.NewTable()
	table.Replace(true, policies)
	return outside{extauthz.New(extauthz.Options{Policy: table, Tenants: tenants, Log: slog.New(slog.DiscardHandler),
		Reg: prometheus.NewRegistry()})}
}

// allow is what ext_authz says to a question, if Envoy asks it.
func (o outside) allow(t failing, a answer, q question) bool {
	t.Helper()
	if !slices.Contains(a.Asks, authzCluster) {
		return true
	}
	attrs := &authv3.AttributeContext{Source: peer(q.From, 40000), Destination: peer("10.0.0.1", max(q.Port, 1)),
		TlsSession: &authv3.AttributeContext_TLSSession{Sni: strings.ToLower(q.SNI)}}
	if q.Port == vpnPort || q.Port == proxyPort { // elsewhere Envoy asks about a connection
		h := &authv3.AttributeContext_HttpRequest{Method: "CONNECT", Headers: map[string]string{}}
		for name, values := range q.Headers {
			h.Headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
		attrs.Request = &authv3.AttributeContext_Request{Http: h}
	}
	r, err := o.Check(context.Background(), &authv3.CheckRequest{Attributes: attrs})
	if err != nil {
		t.Fatal(err)
	}
	return codes.Code(r.GetStatus().GetCode()) == codes.OK
}

func peer(ip string, port uint32) *authv3.AttributeContext_Peer {
	return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}},
	}}}
}

// flows are questions about every way of the clusters, from each of some addresses.
func flows(f istio.Facts, w istio.Workload, from ...netip.Addr) (out []asked) {
	for _, c := range f.Clusters {
		for _, way := range c.Ways {
			for _, source := range from {
				add := func(q question) {
					q.From = source.String()
					out = append(out, asked{q, way.List.Admits(source), c.Name + "/" + way.Flow, !way.Listed()})
				}
				for _, h := range way.Hosts {
					if strings.HasPrefix(h, "*") && w.Enforcement == istio.ExtAuthz {
						continue // no name of a tenant: Plan reports it
					}
					name := strings.Replace(h, "*", "gu", 1)
					add(question{Port: tlsPort, SNI: name, Headers: map[string][]string{":authority": {name}}})
				}
				for _, d := range way.Destinations {
					for _, h := range []string{"Reversed-VPN", "X-Gardener-Destination"} {
						for _, port := range w.ConnectPorts {
							add(question{Port: port.Port, Headers: map[string][]string{":authority": {"x"}, h: {d}}})
						}
					}
				}
			}
		}
	}
	return out
}

// edges are addresses on both sides of every place where a list may change its mind.
func edges(f istio.Facts) (out []netip.Addr) {
	add := func(p netip.Prefix) {
		r := plan.RangeOf(p.Masked())
		for _, a := range []netip.Addr{r.From, r.To, r.From.Prev(), r.To.Next()} {
			if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
				out = append(out, a)
			}
		}
	}
	for _, c := range f.Clusters {
		for _, w := range c.Ways {
			for _, e := range slices.Concat(w.List.Allow, w.List.Deny) {
				add(e.Prefix)
			}
		}
	}
	add(netip.MustParsePrefix("192.0.2.0/24"))
	add(netip.MustParsePrefix("2001:db8:ffff::/48"))
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// guarded looks for the guards in the listeners: each chain that leads to a cluster by a way with a list has one of that
// cluster, before all other filters, and no guard of anybody else.
func guarded(r reply, f istio.Facts) error {
	var all []error
	for _, l := range r.Listeners {
		for _, c := range l.Chains {
			var want, got []string
			for _, cluster := range f.Clusters {
				for _, w := range cluster.Ways {
					if w.Listed() && leadsTo(c, cluster, w) {
						want = append(want, istio.GuardName(cluster.Name))
					}
				}
			}
			if leads(c, "header:") && slices.ContainsFunc(f.Clusters, func(c istio.Cluster) bool {
				return slices.ContainsFunc(c.Ways, func(w istio.Way) bool { return w.Listed() && len(w.Destinations) > 0 })
			}) {
				want = append(want, "tombolo-access-connect-0")
			}
			others := false
			for _, filter := range c.Filters {
				if strings.HasPrefix(filter.Name, "tombolo-access-") && !others {
					got = append(got, filter.Name)
				} else {
					others = others || filter.Name != manager // its filters come next
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(slices.Compact(want), got) {
				all = append(all, fmt.Errorf("%s for %q has the guards %q first, want %q: %+v", l.Name, c.Names, got, want, c.Filters))
			}
		}
	}
	return errors.Join(all...)
}

func leads(c chain, to string) bool {
	return slices.ContainsFunc(c.Leads, func(s string) bool { return strings.Contains(s, to) })
}

// leadsTo reports whether a chain of the seed leads to a cluster by a way.
func leadsTo(c chain, cluster istio.Cluster, w istio.Way) bool {
	if leads(c, "nginx-ingress-controller.") {
		return slices.ContainsFunc(w.Hosts, func(h string) bool { return strings.HasSuffix(h, ".ingress.seed.example.org") })
	}
	return w.Flow == policy.FlowAPI && leads(c, "kube-apiserver."+cluster.Namespace+".svc")
}
