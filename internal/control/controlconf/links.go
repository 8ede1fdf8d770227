// SPDX-License-Identifier: Apache-2.0

package controlconf

import (
	"cmp"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// The bounds of gateways.
const (
	gateways     = 2
	mostGateway  = 16
	mostSelector = 1024
)

// Links is the configuration of the feature of that name.
type Links struct {
	Cluster        string // empty: this is the host cluster only
	HostKubeconfig string // empty: this cluster is the host
	Host           bool
	Gateways       int
	Selector       map[string]string // labels of nodes that may be gateways; empty: all may
}

func links(raw *v1alpha1.LinksFeature, add conf.Report) *Links {
	if raw == nil {
		return nil
	}
	const at = "features.links"
	out := &Links{HostKubeconfig: raw.HostKubeconfig, Host: raw.Host, Gateways: cmp.Or(raw.Gateways, gateways),
		Selector: map[string]string{}}
	switch {
	case raw.Cluster == "" && !raw.Host:
		add(at, "it is neither said which cluster this is, nor that it is the host cluster: set cluster, host or both")
	case raw.Cluster == "" && raw.HostKubeconfig != "":
		add(at+".hostKubeconfig", "this cluster is none that is linked: set cluster, or leave it out")
	case raw.Host && raw.HostKubeconfig != "":
		add(at+".hostKubeconfig", "this cluster is the host cluster itself: leave it out")
	}
	if raw.Cluster != "" {
		name, err := id.ParseCluster(raw.Cluster)
		if err != nil {
			add(at+".cluster", "%v", err)
		}
		out.Cluster = name.String()
	}
	if out.Gateways < 1 || out.Gateways > mostGateway {
		add(at+".gateways", "%d is not within 1 and %d", out.Gateways, mostGateway)
	}
	if len(raw.GatewaySelector) > mostSelector {
		add(at+".gatewaySelector", "it has %d bytes, at most %d are allowed", len(raw.GatewaySelector), mostSelector)
		return out
	}
	for _, label := range strings.Split(raw.GatewaySelector, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(label), "=")
		switch {
		case raw.GatewaySelector == "":
		case !ok || key == "":
			add(at+".gatewaySelector", "%.64q is not KEY=VALUE", label)
		default:
			out.Selector[key] = value
		}
	}
	return out
}
