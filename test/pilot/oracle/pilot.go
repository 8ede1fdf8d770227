// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/host"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/protocol"
	"istio.io/istio/pkg/test"
)

// service is what is read of a Service.
type service struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Selector map[string]string `json:"selector"`
		Ports    []struct {
			Name       string          `json:"name"`
			Port       int             `json:"port"`
			TargetPort json.RawMessage `json:"targetPort"`
		} `json:"ports"`
	} `json:"spec"`
}

// objects sorts the objects of a world: what Istio reads, and Services.
func objects(w World) (configs []config.Config, services []service, err error) {
	for _, raw := range w.Objects {
		var head struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Namespace, Name   string
				CreationTimestamp string `json:"creationTimestamp"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, nil, err
		}
		switch head.Kind {
		case "Service":
			var s service
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, nil, err
			}
			services = append(services, s)
			continue
		case "ConfigMap": // data of ext_authz
			continue
		}
		got, unknown, err := crd.ParseInputs(string(raw)) // it validates as istiod does
		if err != nil || len(unknown) > 0 || len(got) != 1 {
			return nil, nil, fmt.Errorf("%s %s/%s is none that istiod takes: %w", head.Kind, head.Metadata.Namespace,
				head.Metadata.Name, errors.Join(err))
		}
		if got[0].CreationTimestamp.IsZero() {
			got[0].CreationTimestamp = time.Unix(1e9, 0)
		}
		got[0].Domain = "cluster.local" // by which short names of services are completed
		configs = append(configs, got...)
	}
	return configs, services, nil
}

// registry are Services as pilot knows them, and the ports of the gateway's pod.
func registry(services []service, g Gateway) (all []*model.Service, instances []*model.ServiceInstance, err error) {
	for _, s := range services {
		m := &model.Service{
			Hostname:       host.Name(s.Metadata.Name + "." + s.Metadata.Namespace + ".svc.cluster.local"),
			DefaultAddress: "240.0.0.1",
			Attributes: model.ServiceAttributes{Name: s.Metadata.Name, Namespace: s.Metadata.Namespace,
				Labels: s.Metadata.Labels, LabelSelectors: s.Spec.Selector},
		}
		mine := s.Metadata.Namespace == g.Namespace && len(s.Spec.Selector) > 0
		for k, v := range s.Spec.Selector {
			mine = mine && g.Labels[k] == v
		}
		for _, p := range s.Spec.Ports {
			port := &model.Port{Name: p.Name, Port: p.Port, Protocol: protocol.TCP}
			m.Ports = append(m.Ports, port)
			target := uint32(p.Port)
			if len(p.TargetPort) > 0 {
				if err := json.Unmarshal(p.TargetPort, &target); err != nil {
					return nil, nil, fmt.Errorf("a target port that is no number is not known here: %w", err)
				}
			}
			if mine {
				instances = append(instances, &model.ServiceInstance{Service: m, ServicePort: port,
					Endpoint: &model.IstioEndpoint{Addresses: g.Addresses[:1], ServicePortName: p.Name, EndpointPort: target}})
			}
		}
		all = append(all, m)
	}
	return all, instances, nil
}

// built is a listener, and what is told about it.
type built struct {
	listener *listenerv3.Listener
	chains   []chain
	told     Listener
}

// build lets pilot make the listeners of a gateway.
func build(w World) (out []built, err error) {
	if len(w.Gateway.Addresses) == 0 {
		return nil, errors.New("the gateway has no address")
	}
	configs, services, err := objects(w)
	if err != nil {
		return nil, err
	}
	known, instances, err := registry(services, w.Gateway)
	if err != nil {
		return nil, err
	}
	m := mesh.DefaultMeshConfig()
	for _, p := range w.Providers {
		m.ExtensionProviders = append(m.ExtensionProviders, &meshv1.MeshConfig_ExtensionProvider{Name: p.Name,
			Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
				EnvoyExtAuthzGrpc: &meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{
					Service: p.Service, Port: p.Port}}})
		known = append(known, &model.Service{Hostname: host.Name(p.Service), DefaultAddress: "240.0.0.2",
			Ports:      model.PortList{{Name: "grpc", Port: int(p.Port), Protocol: protocol.GRPC}},
			Attributes: model.ServiceAttributes{Name: "ext-authz", Namespace: "tombolo"}})
	}
	features.EnableDualStack = w.Gateway.DualStack
	if failed := test.Wrap(func(t test.Failer) { // it stops the pilot at the end
		pilot := core.NewConfigGenTest(t, core.TestOptions{Configs: configs, Services: known, Instances: instances,
			MeshConfig: m})
		proxy := pilot.SetupProxy(&model.Proxy{Type: model.Router, IPAddresses: w.Gateway.Addresses, ID: "gateway.ns",
			Labels: w.Gateway.Labels, ConfigNamespace: w.Gateway.Namespace,
			Metadata: &model.NodeMetadata{Namespace: w.Gateway.Namespace, Labels: w.Gateway.Labels, IstioVersion: "1.30.0"}})
		listeners := pilot.Listeners(proxy)
		routes := map[string]*routev3.RouteConfiguration{}
		for _, r := range pilot.RoutesFromListeners(proxy, listeners) {
			routes[r.Name] = r
		}
		out, err = read(listeners, routes, w.Dump)
	}); failed != nil {
		return nil, failed
	}
	return out, err
}

// read takes the listeners apart.
func read(listeners []*listenerv3.Listener, routes map[string]*routev3.RouteConfiguration, dump bool) (out []built,
	err error,
) {
	for _, l := range listeners {
		b := built{listener: l, told: Listener{Name: l.Name, Port: l.GetAddress().GetSocketAddress().GetPortValue()}}
		if l.GetDefaultFilterChain() != nil {
			return nil, fmt.Errorf("%s: a default filter chain is not known here", l.Name)
		}
		for _, c := range l.FilterChains {
			read, err := readChain(c, routes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			told := Chain{Names: c.GetFilterChainMatch().GetServerNames(), Leads: read.leads("")}
			for _, f := range read.filters {
				told.Filters = append(told.Filters, f.told())
			}
			if dump {
				if told.Dump, err = plain(c); err != nil {
					return nil, err
				}
			}
			b.chains = append(b.chains, read)
			b.told.Chains = append(b.told.Chains, told)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b built) int { return strings.Compare(a.told.Name, b.told.Name) })
	return out, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// address reads the address of a client.
func address(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err
}
