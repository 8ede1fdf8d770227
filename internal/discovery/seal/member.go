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

// ParseMember checks a message that Open gave. It refuses all of a member for
// one wrong fact, and names its place: half of a statement may mean
// something else.
func ParseMember(m *discovery.Member) (member.Facts, error) {
	p := parser{}
	out := member.Facts{
		Node: p.text("node", m.GetNode()), Hostname: p.text("hostname", m.GetHostname()),
		Nodename: p.text("nodename", m.GetNodename()),
		OS:       cleanText(m.GetOperatingSystem()), Software: cleanText(m.GetSoftware()),
		Key:      p.wireGuard("wireguard_key", m.GetWireguardKey()),
		Pin:      p.pin("pin", m.GetPin()),
		Engine:   member.Engine(p.text("engine", m.GetEngine())),
		Overlay6: p.overlay("overlay6", m.GetOverlay6(), 16), Overlay4: p.overlay("overlay4", m.GetOverlay4(), 4),
		Addresses: list(&p, "addresses", limit.DiscoveryFacts, m.GetAddresses(), ParseAddr),
		Endpoints: list(&p, "endpoints", limit.DiscoveryEndpoints, m.GetEndpoints(), endpointOf),
		Ranges:    list(&p, "ranges", limit.DiscoveryFacts, m.GetRanges(), prefixOf),
		Excluded:  list(&p, "excluded", limit.DiscoveryFacts, m.GetExcluded(), prefixOf),
		Observed:  list(&p, "observed", limit.DiscoveryFacts, m.GetObserved(), observationOf),
	}
	if r := member.Role(m.GetRole()); r == member.RoleControlPlane || r == member.RoleWorker {
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
		return member.Facts{}, p.err
	}
	return out, nil
}

// mesh reads what a member says for the mesh.
func (p *parser) mesh(out *member.Facts, m *discovery.Member) {
	out.Mesh = m.GetMesh()
	if out.RelayCluster = m.GetRelayCluster(); out.RelayCluster != "" {
		if _, err := id.ParseCluster(out.RelayCluster); err != nil {
			p.bad("relay_cluster", err)
		}
	}
	out.Relays = list(p, "relays", limit.MeshRelays, m.GetRelays(),
		func(s string) (string, error) { return s, id.CheckHub(s) })
	if len(out.Relays) > 0 && out.RelayCluster == "" {
		p.bad("relay_cluster", errors.New("it is empty, and there are relays"))
	}
}

// Message writes what ParseMember reads. The caller puts what it does not know, from an older message, beside it.
func Message(f member.Facts) *discovery.Member {
	out := &discovery.Member{
		Node: f.Node, Hostname: f.Hostname, Nodename: f.Nodename, Role: string(f.Role),
		ApiServerPort: uint32(f.APIServerPort), OperatingSystem: f.OS, Software: f.Software,
		Overlay6: f.Overlay6.AsSlice(), Overlay4: f.Overlay4.AsSlice(),
		Mesh: f.Mesh, RelayCluster: f.RelayCluster, Relays: f.Relays, Engine: string(f.Engine),
	}
	if !f.Key.IsZero() {
		out.WireguardKey = f.Key[:]
	}
	if !f.Pin.IsZero() {
		out.Pin = f.Pin[:]
	}
	for _, a := range f.Addresses {
		out.Addresses = append(out.Addresses, a.AsSlice())
	}
	endpoint := func(at netip.AddrPort, kind member.Kind) *discovery.Endpoint {
		return &discovery.Endpoint{Ip: at.Addr().AsSlice(), Port: uint32(at.Port()), Kind: string(kind)}
	}
	for _, e := range f.Endpoints {
		out.Endpoints = append(out.Endpoints, endpoint(e.Addr, e.Kind))
	}
	for _, o := range f.Observed {
		out.Observed = append(out.Observed, &discovery.Observation{
			WireguardKey: o.Key[:], Endpoint: endpoint(o.Addr, member.KindOther),
		})
	}
	prefixes := func(all []netip.Prefix) (out []*discovery.Prefix) {
		for _, p := range all {
			out = append(out, &discovery.Prefix{Ip: p.Addr().AsSlice(), Bits: uint32(p.Bits())})
		}
		return out
	}
	out.Ranges, out.Excluded = prefixes(f.Ranges), prefixes(f.Excluded)
	return out
}

func endpointOf(e *discovery.Endpoint) (member.Endpoint, error) {
	at, err := parseEndpoint(e.GetIp(), e.GetPort())
	out := member.Endpoint{Addr: at}
	known := []member.Kind{member.KindOwn, member.KindStatic, member.KindMapped, member.KindObserved}
	if k := member.Kind(e.GetKind()); slices.Contains(known, k) {
		out.Kind = k
	}
	return out, err
}

func prefixOf(p *discovery.Prefix) (netip.Prefix, error) { return ParsePrefix(p.GetIp(), p.GetBits()) }

func observationOf(o *discovery.Observation) (member.Observation, error) {
	key, err := wireGuardOf(o.GetWireguardKey())
	if err != nil {
		return member.Observation{}, err
	}
	at, err := parseEndpoint(o.GetEndpoint().GetIp(), o.GetEndpoint().GetPort())
	return member.Observation{Key: key, Addr: at}, err
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

func (p *parser) pin(place string, b []byte) (out member.Pin) {
	switch {
	case len(b) == 0:
	case len(b) != len(out):
		p.bad(place, fmt.Errorf("a pin has %d bytes, not %d", len(out), len(b)))
	case member.Pin(b).IsZero():
		p.bad(place, errors.New("the pin is zero"))
	default:
		out = member.Pin(b)
	}
	return out
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
