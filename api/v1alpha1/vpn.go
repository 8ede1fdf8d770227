// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The kinds of the two ends of a tunnel of OpenVPN.
const (
	KindVPNServerConfig = "VPNServerConfig"
	KindVPNClientConfig = "VPNClientConfig"
)

// KindVPNForwardConfig is the kind of what carries connections of clusters in a mesh to their servers.
const KindVPNForwardConfig = "VPNForwardConfig"

// KindVPNRoutesConfig is the kind of what routes the clusters of a mesh to the endpoint machine.
const KindVPNRoutesConfig = "VPNRoutesConfig"

// VPNServerConfig configures the end of a reversed VPN that is beside a control plane: clusters dial in, and their
// ranges are routed here.
type VPNServerConfig struct {
	TypeMeta
	VPNCommon

	// Listen is where clients dial in, host:port. Default :1194.
	Listen string `json:"listen,omitempty"`
	// Clients are the common names of certificates that may dial in, with an identity of files. One of a bundle lets in
	// the vpn-clients of its cluster.
	Clients []string `json:"clients,omitempty"`
	// Ranges are those of the cluster.
	Ranges []RouteRange `json:"ranges"`
	// LocalRanges are used on this side, such as pods of the seed: no range of the cluster may overlap them.
	LocalRanges []string `json:"localRanges,omitempty"`
	// Rule is the priority of the rule that leads into the table. Default 32512.
	Rule int `json:"rule,omitempty"`
	// Connect serves HTTP CONNECT into the ranges. Default off.
	Connect *VPNConnect `json:"connect,omitempty"`
}

// VPNClientConfig configures the end of a reversed VPN that is in a cluster: it dials out, and lets in who comes
// through the tunnel.
type VPNClientConfig struct {
	TypeMeta
	VPNCommon

	// Servers are dialled all at once; each is a tunnel of its own.
	Servers []VPNServer `json:"servers"`
	// Prefer is an address of this end, such as that in a mesh: its last byte says which of several addresses of a server
	// is tried first, so that clusters share them. Default: they are tried as written.
	Prefer string `json:"prefer,omitempty"`
	// ServerName is the common name that the server's certificate must have. Default with a bundle: that of a vpn-server
	// of the cluster; without: any that the CA has made for a server.
	ServerName string `json:"serverName,omitempty"`
	// Ranges are those of the cluster that may be reached through the tunnel. What has an "as" is reached by that.
	Ranges []RouteRange `json:"ranges,omitempty"`
	// Routes are ranges on the server's side that are reached through the tunnel. Default none. What a server pushes does
	// not count.
	Routes []string `json:"routes,omitempty"`
	// Rule is the priority of the rule that leads into the table of the first tunnel; that of the next one follows.
	// Default 32512.
	Rule int `json:"rule,omitempty"`
}

// VPNCommon is what both ends have.
type VPNCommon struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Protocol is tcp or udp. Default tcp.
	Protocol string `json:"protocol,omitempty"`
	// Identity says who this end is, and whom it believes.
	Identity VPNIdentity `json:"identity"`
	// TLSAuth is a file with a static key that signs handshakes. The other end has the same one.
	TLSAuth string `json:"tlsAuth,omitempty"`
	// TLSCrypt is a file with a static key that encrypts handshakes, in place of tlsAuth.
	TLSCrypt string `json:"tlsCrypt,omitempty"`
	// Transfer are the networks between both ends, at most one of each family: a client takes no address outside of
	// them. Two servers of one client have networks of their own. Default 192.168.123.0/24 and fd8f:6d53:b97a:1::/96.
	Transfer []string `json:"transfer,omitempty"`
	// MTU is that of the tunnel, the same on both ends. Default 1500, with udp 1400.
	MTU int `json:"mtu,omitempty"`
	// Link is the name of the TUN device; a client appends the number of the tunnel. Default tombolo-vpn.
	Link string `json:"link,omitempty"`
	// Table is the number of the routing table; that of a client's next tunnel follows. Default 182.
	Table int `json:"table,omitempty"`
	// Program is OpenVPN. Default openvpn, as found by PATH.
	Program string `json:"program,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8449 for a server, and
	// 127.0.0.1:8450 for a client.
	HealthListen string `json:"healthListen,omitempty"`
	// RunDir holds the admin socket and files for OpenVPN. Default /run/tombolo.
	RunDir string `json:"runDir,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
}

