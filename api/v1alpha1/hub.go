// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the configuration kinds of Tombolo, version
// tombolo.dev/v1alpha1. It does not validate: the room that uses a kind does.
package v1alpha1

import (
	"fmt"
	"time"
)

// Version is the apiVersion of every kind here.
const Version = "tombolo.dev/v1alpha1"

// The kinds.
const (
	KindHubConfig   = "HubConfig"
	KindAgentConfig = "AgentConfig"
)

// TypeMeta is at the top of every configuration file.
type TypeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Duration is a time.Duration written as "90s", "15m" or "24h" in a file.
type Duration struct{ time.Duration }

// UnmarshalText reads Go's duration syntax. An empty text is an error: the default
// applies only to a field that is left out.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	if d.Duration, err = time.ParseDuration(string(text)); err == nil && d.Duration == 0 {
		err = fmt.Errorf("%q is no time; leave the key out for the default", text)
	}
	return err
}

// MarshalText writes Go's duration syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// HubConfig configures a hub. Every field may be left out.
type HubConfig struct {
	TypeMeta

	// StateDir holds the CA, the tokens and the hub's other state. Default /var/lib/tombolo/hub.
	StateDir string `json:"stateDir,omitempty"`
	// RunDir holds the unix sockets. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
	// TrustDomain is the SPIFFE trust domain; fixed when the CA is made. Default tombolo.internal.
	TrustDomain string `json:"trustDomain,omitempty"`
	// Listen is where agents, mTLS CONNECT clients and remote operators connect. Default :8443.
	Listen string `json:"listen,omitempty"`
	// Advertise lists host or host:port at which agents and clients reach Listen; join
	// lines and the hub's certificate contain them.
	Advertise []string `json:"advertise,omitempty"`
	// ProxyProtocol says which load balancers or edges in front of Listen send a PROXY protocol header.
	ProxyProtocol ProxyProtocolConfig `json:"proxyProtocol,omitempty"`
	// Admin is the https port for probes and metrics.
	Admin AdminConfig `json:"admin,omitempty"`
	// STUN configures the STUN server, from which nodes learn their mapped endpoint.
	STUN STUNConfig `json:"stun,omitempty"`
	// Log configures logging.
	Log LogConfig `json:"log,omitempty"`
	// Certificates are the lifetimes of the certificates that the hub issues.
	Certificates CertificatesConfig `json:"certificates,omitempty"`
	// Sockets are the defaults of every cluster's unix sockets.
	Sockets SocketDefaults `json:"sockets,omitempty"`
	// Streams bounds dials and streams.
	Streams StreamsConfig `json:"streams,omitempty"`
	// Connections bounds the connections of one session, 1 to 4. Default 4; never
	// more than twice the cores of this machine.
	Connections *int `json:"connections,omitempty"`
	// DrainTimeout is how long live streams may continue after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// Policies are files of kind AccessPolicy, and folders of them. Without any, only
	// the agents' own lists apply.
	Policies []string `json:"policies,omitempty"`
	// Audit configures the records of dials.
	Audit AuditConfig `json:"audit,omitempty"`
	// Limits bounds what clusters, agents and callers may use.
	Limits HubLimitsConfig `json:"limits,omitempty"`
	// Tracing configures the spans of dials.
	Tracing TracingConfig `json:"tracing,omitempty"`
	// Backends are proxies that carry dials into clusters in place of agents, while clusters move from a VPN.
	// Default none.
	Backends []BackendConfig `json:"backends,omitempty"`
	// DefaultBackend is that of every cluster without one of its own ('tombolo cluster backend'). Default agents.
	DefaultBackend string `json:"defaultBackend,omitempty"`
	// WireGuard is the network between this seed's endpoints and its clusters. Default: none.
	WireGuard *HubWireGuardConfig `json:"wireguard,omitempty"`
	// Clusters registers clusters and asks for their unix sockets.
	Clusters []ClusterConfig `json:"clusters,omitempty"`
	// Ports are what agents may dial on the hub's side. Default none: nothing.
	Ports []PortConfig `json:"ports,omitempty"`
}

// PortConfig is one way back: what agents of some clusters reach by a name.
type PortConfig struct {
	// Name is all that an agent can ask for: small letters, digits and '-', with a letter first.
	Name string `json:"name"`
	// Target is host:port, dialled by the hub.
	Target string `json:"target"`
	// Clusters are those whose agents may, names with at most one *.
	Clusters []string `json:"clusters"`
}

// BackendConfig is a proxy that leads into clusters by HTTP CONNECT over TLS, such as 'tombolo vpn server' and
// Gardener's vpn-seed-server have one. In every field but the name, {cluster} stands for the cluster's name.
type BackendConfig struct {
	// Name is a DNS label. The name agents is taken.
	Name string `json:"name"`
	// Proxy is host:port, such as vpn-seed-server.shoot--p--{cluster}.svc.cluster.local:9443.
	Proxy string `json:"proxy"`
	// ServerName is the one in the proxy's certificate. Default: its host.
	ServerName string `json:"serverName,omitempty"`
	// CA is the PEM file of those that have made the proxy's certificate. Files are read for each dial.
	CA string `json:"ca"`
	// Certificate and Key are the PEM files that the proxy is shown. Default none.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// AdminConfig configures the port for probes and metrics.
type AdminConfig struct {
	Listen string `json:"listen,omitempty"` // default 127.0.0.1:8444
	Pprof  bool   `json:"pprof,omitempty"`
}

// LogConfig configures logging.
type LogConfig struct {
	Format string `json:"format,omitempty"` // text or json; default text
	Level  string `json:"level,omitempty"`  // debug, info, warn or error; default info
}

// CertificatesConfig are the lifetimes of certificates.
type CertificatesConfig struct {
	AgentLife  Duration `json:"agentLife,omitempty"`  // default 24h
	RenewGrace Duration `json:"renewGrace,omitempty"` // default 720h
	ClientLife Duration `json:"clientLife,omitempty"` // default 8760h
}

// SocketDefaults are the owner, group and mode of unix sockets.
type SocketDefaults struct {
	Owner string `json:"owner,omitempty"` // user name or id
	Group string `json:"group,omitempty"` // group name or id
	Mode  string `json:"mode,omitempty"`  // octal, default "0600"
}

// StreamsConfig bounds dials and streams.
type StreamsConfig struct {
	DialTimeout Duration `json:"dialTimeout,omitempty"` // default 30s
	IdleTimeout Duration `json:"idleTimeout,omitempty"` // default 24h
}

// ClusterConfig registers one cluster.
type ClusterConfig struct {
	Name    string         `json:"name"`
	Sockets []SocketConfig `json:"sockets,omitempty"`
	// Limits are those that differ from the hub's.
	Limits LimitsConfig `json:"limits,omitempty"`
}

// SocketConfig asks for one unix socket of a cluster.
type SocketConfig struct {
	// Protocol is konnectivity (gRPC) or connect (HTTP CONNECT).
	Protocol string `json:"protocol"`
	// Egress is the name of the egress selection that uses the socket: cluster,
	// controlplane or etcd. Default cluster.
	Egress string `json:"egress,omitempty"`
	// Path defaults to <runDir>/clusters/<cluster>/<protocol>.sock, with another
	// egress than cluster to <protocol>-<egress>.sock.
	Path string `json:"path,omitempty"`
	SocketDefaults
}
