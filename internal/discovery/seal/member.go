// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/ecdh"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// Member is a message Member that has been checked: its addresses are addresses,
// its lists are within bounds and hold nothing twice, its texts can be shown.
type Member struct {
	Node, Hostname, Nodename string // Node is never empty
	Role                     Role
	OperatingSystem          string
	Software                 string
	WireGuard                member.Key // zero: none
	Overlay6, Overlay4       netip.Addr // not valid: none
	Addresses                []netip.Addr
	Endpoints                []Endpoint
	Ranges, Excluded         []netip.Prefix
	Observed                 []Observation
	APIServerPort            uint16   // 0: none
	Mesh                     uint32   // version of the path protocol; 0: WireGuard alone
	RelayCluster             string   // of its certificate at hubs; empty: it has no relay
	Relays                   []string // the hubs that it is attached to
}

// Role is what a node is to Kubernetes.
type Role string

// The roles. What this version does not know is none.
const (
	RoleNone         Role = ""
	RoleControlPlane Role = "controlplane"
	RoleWorker       Role = "worker"
)

// Kind is how a member came to know an endpoint.
type Kind string

// The kinds. What this version does not know is KindOther.
const (
	KindOther    Kind = ""
	KindOwn      Kind = "own"      // an address of an interface
	KindStatic   Kind = "static"   // configured
	KindMapped   Kind = "mapped"   // by a router that was asked
	KindObserved Kind = "observed" // by another one
)

// Endpoint is where a member may be reached.
type Endpoint struct {
	At   netip.AddrPort
	Kind Kind
}

// Observation is where a member has seen another one.
type Observation struct {
	Key member.Key
	Endpoint
}

// ParseMember checks a message that Open gave. It refuses all of a member for
// one wrong fact, and names its place: half of what somebody says may mean
// something else.
func ParseMember(m *discovery.Member) (Member, error) {
	p := parser{}
	out := Member{
		Node: p.text("node", m.GetNode()), Hostname: p.text("hostname", m.GetHostname()), Nodename: p.text("nodename", m.GetNodename()),
		OperatingSystem: cleanText(m.GetOperatingSystem()), Software: cleanText(m.GetSoftware()),
		WireGuard: p.wireGuard("wireguard_key", m.GetWireguardKey()),
		Overlay6:  p.overlay("overlay6", m.GetOverlay6(), 16), Overlay4: p.overlay("overlay4", m.GetOverlay4(), 4),
		Addresses: list(&p, "addresses", limit.DiscoveryFacts, m.GetAddresses(), ParseAddr),
		Endpoints: list(&p, "endpoints", limit.DiscoveryEndpoints, m.GetEndpoints(), endpointOf),
		Ranges:    list(&p, "ranges", limit.DiscoveryFacts, m.GetRanges(), prefixOf),
		Excluded:  list(&p, "excluded", limit.DiscoveryFacts, m.GetExcluded(), prefixOf),
		Observed:  list(&p, "observed", limit.DiscoveryFacts, m.GetObserved(), observationOf),
	}
	if r := Role(m.GetRole()); r == RoleControlPlane || r == RoleWorker {
		out.Role = r
	}
	if n := m.GetApiServerPort(); n > math.MaxUint16 {
		p.bad("api_server_port", fmt.Errorf("port %d is above 65535", n))
	}
	out.APIServerPort = uint16(m.GetApiServerPort())
	if out.Node == "" {
		p.bad("node", errors.New("the member does not say what machine it is"))
	}
	p.mesh(&out, m)
	if p.err != nil {
		return Member{}, p.err
	}
	return out, nil
}

// mesh reads what a member says for the mesh.
func (p *parser) mesh(out *Member, m *discovery.Member) {
	out.Mesh = m.GetMesh()
	if out.RelayCluster = m.GetRelayCluster(); out.RelayCluster != "" {
		if _, err := id.ParseCluster(out.RelayCluster); err != nil {
			p.bad("relay_cluster", err)
		}
	}
	out.Relays = list(p, "relays", limit.MeshRelays, m.GetRelays(), func(s string) (string, error) { return s, id.CheckHub(s) })
	if len(out.Relays) > 0 && out.RelayCluster == "" {
		p.bad("relay_cluster", errors.New("it is empty, and there are relays"))
	}
}

