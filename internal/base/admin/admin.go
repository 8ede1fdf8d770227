// SPDX-License-Identifier: Apache-2.0

// Package admin is the hub's admin API as values, and a client for it over the
// hub's admin unix socket or, with an operator certificate, over its main port.
// It decides nothing; the hub serves the API.
package admin

import (
	"io"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// Meta is at the top of every answer, so that kinds of output can be distinguished.
type Meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Status is the answer to GET /v1/status.
type Status struct {
	Meta
	Hub      HubStatus       `json:"hub"`
	Policy   *PolicyStatus   `json:"policy,omitempty"` // nil: only the agents' own lists apply
	Clusters []ClusterStatus `json:"clusters"`
	Warnings []string        `json:"warnings,omitempty"`
	// Revoked are the 1,000 newest revocations, RevokedMore is the number of older ones.
	Revoked     []RevokedIdentity `json:"revoked,omitempty"`
	RevokedMore int               `json:"revokedMore,omitempty"`
}

// HubStatus describes the hub itself.
type HubStatus struct {
	Version     string    `json:"version"`
	Since       time.Time `json:"since"`
	TrustDomain string    `json:"trustDomain"`
	Listen      string    `json:"listen"`
	Advertise   []string  `json:"advertise"`
	STUN        *STUN     `json:"stun,omitempty"` // nil: an older hub
	CAPin       string    `json:"caPin"`
	Draining    bool      `json:"draining"`
	Memory      *Memory   `json:"memory,omitempty"` // nil: an older hub
	// WireGuard is the network of clusters and endpoints; nil: there is none.
	WireGuard *WireGuardStatus `json:"wireguard,omitempty"`
}

// STUN describes the hub's STUN server, from which nodes learn their mapped endpoint.
type STUN struct {
	Listen  []string `json:"listen"`            // UDP
	Without []string `json:"without,omitempty"` // listeners that are missing, and why
}

// Memory is the memory that the hub uses, and its limit.
type Memory struct {
	Used  int64 `json:"used"`            // bytes, without what can be freed
	Limit int64 `json:"limit,omitempty"` // bytes; 0: none
	Full  bool  `json:"full,omitempty"`  // no cluster gets more
}

// PolicyStatus describes the access policy in force.
type PolicyStatus struct {
	Version string         `json:"version,omitempty"` // changes since the start, and a digest of the content
	Files   int            `json:"files"`
	Rules   int            `json:"rules"`
	Refusal *PolicyRefusal `json:"refusal,omitempty"` // the newest, of a file that is still refused
}

// PolicyRefusal says why a policy file was refused; its last good content, if any, stays
// in force.
type PolicyRefusal struct {
	File   string    `json:"file"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	New    bool      `json:"new,omitempty"` // the file has no good content yet
}

// ClusterStatus describes one cluster.
type ClusterStatus struct {
	Name    string        `json:"name"`
	Streams int           `json:"streams"`
	Policy  string        `json:"policy,omitempty"` // version of the rules for the cluster
	Sockets []Socket      `json:"sockets"`
	Agents  []AgentStatus `json:"agents"`
	// LimitHits is how often a limit of the cluster, its agents or its callers refused
	// something or delayed bytes, since the hub started.
	LimitHits int64        `json:"limitHits,omitempty"`
	Pressed   bool         `json:"pressed,omitempty"` // the hub is short of memory, and the cluster gets no more
	Relay     *RelayStatus `json:"relay,omitempty"`   // nil: no node has used it
	// Ports are what the agents of the cluster may dial on the hub's side.
	Ports []PortStatus `json:"ports,omitempty"`
	// Limits are the limits and their use; only in the answer for one cluster.
	Limits []LimitStatus `json:"limits,omitempty"`
}

// RelayStatus describes the relay between the nodes of a cluster. Counts are since the
// hub started.
type RelayStatus struct {
	Nodes   int        `json:"nodes"`             // connected now
	Refused int64      `json:"refused,omitempty"` // connections refused for lack of room
	Packets int64      `json:"packets"`
	Bytes   int64      `json:"bytes"` // of datagrams
	Queued  int64      `json:"queued"`
	Dropped RelayDrops `json:"dropped"`
	// Connected are those nodes, at most 1,000; only in the answer for one cluster.
	Connected []RelayNode `json:"connected,omitempty"`
}

// RelayDrops counts packets that the relay dropped.
type RelayDrops struct {
	Queue   int64 `json:"queue"`   // their destination reads too slowly
	Rate    int64 `json:"rate"`    // over the rate of their source or its cluster
	Absent  int64 `json:"absent"`  // their destination is not connected
	Foreign int64 `json:"foreign"` // neither WireGuard nor a probe, or too large
}

// RelayNode is a node connected to the relay. Counts are of this connection.
type RelayNode struct {
	Name           string    `json:"name"`
	Peer           string    `json:"peer"`
	Since          time.Time `json:"since"`
	CertificateEnd time.Time `json:"certificateEnd"`
	Packets        int64     `json:"packets"` // from it
	Bytes          int64     `json:"bytes"`
	Dropped        int64     `json:"dropped"` // of those from it
	Lost           int64     `json:"lost"`    // of those to it, because it reads too slowly
}

// LimitStatus is one limit of a cluster, an agent or a caller.
type LimitStatus struct {
	Scope   string `json:"scope"`             // cluster, agent or caller
	Who     string `json:"who,omitempty"`     // the agent or the caller
	Limit   string `json:"limit"`             // as in the configuration
	Used    int64  `json:"used"`              // for rates: in the last full second
	Bound   int64  `json:"bound,omitempty"`   // 0: none
	Hits    int64  `json:"hits"`              // since the hub started
	Waiting int    `json:"waiting,omitempty"` // streams that a byte rate delays now
}

// Socket is one unix socket of a cluster.
type Socket struct {
	Protocol string `json:"protocol"`
	Path     string `json:"path"`
	Egress   string `json:"egress,omitempty"` // name of the egress selection that uses it
}

// AgentStatus describes one agent, live or remembered.
type AgentStatus struct {
	ID             string      `json:"id"`
	Connected      bool        `json:"connected"`
	Draining       bool        `json:"draining"`
	Since          time.Time   `json:"since,omitzero"` // start of the live or the last session
	Peer           string      `json:"peer,omitempty"`
	Software       string      `json:"software,omitempty"`
	Connections    int         `json:"connections,omitempty"` // of the session; 0 when it has ended
	RTTMillis      float64     `json:"rttMillis"`
	Streams        int         `json:"streams"`
	BytesIn        int64       `json:"bytesIn"`  // into the cluster
	BytesOut       int64       `json:"bytesOut"` // out of the cluster
	Ranges         []string    `json:"ranges"`
	CertificateEnd time.Time   `json:"certificateEnd,omitzero"`
	LastDisconnect *Disconnect `json:"lastDisconnect,omitempty"`
	// Connections that the session lost, without those that it closed itself.
	ConnectionsLost int   `json:"connectionsLost,omitempty"`
	LastLoss        *Loss `json:"lastLoss,omitempty"`
}

// Loss is the cause and time at which a session lost a connection.
type Loss struct {
	Cause  string    `json:"cause"` // silent, broken or violation
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Disconnect is the reason and time at which a session ended.
type Disconnect struct {
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	Cluster    string `json:"cluster"`
	TTLSeconds int64  `json:"ttlSeconds"`
	Uses       int    `json:"uses"`
	// Nodes asks for a token for nodes of the mesh; Node, if not empty, is the only
	// name that a node can take with it.
	Nodes bool   `json:"nodes,omitempty"`
	Node  string `json:"node,omitempty"`
}

// Token is the answer; only Join and Command contain the secret.
type Token struct {
	Meta
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses"`
	Join    string    `json:"join"`
	Command string    `json:"command,omitempty"` // of an agent
	Warning string    `json:"warning,omitempty"`
	// NewCluster is set if the request registered the cluster.
	NewCluster bool `json:"newCluster,omitempty"`
}

// TokenInfo is one row of GET /v1/tokens; it holds no secret.
type TokenInfo struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses"`
	Used    int       `json:"used"`
	Agents  []string  `json:"agents"` // or nodes
	Nodes   bool      `json:"nodes,omitempty"`
	Node    string    `json:"node,omitempty"`
}

