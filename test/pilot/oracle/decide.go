// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/internal/transport"
	"google.golang.org/grpc/internal/xds/rbac"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// answer decides: every filter of the chain has to let pass.
func answer(all []built, q Question, made engines) (a Answer) {
	fail := func(err error) Answer { return Answer{Error: err.Error(), Listener: a.Listener, Chain: a.Chain} }
	b, err := listen(all, q)
	if err != nil {
		return fail(err)
	}
	if b == nil {
		return Answer{None: true}
	}
	a.Listener = b.told.Name
	from, err := client(b.listener, q)
	if err != nil {
		return fail(err)
	}
	if a.Chain, err = pick(b.listener, q); err != nil {
		return fail(err)
	}
	if a.Chain < 0 {
		return Answer{None: true, Listener: a.Listener}
	}
	c := b.chains[a.Chain]
	authority := ""
	for name, values := range q.Headers {
		if strings.EqualFold(name, ":authority") && len(values) > 0 {
			authority = values[0]
		}
	}
	a.Allow, a.Leads = true, c.leads(authority)
	asked := false // the rules of an earlier filter say that ext_authz is asked
	for i, f := range c.filters {
		switch f.kind {
		case "rbac":
			pass, err := made.passes(f.rules, q, f.http, from)
			if err != nil {
				return fail(fmt.Errorf("filter %d, %s: %w", i, f.name, err))
			}
			if !pass && a.Allow {
				a.Allow, a.By = false, f.name
			}
			if f.when != nil {
				quiet, err := made.passes(f.when, q, f.http, from)
				if err != nil {
					return fail(fmt.Errorf("filter %d, %s: %w", i, f.name, err))
				}
				asked = !quiet
			}
		case "ext_authz":
			if asked || f.every {
				a.Asks = append(a.Asks, f.asks)
			}
		}
	}
	return a
}

// engines are those that were made, by all that they depend on.
type engines map[engineKey]*rbac.ChainEngine

type engineKey struct {
	rules *rbacv3.RBAC
	sni   string
	http  bool
}

func (e engines) of(rules *rbacv3.RBAC, q Question, http bool) (*rbac.ChainEngine, error) {
	key := engineKey{rules, q.SNI, http}
	if engine := e[key]; engine != nil && !q.Each {
		return engine, nil
	}
	known, err := prepare(rules, q, http)
	if err != nil {
		return nil, err
	}
	engine, err := rbac.NewChainEngine([]*rbacv3.RBAC{known}, "")
	if err == nil && !q.Each {
		e[key] = engine
	}
	return engine, err
}

// client is who comes to a listener. At a pipe it is Envoy itself, whose address is in no range.
func client(l *listenerv3.Listener, q Question) (net.Addr, error) {
	if p := l.GetAddress().GetPipe(); p != nil {
		return &net.UnixAddr{Name: p.Path, Net: "unix"}, nil
	}
	from, err := address(q.From)
	return &net.TCPAddr{IP: from.AsSlice(), Port: 1}, err
}

// passes asks gRPC's engine. A filter without rules lets everything pass.
func (e engines) passes(rules *rbacv3.RBAC, q Question, http bool, from net.Addr) (bool, error) {
	if rules == nil {
		return true, nil
	}
	engine, err := e.of(rules, q, http)
	if err != nil {
		return false, err
	}
	headers := metadata.MD{}
	for name, values := range q.Headers {
		if http {
			headers[strings.ToLower(name)] = slices.Clone(values)
		}
	}
	ctx := metadata.NewIncomingContext(context.Background(), headers)
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: from})
	ctx = grpc.NewContextWithServerTransportStream(ctx, noStream{})
	to, err := destination(q)
	if err != nil {
		return false, err
	}
	ctx = transport.SetConnection(ctx, here{at: to})
	switch err := engine.IsAuthorized(ctx); {
	case err == nil:
		return true, nil
	case status.Code(err) == codes.PermissionDenied:
		return false, nil
	default:
		return false, err
	}
}

// noStream and here are what the engine wants to know of gRPC.
type noStream struct{ grpc.ServerTransportStream }

func (noStream) Method() string { return "/none" }

type here struct {
	net.Conn
	at netip.AddrPort
}

func (h here) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(h.at) }

