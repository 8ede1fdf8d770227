// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// The kinds of answers.
const (
	KindStatus      = "MeshStatus"
	KindExplanation = "MeshExplanation"
	KindPing        = "MeshPing"
	KindRotation    = "MeshKeyRotation"
	KindNetcheck    = "MeshNetcheck"
	KindForgotten   = "MeshForgotten"
)

// Status is the answer to GET /v1/status.
type Status struct {
	admin.Meta
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Node    string    `json:"node"`
	ID      string    `json:"id"`      // the member id
	Cluster string    `json:"cluster"` // the name of which the overlay's prefix is made
	// Sourceless says that no source of members is configured: no member is known.
	Sourceless bool     `json:"sourceless,omitempty"`
	Secrets    []string `json:"secrets"` // ids of the cluster's secrets that it has, the newest first
	PublicKey  string   `json:"publicKey"`
	Pin        string   `json:"pin"` // of its certificate for IPsec
	Link       string   `json:"link"`
	MTU        int      `json:"mtu"`
	Engine     string   `json:"engine"`
	EngineWhy  string   `json:"engineWhy"`
	// Beside is WireGuard beside IPsec, for peers that do not run IPsec.
	Beside   *Beside    `json:"beside,omitempty"`
	Overlay6 netip.Addr `json:"overlay6"`
	Overlay4 netip.Addr `json:"overlay4,omitzero"`
	Port     uint16     `json:"port"`
	// InForce says that the kernel is as wanted; Fault says why not, and Tries how often that
	// has failed since it was.
	InForce   bool             `json:"inForce"`
	Fault     *admin.FaultBody `json:"fault,omitempty"`
	Tries     int              `json:"tries,omitempty"`
	Config    Configuration    `json:"configuration"`
	Policy    *Policy          `json:"policy,omitempty"` // between peers
	Endpoints []Endpoint       `json:"endpoints"`        // where others may reach this node
	Ranges    []netip.Prefix   `json:"ranges,omitempty"`
	Announced []Announced      `json:"announced,omitempty"` // the ranges, with who states them
	Hubs      []Hub            `json:"hubs,omitempty"`
	Identity  *Identity        `json:"identity,omitempty"`
	Router    *Router          `json:"portMapping,omitempty"`
	Servers   []Server         `json:"stun,omitempty"`
	Lazy      bool             `json:"lazy"` // idle peers are not kept
	Bypass    bool             `json:"bypass"`
	Offloads  []Offload        `json:"offloads"`
	Peers     []Peer           `json:"peers"`
	Closed    []Closed         `json:"closed,omitempty"`
	Problems  []Problem        `json:"problems,omitempty"`
	Dropped   []Dropped        `json:"dropped,omitempty"` // by our rules
	// TunnelDropped is what was dropped between the network and the link; left out with the
	// kernel's WireGuard.
	TunnelDropped []Dropped `json:"tunnelDropped,omitempty"`
	// IPsecErrors are what the kernel's IPsec has dropped, in the whole network namespace; those that came at all.
	IPsecErrors []IPsecError `json:"ipsecErrors,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// Configuration is how that on disk stands to what runs.
type Configuration struct {
	// when a changed one was taken over last; left out: the one of the start runs
	Loaded time.Time `json:"loaded,omitzero"`
	// Refused is when it was refused last, and Fault says why, with file:line:column. Both
	// are there until a good one is loaded: what ran before keeps running.
	Refused time.Time        `json:"refused,omitzero"`
	Fault   *admin.FaultBody `json:"fault,omitempty"`
	// settings that were changed in it, and that only the next start takes over
	Waiting []string `json:"waiting,omitempty"`
}

// Policy is the policy between peers.
type Policy struct {
	Files  []string         `json:"files,omitempty"` // in force
	Rules  int              `json:"rules,omitempty"`
	Fault  *admin.FaultBody `json:"fault,omitempty"`  // of files that were refused since: what is in force stays
	Closed *admin.FaultBody `json:"closed,omitempty"` // why it lets nothing new in
}

// Beside is an engine beside that of mesh.engine.
type Beside struct {
	Engine string `json:"engine"`
	Link   string `json:"link"`
	Port   uint16 `json:"port"`
	Peers  int    `json:"peers"` // that it carries
}

// Endpoint is where this node may be reached.
type Endpoint struct {
	At   netip.AddrPort `json:"at"`
	Kind string         `json:"kind"`
}

// Announced is a range that this node announces, and who states it: configuration, kubernetes.
type Announced struct {
	Range   netip.Prefix `json:"range"`
	Sources []string     `json:"sources"`
}

// Hub is one whose relay this node uses.
type Hub struct {
	Name      string           `json:"name"`
	Address   string           `json:"address,omitempty"`
	Connected bool             `json:"connected"`
	Since     time.Time        `json:"since,omitzero"`
	RTT       float64          `json:"rttMillis,omitempty"`
	Rate      uint64           `json:"rate,omitempty"` // bytes a second that it grants; 0: no bound
	Sent      int64            `json:"sent"`           // datagrams
	Received  int64            `json:"received"`
	Dropped   int64            `json:"dropped,omitempty"`
	Fault     *admin.FaultBody `json:"fault,omitempty"`
}

// Identity is the node's certificate.
type Identity struct {
	URI     string           `json:"uri,omitempty"`
	Expires time.Time        `json:"expires,omitzero"`
	Renewal time.Time        `json:"renewal,omitzero"`
	Fault   *admin.FaultBody `json:"fault,omitempty"`
}

// Router is what the router maps for this node.
type Router struct {
	Method   string         `json:"method,omitempty"` // nat-pmp or upnp; empty: nothing is mapped
	External netip.AddrPort `json:"external,omitzero"`
	Why      []string       `json:"why,omitempty"` // each way that was tried in vain
}

// Server is a STUN server.
type Server struct {
	Name    string         `json:"name"`
	Addr    string         `json:"addr"`
	Mapped  netip.AddrPort `json:"mapped,omitzero"`
	RTT     float64        `json:"rttMillis,omitempty"`
	Failing time.Time      `json:"failing,omitzero"`
	Why     string         `json:"why,omitempty"` // it is of no use
}

// Offload is what the kernel does in bulk, or why not.
type Offload struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
	Why  string `json:"why,omitempty"`
}

// Peer is another node.
type Peer struct {
	ID        string `json:"id"`
	Node      string `json:"node"`
	PublicKey string `json:"publicKey"`
	Pin       string `json:"pin,omitempty"`
	// Engine carries its packets, wireguard or ipsec, and EngineWhy says why not the one that both run.
	Engine    string         `json:"engine"`
	EngineWhy string         `json:"engineWhy,omitempty"`
	Overlay6  netip.Addr     `json:"overlay6,omitzero"`
	Overlay4  netip.Addr     `json:"overlay4,omitzero"`
	Ranges    []netip.Prefix `json:"ranges,omitempty"`
	State     string         `json:"state"` // idle, direct, relayed, down
	Why       string         `json:"why,omitempty"`
	Path      string         `json:"path,omitempty"` // an endpoint, or "relay " and the hub's name
	Since     time.Time      `json:"since,omitzero"`
	RTT       float64        `json:"rttMillis,omitempty"`
	MTU       int            `json:"mtu,omitempty"` // of the path in bytes of IP; 0: not known
	Handshake time.Time      `json:"handshake,omitzero"`
	Secret    string         `json:"secret,omitempty"` // id of the cluster's secret with which handshakes are made
	Sent      uint64         `json:"sent"`             // bytes
	Received  uint64         `json:"received"`
	Unsent    string         `json:"unsent,omitempty"` // why the kernel last refused to send to it
	Probes    bool           `json:"probes"`           // it speaks the path protocol
	// Stale says that no source can tell any longer whether it is alive.
	Stale      bool        `json:"stale,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"`
	// ESP says whether packets of IPsec to it go without UDP, and why; empty: there is no path, or only by a relay.
	ESP string `json:"esp,omitempty"`
	// SecurityAssociations are the tunnels of IPsec to it, oldest first.
	SecurityAssociations []SecurityAssociation `json:"securityAssociations,omitempty"`
}

// SecurityAssociation is a tunnel of IPsec: both of its directions (RFC 4301 section 4.1), without keys.
type SecurityAssociation struct {
	Local   netip.Addr     `json:"local"`
	Remote  netip.AddrPort `json:"remote"`
	Raw     bool           `json:"raw,omitempty"` // ESP without UDP: the port says nothing
	ReqID   uint32         `json:"reqID"`
	SPIIn   string         `json:"spiIn"`
	SPIOut  string         `json:"spiOut,omitempty"` // left out: nothing is sent by it any more
	Cipher  string         `json:"cipher"`
	Here    bool           `json:"begunHere,omitempty"`
	Sends   bool           `json:"sends,omitempty"` // packets go by it
	Since   time.Time      `json:"since"`
	Ends    time.Time      `json:"ends,omitzero"` // another one has taken its place
	Packets [2]uint64      `json:"packets"`       // sent and received
}

// Candidate is a way to a peer, and what came of it.
type Candidate struct {
	At      string  `json:"at"`
	Kind    string  `json:"kind,omitempty"`
	Near    bool    `json:"near,omitempty"`
	Sent    int     `json:"sent"` // pings
	Answers int     `json:"answers"`
	RTT     float64 `json:"rttMillis,omitempty"`
	Why     string  `json:"why,omitempty"` // it is not the one in use
}

// Closed are the ranges of a member of which, or of whose key, nothing is heard any more: packets for them
// are lost.
type Closed struct {
	Node   string         `json:"node,omitempty"`
	ID     string         `json:"id"`
	Ranges []netip.Prefix `json:"ranges"`
	Since  time.Time      `json:"since"`
	Until  time.Time      `json:"until"` // then they go by this machine's own routes
}

// Forgotten is the answer to POST /v1/forget.
type Forgotten struct {
	admin.Meta
	Node   string         `json:"node"`
	Ranges []netip.Prefix `json:"ranges"` // that go by this machine's own routes now
}

// Problem is a member or a range that does not count.
type Problem struct {
	Kind  string       `json:"kind"`
	Node  string       `json:"node,omitempty"`
	Range netip.Prefix `json:"range,omitzero"`
	Other string       `json:"other,omitempty"`
	Why   string       `json:"why"`
}

// Dropped is how many packets were dropped for a reason.
type Dropped struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// IPsecError is a reason for which the kernel has dropped packets.
type IPsecError struct {
	Name    string `json:"name"` // as in /proc/net/xfrm_stat
	Means   string `json:"means"`
	Packets uint64 `json:"packets"`
}

// Explanation is the answer to GET /v1/explain.
type Explanation struct {
	admin.Meta
	Address netip.Addr `json:"address"`
	InMesh  bool       `json:"inMesh"`
	Local   bool       `json:"local,omitempty"` // it is this node's own address in the mesh
	Set     string     `json:"set,omitempty"`
	Element string     `json:"element,omitempty"` // range of the set that has it
	Line    string     `json:"line,omitempty"`    // that marks it
	Mark    string     `json:"mark,omitempty"`
	Rule    string     `json:"rule,omitempty"`
	Table   int        `json:"table,omitempty"`
	Route   string     `json:"route,omitempty"`
	Peer    *Peer      `json:"peer,omitempty"`
	Text    string     `json:"text"`
}

// Ping is one line of POST /v1/ping.
type Ping struct {
	admin.Meta
	Seq   int              `json:"seq"`
	Node  string           `json:"node"`
	To    netip.Addr       `json:"to"`
	RTT   float64          `json:"rttMillis,omitempty"` // through the tunnel; 0: no answer came
	State string           `json:"state"`
	Path  string           `json:"path,omitempty"`
	Trip  float64          `json:"pathRttMillis,omitempty"` // smoothed, of the path's own probes
	Why   string           `json:"why,omitempty"`
	Fault *admin.FaultBody `json:"fault,omitempty"`
}

// Rotated is the answer to POST /v1/keys/rotate.
type Rotated struct {
	admin.Meta
	PublicKey string `json:"publicKey"`
	Previous  string `json:"previous"`
	Pin       string `json:"pin"`   // the new one
	Peers     int    `json:"peers"` // that have to learn of it
}

// Netcheck is the answer to GET /v1/netcheck.
type Netcheck struct {
	admin.Meta
	Report json.RawMessage `json:"report"` // a nat.Report
	Text   string          `json:"text"`   // the same for people
}

func netcheckOf(r nat.Report) (Netcheck, error) {
	report, err := json.Marshal(r)
	return Netcheck{meta(KindNetcheck), report, r.Text()}, err
}

// Peer finds a peer by its node's name, member id, public key or overlay address.
func (s Status) Peer(name string) (Peer, error) {
	for _, p := range s.Peers {
		if p.named(name) {
			return p, nil
		}
	}
	f := fault.Newf(fault.CodeNotFound, "%.80q is no peer of this node", name).
		Hint("'tombolo mesh status' lists the peers, and 'tombolo discovery members' the members that discovery knows")
	if name == s.Node {
		f.Whyf("it is this node itself")
	}
	return Peer{}, f
}

func (p Peer) named(name string) bool {
	return name != "" && slices.Contains([]string{p.Node, p.ID, p.PublicKey, text(p.Overlay6), text(p.Overlay4)}, name)
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func notUp() *fault.Fault {
	return fault.New(fault.CodeMeshAway, "the mesh is not up yet").Hint("try again in a moment")
}
