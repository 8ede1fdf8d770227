// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AgentConfig configures an agent.
type AgentConfig struct {
	TypeMeta

	// StateDir holds the agent's key and certificate. Default /var/lib/tombolo/agent.
	StateDir string `json:"stateDir,omitempty"`
	// Join is the join line, or @FILE with it. It is needed once: afterwards the agent
	// uses the stored identity.
	Join string `json:"join,omitempty"`
	// Hubs overrides the hub addresses of the join line, host:port.
	Hubs []string `json:"hubs,omitempty"`
	// Allow lists what may be reached: CIDR[:ports], address[:ports], name[:ports]
	// or *.suffix[:ports]; ports are 443, 80,443 or 8000-8999. Nothing else is dialled.
	Allow []string `json:"allow,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8445.
	HealthListen string `json:"healthListen,omitempty"`
	// Log configures logging.
	Log LogConfig `json:"log,omitempty"`
	// Streams bounds dials and streams.
	Streams StreamsConfig `json:"streams,omitempty"`
	// Connections bounds the connections of one session, 1 to 4. Default 4; the
	// hub may allow fewer.
	Connections *int `json:"connections,omitempty"`
	// Audit configures the records of dials.
	Audit AuditConfig `json:"audit,omitempty"`
	// Tracing configures the spans of dials.
	Tracing TracingConfig `json:"tracing,omitempty"`
	// DrainTimeout is how long live streams may continue after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// Ports are listeners that lead to ports of the hub. Default none.
	Ports []AgentPortConfig `json:"ports,omitempty"`
}

// AgentPortConfig is one listener that leads to a port of the hub.
type AgentPortConfig struct {
	// Name is that of the port at the hub.
	Name string `json:"name"`
	// Listen is ADDRESS:PORT. Beyond loopback it needs from.
	Listen string `json:"listen"`
	// From are the sources that may connect, CIDRs or addresses. Default loopback.
	From []string `json:"from,omitempty"`
}
