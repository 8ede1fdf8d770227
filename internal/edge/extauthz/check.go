// SPDX-License-Identifier: Apache-2.0

// Package extauthz answers an Envoy that asks whether a connection or request may pass
// (envoy.service.auth.v3.Authorization). It finds the tenant by the server name or by the
// destination header, and asks the policy in force. It carries no traffic, and it believes
// what the Envoy in front says about the client.
package extauthz

import (
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// The filters of Envoy that ask, as values of metrics and of the field frontend in records.
const (
	filterNetwork = "ext-authz-network"
	filterHTTP    = "ext-authz-http"
)

// asked is what a request asks, as far as it could be read.
type asked struct {
	filter string
	text   string // the name or destination, as sent
	policy policy.Request
}

// find reads a request and finds its tenant. Its errors are faults.
func find(req *authv3.CheckRequest, tenants *tenant.Table) (a asked, err error) {
	attrs := req.GetAttributes()
	a.filter = filterNetwork
	if attrs.GetRequest().GetHttp() != nil {
		a.filter = filterHTTP
	}
	if a.policy.Source, err = sourceOf(attrs); err != nil {
		return a, err
	}
	port := attrs.GetDestination().GetAddress().GetSocketAddress().GetPortValue()
	if port == 0 || port > 65535 {
		return a, malformed("Envoy names no port of its own in attributes.destination")
	}
	a.policy.Port = uint16(port)
	var route tenant.Route
	if a.filter == filterHTTP {
		route, err = a.byHeader(attrs.GetRequest().GetHttp(), tenants)
	} else {
		route, err = a.byName(attrs.GetTlsSession().GetSni(), tenants)
	}
	if err != nil {
		return a, err
	}
	a.policy.Cluster, a.policy.Flow = route.Tenant.Name, route.Way.Flow
	a.policy.Protected = route.Tenant.Protected
	return a, nil
}

// sourceOf is the client's address.
func sourceOf(attrs *authv3.AttributeContext) (netip.Addr, error) {
	text := attrs.GetSource().GetAddress().GetSocketAddress().GetAddress()
	addr, err := netip.ParseAddr(text)
	addr = addr.Unmap()
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, malformed("attributes.source has no usable IP address")
	}
	return addr, nil
}

func (a *asked) byName(sni string, tenants *tenant.Table) (tenant.Route, error) {
	a.text = sni
	if sni == "" {
		return tenant.Route{}, fault.New(fault.CodeNameMissing, "the client names no server").
			Hint("connect by the cluster's name; in Envoy, set include_tls_session and use the tls_inspector")
	}
	name, err := hostname.Parse(sni)
	if err != nil {
		return tenant.Route{}, malformed("the server name is no host name")
	}
	a.policy.Name = name
	route, ok := tenants.ByName(name, nil)
	if !ok {
		return route, fault.New(fault.CodeNameUnknown, "no tenant has this name")
	}
	return route, nil
}

func (a *asked) byHeader(http *authv3.AttributeContext_HttpRequest, tenants *tenant.Table) (tenant.Route, error) {
	value, err := destination(http)
	a.text = value
	if err != nil {
		return tenant.Route{}, err
	}
	d, err := connecthead.ParseDestination(value)
	if err != nil {
		return tenant.Route{}, fault.New(fault.CodeNameUnknown, "the destination is none of the known forms")
	}
	route, ok := tenants.ByDestination(d)
	if !ok {
		return route, fault.New(fault.CodeNameUnknown, "no tenant has this destination")
	}
	return route, nil
}

// destination is the value of the one header that names a destination. Envoy sends the headers in
// one of two forms: a map, in which it has joined the values of a name by commas, or a list.
func destination(http *authv3.AttributeContext_HttpRequest) (value string, err error) {
	list := http.GetHeaderMap().GetHeaders()
	if len(http.GetHeaders()) > 0 && len(list) > 0 {
		return "", malformed("the headers come in both forms")
	}
	found := 0
	take := func(name, v string) {
		if strings.EqualFold(name, connecthead.HeaderReversedVPN) || strings.EqualFold(name, connecthead.HeaderDestination) {
			found, value = found+1, v
		}
	}
	for name, v := range http.GetHeaders() {
		take(name, v)
	}
	for _, h := range list {
		v, ok := valueOf(h)
		if !ok {
			return "", malformed("a header has two values")
		}
		take(h.GetKey(), v)
	}
	switch {
	case found == 0:
		return "", fault.New(fault.CodeNameMissing, "no header names a destination").
			Hint("send %s or %s", connecthead.HeaderReversedVPN, connecthead.HeaderDestination)
	case found > 1 || strings.Contains(value, ","):
		return value, malformed("there are two headers that name a destination")
	case value == "":
		return "", malformed("the header that names a destination is empty")
	}
	return value, nil
}

func valueOf(h *corev3.HeaderValue) (string, bool) {
	if raw := string(h.GetRawValue()); raw != "" {
		return raw, h.GetValue() == "" || h.GetValue() == raw
	}
	return h.GetValue(), true
}

func malformed(why string) *fault.Fault {
	return fault.New(fault.CodeRequest, "the request is malformed").Whyf("%s", why)
}
