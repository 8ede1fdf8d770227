// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindDiscoveryConfig configures a discovery service.
const KindDiscoveryConfig = "DiscoveryConfig"

// DiscoveryConfig configures a discovery service. Every field may be left out.
type DiscoveryConfig struct {
	TypeMeta

	// StateDir holds the snapshots of members and the CA. Default /var/lib/tombolo/discovery.
	StateDir string `json:"stateDir,omitempty"`
	// RunDir holds the admin socket. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
	// Listen is the address for members. Default :8446.
	Listen string `json:"listen,omitempty"`
	// Admin is the http port for probes and metrics. Default 127.0.0.1:8447.
	Admin AdminConfig `json:"admin,omitempty"`
	// STUN configures the STUN server, from which nodes learn their mapped endpoint.
	STUN STUNConfig `json:"stun,omitempty"`
	// TLS configures the certificate. Default: one of the service's own CA.
	TLS DiscoveryTLSConfig `json:"tls,omitempty"`
	// Store configures where members are stored. Default: in memory.
	Store DiscoveryStoreConfig `json:"store,omitempty"`
	// Limits bound what is stored, in total and per address.
	Limits DiscoveryLimitsConfig `json:"limits,omitempty"`
	// Rates bound the calls of one address.
	Rates DiscoveryRatesConfig `json:"rates,omitempty"`
	// TrustedProxies are the addresses and networks of proxies whose X-Forwarded-For is trusted.
	TrustedProxies []string `json:"trustedProxies,omitempty"`
	// Redirect is the host:port of another service, to which Talos nodes are redirected.
	Redirect string `json:"redirect,omitempty"`
	// Settle is how long a service that started without all of its state reports no member
	// as absent. Default 100s, and none at a first start.
	Settle Duration `json:"settle,omitempty"`
	// Log configures logging.
	Log LogConfig `json:"log,omitempty"`
	// DrainTimeout is how long members may take to leave after SIGTERM. Default 25s.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
}

// DiscoveryTLSConfig is one of three: files, the service's own CA, or none.
type DiscoveryTLSConfig struct {
	// CertFile and KeyFile are PEM; they are read again when they change.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// Self makes a CA in the state directory, and issues certificates with it.
	Self bool `json:"self,omitempty"`
	// Hosts are the names and addresses in those certificates. Default: this machine's.
	Hosts []string `json:"hosts,omitempty"`
	// None is clear text, for a service behind a proxy that terminates TLS.
	None bool `json:"none,omitempty"`
}

// DiscoveryStoreConfig configures one of two stores.
type DiscoveryStoreConfig struct {
	Memory *DiscoveryMemoryConfig `json:"memory,omitempty"`
	Etcd   *DiscoveryEtcdConfig   `json:"etcd,omitempty"`
}

// DiscoveryMemoryConfig configures the store in memory.
type DiscoveryMemoryConfig struct {
	// SnapshotInterval is how often members are written to disk. Default 1m.
	SnapshotInterval Duration `json:"snapshotInterval,omitempty"`
}

// DiscoveryEtcdConfig configures the store in etcd.
type DiscoveryEtcdConfig struct {
	Endpoints    []string `json:"endpoints,omitempty"`
	Prefix       string   `json:"prefix,omitempty"` // default /tombolo/discovery
	CAFile       string   `json:"caFile,omitempty"` // default: the system's
	CertFile     string   `json:"certFile,omitempty"`
	KeyFile      string   `json:"keyFile,omitempty"`
	Username     string   `json:"username,omitempty"`
	PasswordFile string   `json:"passwordFile,omitempty"`
}

// DiscoveryLimitsConfig bounds what a service accepts.
type DiscoveryLimitsConfig struct {
	Clusters              *int `json:"clusters,omitempty"`
	Members               *int `json:"members,omitempty"`   // of one cluster
	Endpoints             *int `json:"endpoints,omitempty"` // of one member
	Bytes                 Size `json:"bytes,omitempty"`     // of what all members sent
	Connections           *int `json:"connections,omitempty"`
	ConnectionsPerAddress *int `json:"connectionsPerAddress,omitempty"`
	Watches               *int `json:"watches,omitempty"`
	WatchesPerAddress     *int `json:"watchesPerAddress,omitempty"`
	ClustersPerAddress    *int `json:"clustersPerAddress,omitempty"`
	BytesPerAddress       Size `json:"bytesPerAddress,omitempty"`
}

// DiscoveryRatesConfig bounds the calls of one address.
type DiscoveryRatesConfig struct {
	PerSecond *int `json:"perSecond,omitempty"` // default 15
	Burst     *int `json:"burst,omitempty"`     // default 2000
}
