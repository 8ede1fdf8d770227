// SPDX-License-Identifier: Apache-2.0

package manifest

import "strings"

// Exposed configures the Kubernetes Service of a component.
type Exposed struct {
	ServiceType        string
	ServiceAnnotations []string // KEY=VALUE, for load balancers
	NodePort           int      // 0: Kubernetes picks one
}

// exposed checks the options, and returns the parsed annotations.
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

// exposedPorts returns the main port of a component, TCP, and those of its STUN server, UDP:
// the first has the number of the main port, where nodes expect it.
func exposedPorts(component string, main int, second ...int) []containerPort {
	out := []containerPort{{component, main, "TCP"}, {"stun", main, "UDP"}}
	for _, port := range second {
		out = append(out, containerPort{"stun-second", port, "UDP"})
	}
	return out
}

// serviceObject is the Service of the exposed ports. STUN answers with the caller's address,
// which kube-proxy replaces by the node's unless traffic stays on the node that received it.
func serviceObject(c Common, component string, o Exposed, annotations map[string]string,
	exposed []containerPort) service {
	m := objectMeta(c, component)
	m.Annotations = annotations
	spec := serviceSpec{Type: o.ServiceType, Selector: selectorLabels(c)}
	if o.ServiceType != "ClusterIP" {
		spec.ExternalTrafficPolicy = "Local"
	}
	for _, p := range exposed {
		nodePort := 0
		if p.ContainerPort == exposed[0].ContainerPort { // TCP and UDP have separate node ports: both may use this number
			nodePort = o.NodePort
		}
		spec.Ports = append(spec.Ports, servicePort{p.Name, p.ContainerPort, p.ContainerPort, nodePort, p.Protocol})
	}
	return service{"v1", "Service", m, spec}
}