// VPNIdentity is either one file of 'tombolo certificate issue', or three files of another CA.
type VPNIdentity struct {
	// Bundle is made by 'tombolo certificate issue --role vpn-server' or vpn-client. It is read again when it changes.
	Bundle string `json:"bundle,omitempty"`
	// Certificate is a PEM file, with intermediates if there are some.
	Certificate string `json:"certificate,omitempty"`
	// Key is the PEM file of its private key.
	Key string `json:"key,omitempty"`
	// CA is the PEM file of those that have made the certificates of the other end.
	CA string `json:"ca,omitempty"`
}

// VPNServer is a server as a client dials it.
type VPNServer struct {
	// Address is host:port.
	Address string `json:"address,omitempty"`
	// Addresses are several host:port of the one server, in place of address, at most 8: they are tried in turn, in the
	// order of prefer.
	Addresses []string `json:"addresses,omitempty"`
	// Proxy is what leads to it. Default none.
	Proxy *VPNProxy `json:"proxy,omitempty"`
	// Transfer are the networks of this server, in place of the client's.
	Transfer []string `json:"transfer,omitempty"`
}

// VPNProxy is an HTTP proxy, such as an edge or Istio's gateway.
type VPNProxy struct {
	// Address is host:port.
	Address string `json:"address"`
	// Header names the server to the proxy. Default Reversed-VPN if there is a destination.
	Header string `json:"header,omitempty"`
	// Destination is the value of the header, such as outbound|1194||vpn-seed-server.shoot--p--s.svc.cluster.local.
	Destination string `json:"destination,omitempty"`
}

// VPNConnect serves HTTP CONNECT (RFC 9110 section 9.3.6) to kube-apiserver.
type VPNConnect struct {
	// Listen is host:port. Default :9443.
	Listen string `json:"listen,omitempty"`
	// Certificate and Key are PEM files of the listener. Default those of the identity.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
	// ClientCA is the PEM file of those that have made the certificates of clients. Default, with a bundle: its CA, and
	// the role client for the cluster.
	ClientCA string `json:"clientCA,omitempty"`
	// Connections bounds those that are open at a time. Default 8192.
	Connections int `json:"connections,omitempty"`
}

// VPNForwardConfig configures what runs beside a mesh on an endpoint machine: it carries what comes from the address of
// a cluster in the mesh to the OpenVPN server of that cluster.
type VPNForwardConfig struct {
	TypeMeta

	// Listen is this machine's address in the mesh and a port, ip:port. It may appear later.
	Listen string `json:"listen"`
	// Protocol is tcp or udp. Default tcp.
	Protocol string `json:"protocol,omitempty"`
	// Clusters are those that are served, at most 10000.
	Clusters []VPNForwardCluster `json:"clusters,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8451.
	HealthListen string `json:"healthListen,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
}

// VPNForwardCluster is a cluster in the mesh.
type VPNForwardCluster struct {
	// Name is that of the cluster, for people.
	Name string `json:"name"`
	// Address is that of the cluster in the mesh: what comes from there is its own.
	Address string `json:"address"`
	// Target is host:port of its OpenVPN server. A name is resolved for each connection.
	Target string `json:"target"`
}

// VPNRoutesConfig configures what runs on a machine of the seed that is no endpoint: it routes the range of clusters in
// the mesh to the endpoint machine that answers.
type VPNRoutesConfig struct {
	TypeMeta

	// Range is where clusters have their addresses in the mesh.
	Range string `json:"range"`
	// Endpoints are the endpoint machines, 1 to 8, on a link of this machine.
	Endpoints []VPNRoutesEndpoint `json:"endpoints"`
	// Table is the number of the routing table. Default 190.
	Table int `json:"table,omitempty"`
	// Rule is the priority of the rule that leads into the table. Default 32520.
	Rule int `json:"rule,omitempty"`
	// HealthListen serves /livez, /readyz and /metrics over http. Default 127.0.0.1:8452.
	HealthListen string `json:"healthListen,omitempty"`
	// Log says how to log.
	Log LogConfig `json:"log,omitempty"`
}

// VPNRoutesEndpoint is an endpoint machine as its neighbours reach it.
type VPNRoutesEndpoint struct {
	// Name is for people.
	Name string `json:"name"`
	// Address is a name or address of the machine, which is asked again and again.
	Address string `json:"address"`
	// Probe is host:port that accepts a connection while the endpoint works, such as the healthListen of its mesh.
	// Default: the machine is pinged, which says nothing about its mesh.
	Probe string `json:"probe,omitempty"`
}
