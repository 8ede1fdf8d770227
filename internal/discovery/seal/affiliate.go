// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/proto/sidero/sealed"
)

// ParseAffiliate checks what OpenData gave for the affiliate of an id, as
// ParseMember does for the native protocol. What it holds must name that id:
// nothing else keeps the data of one affiliate from being shown as another's.
// Endpoints stand beside the data in this protocol, and are not in it.
func ParseAffiliate(id string, a *sealed.Affiliate) (member.Facts, error) {
	p := parser{}
	out := member.Facts{
		Node: p.text("node_id", a.GetNodeId()), Hostname: p.text("hostname", a.GetHostname()),
		Nodename: p.text("nodename", a.GetNodename()),
		Role:     roleOf(a.GetMachineType()), OS: cleanText(a.GetOperatingSystem()),
		Addresses: list(&p, "addresses", limit.DiscoveryFacts, a.GetAddresses(), ParseAddr),
	}
	if k := a.GetKubespan(); k != nil {
		out.Key = p.wireGuard("kubespan.public_key", p.base64("kubespan.public_key", k.GetPublicKey()))
		out.Overlay6 = p.overlay("kubespan.address", k.GetAddress(), 16)
		out.Ranges = list(&p, "kubespan.additional_addresses", limit.DiscoveryFacts, k.GetAdditionalAddresses(), sealedPrefix)
	}
	if n := a.GetControlPlane().GetApiServerPort(); n > math.MaxUint16 {
		p.bad("control_plane.api_server_port", fmt.Errorf("port %d is above 65535", n))
	} else {
		out.APIServerPort = uint16(n)
	}
	if out.Node == "" || out.Node != id {
		p.bad("node_id", errors.New("it is not the id under which the data stand"))
	}
	if p.err != nil {
		return member.Facts{}, p.err
	}
	return out, nil
}

// Affiliate writes a member for the older protocol, which has no place for overlay4, excluded ranges and observations.
func Affiliate(m member.Facts) *sealed.Affiliate {
	out := &sealed.Affiliate{
		NodeId: m.Node, Hostname: m.Hostname, Nodename: m.Nodename, MachineType: string(m.Role), OperatingSystem: m.OS,
	}
	for _, a := range m.Addresses {
		out.Addresses = append(out.Addresses, a.AsSlice())
	}
	if !m.Key.IsZero() {
		out.Kubespan = &sealed.KubeSpan{PublicKey: base64.StdEncoding.EncodeToString(m.Key[:]), Address: m.Overlay6.AsSlice()}
		for _, r := range m.Ranges {
			out.Kubespan.AdditionalAddresses = append(out.Kubespan.AdditionalAddresses,
				&sealed.IPPrefix{Ip: r.Addr().AsSlice(), Bits: uint32(r.Bits())})
		}
	}
	if m.APIServerPort != 0 {
		out.ControlPlane = &sealed.ControlPlane{ApiServerPort: uint32(m.APIServerPort)}
	}
	return out
}

// roleOf reads a machine type; "init" is the first control plane of older releases.
func roleOf(machine string) member.Role {
	switch machine {
	case "init", string(member.RoleControlPlane):
		return member.RoleControlPlane
	case string(member.RoleWorker):
		return member.RoleWorker
	}
	return member.RoleNone
}

func sealedPrefix(p *sealed.IPPrefix) (netip.Prefix, error) {
	return ParsePrefix(p.GetIp(), p.GetBits())
}

func (p *parser) base64(place, text string) []byte {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		p.bad(place, errors.New("it is not base64"))
	}
	return b
}