// Message is the member as a message, which ParseMember reads. The caller puts
// what it does not know, from an older message, beside it.
func (m Member) Message() *discovery.Member {
	out := &discovery.Member{
		Node: m.Node, Hostname: m.Hostname, Nodename: m.Nodename, Role: string(m.Role), ApiServerPort: uint32(m.APIServerPort),
		OperatingSystem: m.OperatingSystem, Software: m.Software, Overlay6: m.Overlay6.AsSlice(), Overlay4: m.Overlay4.AsSlice(),
		Mesh: m.Mesh, RelayCluster: m.RelayCluster, Relays: m.Relays,
	}
	if !m.WireGuard.IsZero() {
		out.WireguardKey = m.WireGuard[:]
	}
	for _, a := range m.Addresses {
		out.Addresses = append(out.Addresses, a.AsSlice())
	}
	for _, e := range m.Endpoints {
		out.Endpoints = append(out.Endpoints, e.message())
	}
	for _, o := range m.Observed {
		out.Observed = append(out.Observed, &discovery.Observation{WireguardKey: o.Key[:], Endpoint: o.message()})
	}
	prefixes := func(all []netip.Prefix) (out []*discovery.Prefix) {
		for _, p := range all {
			out = append(out, &discovery.Prefix{Ip: p.Addr().AsSlice(), Bits: uint32(p.Bits())})
		}
		return out
	}
	out.Ranges, out.Excluded = prefixes(m.Ranges), prefixes(m.Excluded)
	return out
}

func (e Endpoint) message() *discovery.Endpoint {
	return &discovery.Endpoint{Ip: e.At.Addr().AsSlice(), Port: uint32(e.At.Port()), Kind: string(e.Kind)}
}

func endpointOf(e *discovery.Endpoint) (Endpoint, error) {
	at, err := parseEndpoint(e.GetIp(), e.GetPort())
	out := Endpoint{At: at}
	if k := Kind(e.GetKind()); slices.Contains([]Kind{KindOwn, KindStatic, KindMapped, KindObserved}, k) {
		out.Kind = k
	}
	return out, err
}

func prefixOf(p *discovery.Prefix) (netip.Prefix, error) { return ParsePrefix(p.GetIp(), p.GetBits()) }

func observationOf(o *discovery.Observation) (Observation, error) {
	key, err := wireGuardOf(o.GetWireguardKey())
	if err != nil {
		return Observation{}, err
	}
	e, err := endpointOf(o.GetEndpoint())
	return Observation{key, e}, err
}

func wireGuardOf(b []byte) (member.Key, error) {
	if len(b) != size {
		return member.Key{}, fmt.Errorf("a key has %d bytes, not %d", size, len(b))
	}
	if key := member.Key(b); !key.IsZero() {
		return key, nil
	}
	return member.Key{}, errors.New("the key is zero")
}

// parser keeps the first problem.
type parser struct{ err error }

func (p *parser) bad(place string, why error) {
	if p.err == nil {
		p.err = fault.New(fault.CodeEntryInvalid, "what the member says of itself is not taken").Whyf("%s: %v", place, why).
			Hint("see to the software and the configuration of that member")
	}
}

// text is a name: one that was cut or cleaned would be another one's.
func (p *parser) text(place, s string) string {
	if cleanText(s) != s {
		p.bad(place, fmt.Errorf("it has more than %d bytes, or characters that cannot be shown", discoveryText))
	}
	return s
}

func (p *parser) wireGuard(place string, b []byte) member.Key {
	if len(b) == 0 {
		return member.Key{}
	}
	key, err := wireGuardOf(b)
	if err == nil && lowOrder(key) {
		err = errors.New("the key is of low order: whatever it agrees on, everybody knows")
	}
	if err != nil {
		p.bad(place, err)
	}
	return key
}

// lowOrder reports whether X25519 with the key gives zero (RFC 7748 section 6.1).
func lowOrder(key member.Key) bool {
	private, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{1}, size))
	if err != nil {
		return true
	}
	public, err := ecdh.X25519().NewPublicKey(key[:])
	if err != nil {
		return true
	}
	_, err = private.ECDH(public)
	return err != nil
}

func (p *parser) overlay(place string, b []byte, n int) netip.Addr {
	if len(b) == 0 {
		return netip.Addr{}
	}
	a, err := ParseAddr(b)
	if err == nil && a.BitLen() != 8*n {
		err = fmt.Errorf("%v is not an address of %d bytes", a, n)
	}
	if err != nil {
		p.bad(place, err)
	}
	return a
}

// list reads each of a list once, in its order.
func list[In any, Out comparable](p *parser, place string, most int, in []In, read func(In) (Out, error)) (out []Out) {
	if len(in) > most {
		p.bad(place, fmt.Errorf("there are %d, at most %d are taken", len(in), most))
		return nil
	}
	seen := make(map[Out]bool, len(in))
	for i, one := range in {
		v, err := read(one)
		if err != nil {
			p.bad(fmt.Sprintf("%s[%d]", place, i), err)
			return nil
		}
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// cleanText is a text for people.
func cleanText(s string) string { return untrusted.Text(s, discoveryText) }