// prepare replaces what the engine does not decide as Envoy does: it knows no server names, and no names of headers
// with capital letters. What it does not know at all is an error.
func prepare(rules *rbacv3.RBAC, q Question, http bool) (*rbacv3.RBAC, error) {
	out := proto.Clone(rules).(*rbacv3.RBAC)
	out.AuditLoggingOptions = nil
	p := &preparing{q: q, http: http, sni: strings.ToLower(q.SNI)}
	for _, policy := range out.Policies {
		if policy.Condition != nil || policy.CheckedCondition != nil {
			return nil, errors.New("a policy has a condition")
		}
		for _, permission := range policy.Permissions {
			p.permission(permission)
		}
		for _, id := range policy.Principals {
			p.principal(id)
		}
	}
	return out, p.err
}

type preparing struct {
	q    Question
	http bool
	sni  string
	err  error
}

func (p *preparing) permission(in *rbacv3.Permission) {
	switch r := in.Rule.(type) {
	case *rbacv3.Permission_AndRules:
		for _, e := range r.AndRules.Rules {
			p.permission(e)
		}
	case *rbacv3.Permission_OrRules:
		for _, e := range r.OrRules.Rules {
			p.permission(e)
		}
	case *rbacv3.Permission_NotRule:
		p.permission(r.NotRule)
	case *rbacv3.Permission_Any, *rbacv3.Permission_DestinationPort:
	case *rbacv3.Permission_RequestedServerName:
		in.Rule = sure(p.matches(r.RequestedServerName, p.sni)).Rule
	case *rbacv3.Permission_Header:
		if fits, known := p.header(r.Header); known {
			in.Rule = sure(fits).Rule
		}
	default:
		p.fail(fmt.Errorf("a permission of type %T is not known here", r))
	}
}

// sure is a permission that always matches, or never.
func sure(yes bool) *rbacv3.Permission {
	always := &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
	if yes {
		return always
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: always}}
}

func (p *preparing) principal(in *rbacv3.Principal) {
	switch r := in.Identifier.(type) {
	case *rbacv3.Principal_AndIds:
		for _, e := range r.AndIds.Ids {
			p.principal(e)
		}
	case *rbacv3.Principal_OrIds:
		for _, e := range r.OrIds.Ids {
			p.principal(e)
		}
	case *rbacv3.Principal_NotId:
		p.principal(r.NotId)
	case *rbacv3.Principal_Any, *rbacv3.Principal_RemoteIp:
	case *rbacv3.Principal_Header:
		if fits, known := p.header(r.Header); known {
			always := &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
			in.Identifier = always.Identifier
			if !fits {
				in.Identifier = &rbacv3.Principal_NotId{NotId: always}
			}
		}
	default: // direct_remote_ip and source_ip mean others where a load balancer is
		p.fail(fmt.Errorf("a principal of type %T is not known here", r))
	}
}

// header prepares a condition on a header. It is decided here only where values are compared one by one.
func (p *preparing) header(h *routev3.HeaderMatcher) (fits, known bool) {
	h.Name = strings.ToLower(h.Name)
	if h.TreatMissingHeaderAsEmpty || h.Name == ":method" || h.Name == ":path" || h.Name == "host" {
		p.fail(fmt.Errorf("a condition on the header %s is not known here", h.Name))
	}
	if !p.q.Each || !p.http {
		return false, false
	}
	m := h.GetStringMatch()
	if m == nil || h.InvertMatch {
		return false, false
	}
	for name, values := range p.q.Headers {
		for _, v := range values {
			fits = fits || strings.ToLower(name) == h.Name && p.matches(m, v)
		}
	}
	return fits, true
}

// matches compares a text as Envoy does.
func (p *preparing) matches(m *matcherv3.StringMatcher, s string) bool {
	fold := func(of string) string { return of }
	if m.IgnoreCase {
		fold = strings.ToLower
	}
	s = fold(s)
	switch w := m.MatchPattern.(type) {
	case *matcherv3.StringMatcher_Exact:
		return s == fold(w.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(s, fold(w.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(s, fold(w.Suffix))
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(s, fold(w.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := regexp.Compile("^(?:" + w.SafeRegex.Regex + ")$")
		if err != nil {
			p.fail(err)
			return false
		}
		return re.MatchString(s)
	default:
		p.fail(fmt.Errorf("a condition on a text of type %T is not known here", w))
		return false
	}
}

func (p *preparing) fail(err error) { p.err = errors.Join(p.err, err) }
