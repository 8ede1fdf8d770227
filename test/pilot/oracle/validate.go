// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// validate finds what Envoy would refuse in the filters of a listener, or take otherwise than it reads.
func validate(l *listenerv3.Listener) (out []error) {
	check := func(name string, config *anypb.Any) proto.Message {
		m, err := config.UnmarshalNew()
		if err == nil {
			if v, can := m.(interface{ ValidateAll() error }); can {
				err = v.ValidateAll()
			}
		}
		if err != nil {
			out = append(out, fmt.Errorf("filter %s: %w", name, err))
			return nil
		}
		for _, err := range inside(m.ProtoReflect()) {
			out = append(out, fmt.Errorf("filter %s: %w", name, err))
		}
		return m
	}
	for _, c := range l.FilterChains {
		for _, f := range c.Filters {
			if h, is := check(f.Name, f.GetTypedConfig()).(*hcmv3.HttpConnectionManager); is {
				for _, f := range h.HttpFilters {
					check(f.Name, f.GetTypedConfig())
				}
			}
		}
	}
	return out
}

// inside looks at ranges and rules, of which ValidateAll says nothing.
func inside(m protoreflect.Message) (out []error) {
	switch v := m.Interface().(type) {
	case *corev3.CidrRange:
		p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", v.AddressPrefix, v.GetPrefixLen().GetValue()))
		if err != nil {
			return []error{err}
		}
		if p != p.Masked() || p.Addr().Is4In6() {
			return []error{fmt.Errorf("%s is not a range as it is written", p)}
		}
	case *rbacv3.RBAC:
		if v.Action == rbacv3.RBAC_ALLOW && len(v.Policies) == 0 {
			out = append(out, fmt.Errorf("rules that allow, and no policy: nobody passes"))
		}
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap() && d.MapValue().Kind() == protoreflect.MessageKind:
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				out = append(out, inside(e.Message())...)
				return true
			})
		case d.IsList() && d.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				out = append(out, inside(v.List().Get(i).Message())...)
			}
		case !d.IsMap() && !d.IsList() && d.Kind() == protoreflect.MessageKind:
			out = append(out, inside(v.Message())...)
		}
		return true
	})
	return out
}
