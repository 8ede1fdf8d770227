// SPDX-License-Identifier: Apache-2.0

package manifest

import "strings"

// Exposed says by which Service of Kubernetes others reach what runs.
type Exposed struct {
	ServiceType        string
	ServiceAnnotations []string // KEY=VALUE, for load balancers
	NodePort           int      // 0: one that Kubernetes picks
}

// exposed checks it, and gives the parsed annotations.
func (p *problems) exposed(o Exposed) map[string]string {
	p.oneOf("service-type", o.ServiceType, "ClusterIP", "NodePort", "LoadBalancer")
	if o.NodePort != 0 && (o.ServiceType == "ClusterIP" || o.NodePort < 1 || o.NodePort > 65535) {
		p.add("node-port", "%d is no port, or the service is of type ClusterIP and has none", o.NodePort)
	}
	var annotations map[string]string
	for _, text := range o.ServiceAnnotations {
		key, value, ok := strings.Cut(text, "=")
		if !ok || !isLabelKey(strings.ToLower(key)) || hasControl(value) {
			p.add("service-annotation", "%q is not KEY=VALUE", text)
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	return annotations
}

// serviceObject leads to the port of that name.
func serviceObject(c Common, component string, o Exposed, annotations map[string]string, port int) service {
	m := objectMeta(c, component)
	m.Annotations = annotations
	return service{"v1", "Service", m, serviceSpec{
		Type: o.ServiceType, Selector: selectorLabels(c),
		Ports: []servicePort{{component, port, port, o.NodePort, "TCP"}},
	}}
}