// TokenList is the answer to GET /v1/tokens.
type TokenList struct {
	Meta
	Tokens []TokenInfo `json:"tokens"`
}

// CertificateRequest is the body of POST /v1/certificates.
type CertificateRequest struct {
	Role    string   `json:"role"` // such as client or operator
	Cluster string   `json:"cluster,omitempty"`
	Name    string   `json:"name"`
	Hosts   []string `json:"hosts,omitempty"` // by which a vpn-server is dialled
	CSR     string   `json:"csr"`             // PEM
}

// Certificate is the answer.
type Certificate struct {
	Meta
	Serial      string    `json:"serial"`
	Identity    string    `json:"identity"`
	Certificate string    `json:"certificate"` // PEM
	CA          string    `json:"ca"`          // PEM
	Expires     time.Time `json:"expires"`
	Advertise   []string  `json:"advertise"`
}

// CertificateInfo is one row of GET /v1/certificates.
type CertificateInfo struct {
	Serial   string    `json:"serial"`
	Identity string    `json:"identity"`
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked,omitzero"`
	Token    string    `json:"token,omitempty"` // id of the token with which an agent or node joined
}

// RevocationRequest is the body of POST /v1/revocations.
type RevocationRequest struct {
	Role    string `json:"role"`              // agent, node, client or operator
	Cluster string `json:"cluster,omitempty"` // of the name
	Name    string `json:"name,omitempty"`
	Serial  string `json:"serial,omitempty"` // instead of cluster and name
	// Unknown revokes the name even if the hub knows no such agent or node.
	Unknown bool `json:"unknown,omitempty"`
}

