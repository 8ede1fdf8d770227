// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"net/http"
	"net/url"
)

// Endpoint is an address of a Service that is ready, with its ports by their names.
type Endpoint struct {
	Address string
	Ports   map[string]int
}

// endpointSlice has the fields of discovery.k8s.io that are used.
type endpointSlice struct {
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready *bool `json:"ready"`
		} `json:"conditions"`
	} `json:"endpoints"`
	Ports []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"ports"`
}

// endpoints are those that are ready: an unknown state counts as ready, as Kubernetes has it.
func (s endpointSlice) endpoints() (out []Endpoint) {
	if s.AddressType == "FQDN" {
		return nil
	}
	ports := map[string]int{}
	for _, p := range s.Ports {
		if p.Port > 0 && p.Port < 1<<16 {
			ports[p.Name] = p.Port
		}
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
			out = append(out, Endpoint{e.Addresses[0], ports}) // the others are of the same pod
		}
	}
	return out
}

// Endpoints lists the ready endpoints of a Service, by its EndpointSlices.
func (c *Client) Endpoints(ctx context.Context, namespace, service string) (out []Endpoint, err error) {
	var got struct {
		Items []endpointSlice `json:"items"`
	}
	err = c.ask(ctx, call{method: http.MethodGet,
		path:  "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/endpointslices",
		query: url.Values{"labelSelector": {"kubernetes.io/service-name=" + service}, "resourceVersion": {"0"}}}, &got)
	for _, s := range got.Items {
		out = append(out, s.endpoints()...)
	}
	return out, err
}
