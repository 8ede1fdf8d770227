// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// agentFile is the file with the ports of an agent, for which it has no flags.
const agentFile = "agent.yaml"

// agentConfig has the fields of v1alpha1.AgentConfig that this package sets.
type agentConfig struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	Ports      []agentPort `yaml:"ports"`
}

type agentPort struct {
	Name   string   `yaml:"name"`
	Listen string   `yaml:"listen"`
	From   []string `yaml:"from,flow"`
}

// agentPorts checks the ports of the hub for which an agent listens, and gives its configuration and its Service.
func (p *problems) agentPorts(o AgentOptions) (config agentConfig, exposed []servicePort) {
	config = agentConfig{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindAgentConfig}
	from, all := []string{"127.0.0.0/8", "::1"}, "0.0.0.0" // port-forward comes from within the pod
	for _, text := range o.PortFrom {
		if !isNetwork(text) {
			p.add("port-from", "%q is neither a CIDR, such as 10.244.0.0/16, nor an address", text)
		}
		if strings.Contains(text, ":") {
			all = "::" // takes IPv4 too
		}
		from = append(from, text)
	}
	if len(o.Ports) == 0 && len(o.PortFrom) > 0 {
		p.add("port-from", "means nothing without --port")
	}
	if len(o.Ports) > 0 && len(o.PortFrom) == 0 {
		p.add("port-from", "is missing: who may connect to the ports, such as the ranges of pods")
	}
	for _, text := range o.Ports {
		name, number, ok := strings.Cut(text, "=")
		n, err := strconv.ParseUint(number, 10, 16)
		twice := func(s servicePort) bool { return s.Name == name || s.Port == int(n) }
		switch {
		case !ok || err != nil || n < 1024 || n == HealthPort || !isLabel(name) || name[0] >= '0' && name[0] <= '9':
			p.add("port", "%q is not NAME=NUMBER, with the name of a port of the hub, and from 1024 on, but not %d", text,
				HealthPort)
		case slices.ContainsFunc(exposed, twice):
			p.add("port", "%q has a name or number that another one has", text)
		default:
			config.Ports = append(config.Ports, agentPort{name, net.JoinHostPort(all, number), from})
			exposed = append(exposed, servicePort{Name: name, Port: int(n), TargetPort: int(n), Protocol: "TCP"})
		}
	}
	return config, exposed
}

// agentPortObjects are the configuration and the Service of an agent that has ports. They are called as the agent is.
func agentPortObjects(o AgentOptions, config string, exposed []servicePort) []document {
	m := objectMeta(o.Common, "agent")
	return []document{
		configMap{"v1", "ConfigMap", m, map[string]string{agentFile: config}},
		service{"v1", "Service", m, serviceSpec{Type: "ClusterIP", Selector: selectorLabels(o.Common), Ports: exposed}},
	}
}