// Revocation is the answer.
type Revocation struct {
	Meta
	Identity    string    `json:"identity"`
	Revoked     time.Time `json:"revoked"`
	Serials     []string  `json:"serials,omitempty"` // the newest, for an agent or a node
	Token       string    `json:"token,omitempty"`   // id of the one by which an agent or a node joined
	Connections int       `json:"connections"`       // closed
	Warning     string    `json:"warning,omitempty"` // about a token that can still be used
}

// RevokedIdentity is a revoked identity.
type RevokedIdentity struct {
	Role    string    `json:"role"`
	Cluster string    `json:"cluster,omitempty"`
	Name    string    `json:"name"`
	Serial  string    `json:"serial,omitempty"` // for a client or operator, which may have other certificates
	Revoked time.Time `json:"revoked"`
}

// CertificateList is the answer to GET /v1/certificates.
type CertificateList struct {
	Meta
	Certificates []CertificateInfo `json:"certificates"`
}

// SocketRequest is the body of POST /v1/clusters/{cluster}/sockets.
type SocketRequest struct {
	Protocol string `json:"protocol"`
}

// PingResult is the answer to POST /v1/clusters/{cluster}/ping.
type PingResult struct {
	Meta
	Cluster string      `json:"cluster"`
	Agents  []AgentPing `json:"agents"`
}

// AgentPing is the round trip to one agent.
type AgentPing struct {
	ID        string     `json:"id"`
	RTTMillis float64    `json:"rttMillis"`
	Fault     *FaultBody `json:"fault,omitempty"`
}

// JoinRequest is the body of POST /v1/join on the join port.
type JoinRequest struct {
	TokenID string `json:"tokenID"`
	Secret  string `json:"secret"`
	Cluster string `json:"cluster"` // that of the join line; the token must be for it
	CSR     string `json:"csr"`
	// Role is node for a node of the mesh, empty for an agent; Node is the name that a
	// node asks for, empty if its token has it.
	Role string `json:"role,omitempty"`
	Node string `json:"node,omitempty"`
}

// RenewRequest is the body of POST /v1/renew on the join port.
type RenewRequest struct {
	CSR string `json:"csr"`
}

// JoinAnswer answers both.
type JoinAnswer struct {
	Cluster     string `json:"cluster"`
	Agent       string `json:"agent"` // or node
	Certificate string `json:"certificate"`
	CA          string `json:"ca"`
	UnixMillis  int64  `json:"unixMillis"` // the hub's clock
}

// FaultBody is a fault as JSON.
type FaultBody struct {
	Code string `json:"code"`
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Next string `json:"next,omitempty"`
}

// BodyOf renders a fault.
func BodyOf(f *fault.Fault) *FaultBody {
	if f == nil {
		return nil
	}
	return &FaultBody{string(f.Code), f.What, f.Why, f.Next}
}

// Fault converts the body back to a fault. Its texts come from a peer, so they are
// truncated and cleaned before they reach a terminal.
func (b *FaultBody) Fault() *fault.Fault {
	code := b.Code
	if code == "" {
		code = string(fault.CodeInternal)
	}
	return wire.FromFault(&pb.Fault{Code: code, What: b.What, Why: b.Why, Next: b.Next})
}

// HTTPStatus maps a class to the HTTP status of an answer.
func HTTPStatus(c fault.Class) int {
	switch c {
	case fault.Invalid:
		return 400
	case fault.Unauthenticated:
		return 401
	case fault.Denied:
		return 403
	case fault.NotFound:
		return 404
	case fault.Conflict:
		return 409
	case fault.Exhausted:
		return 429
	case fault.Upstream:
		return 502
	case fault.Unavailable:
		return 503
	case fault.Timeout:
		return 504
	}
	return 500
}

// StreamProtocol is the Upgrade token of a stream.
const StreamProtocol = "tombolo-stream"

// SwitchProtocols writes the response head after which a connection carries a stream.
func SwitchProtocols(w io.Writer) error {
	_, err := io.WriteString(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
		"Upgrade: "+StreamProtocol+"\r\n\r\n")
	return err
}
