// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
)

// MeshOptions are what `tombolo mesh` does on this machine. Every field may be left out.
type MeshOptions struct {
	// Port is the UDP port of WireGuard; 0: any free one. Default 51820.
	Port *int `json:"port,omitempty"`
	// Link is the name of the network interface. Default tombolo0.
	Link string `json:"link,omitempty"`
	// MTU is the MTU of the link. Default 1420.
	MTU *int `json:"mtu,omitempty"`
	// Overlay4 is the pool of IPv4 addresses of the mesh, or none. Default 100.112.0.0/12.
	Overlay4 string `json:"overlay4,omitempty"`
	// Marks are the bits of packet marks. Default 0x20, 0x40 and 0x60.
	Marks MeshMarks `json:"marks,omitempty"`
	// Table is the routing table of the mesh. Default 180.
	Table *int `json:"table,omitempty"`
	// Rule is the priority of the first of two routing rules. Default 32500.
	Rule *int `json:"rule,omitempty"`
	// Filter is the name of the nftables table. Default tombolo_mesh.
	Filter string `json:"filter,omitempty"`
	// Bypass sends packets for peers that are down in clear.
	Bypass bool `json:"bypass,omitempty"`
	// Keep leaves routes and rules in place at a stop, so that no packet for a peer is sent in clear.
	Keep bool `json:"keep,omitempty"`
	// Accept are the ranges within which peers may have theirs. Default private, shared
	// and unique local addresses.
	Accept []string `json:"accept,omitempty"`
	// Exclude are ranges that this node does not send into the mesh, whichever peer has them.
	Exclude []string `json:"exclude,omitempty"`
	// Masquerade are ranges beside this node whose packets it passes on into the mesh under its own overlay address. Peers
	// see that address, and open nothing towards those ranges. Default none.
	Masquerade []string `json:"masquerade,omitempty"`
	// ClosedFor is how long packets for ranges of a member that is no longer heard of are lost
	// instead of sent in clear. Default 168h.
	ClosedFor Duration `json:"closedFor,omitempty"`
	// Shared announces ranges that another member has already: one of the two gets the packets.
	Shared bool `json:"shared,omitempty"`
	// Policies are files of kind AccessPolicy: who may reach what between peers.
	Policies []string `json:"policies,omitempty"`
	// LazyAbove is the number of members above which peers without traffic stay idle. Default 50.
	LazyAbove *int `json:"lazyAbove,omitempty"`
	// Engine is userspace, kernel, auto (the kernel's where it has one, else userspace), or ipsec. Default userspace.
	Engine string `json:"engine,omitempty"`
	// IPsec is for engine ipsec.
	IPsec MeshIPsec `json:"ipsec,omitempty"`
	// Offloads turns kernel offloads off.
	Offloads MeshOffloads `json:"offloads,omitempty"`
	// PortMapping asks the router to forward the port. Default true.
	PortMapping *bool `json:"portMapping,omitempty"`
	// STUN are further STUN servers, host:port, in addition to hubs and discovery services.
	STUN []string `json:"stun,omitempty"`
	// Without are patterns of interfaces whose addresses are not announced. Default: those
	// of containers and overlays.
	Without []string `json:"without,omitempty"`
	// Join is a line of 'tombolo token create --node', or @FILE with it.
	Join string `json:"join,omitempty"`
	// Hubs are host:port, instead of those of the line.
	Hubs []string `json:"hubs,omitempty"`
	// Proxy is the URL of an HTTP proxy to the hubs, none, or environment. Default environment:
	// HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy string `json:"proxy,omitempty"`
	// ProxyFile holds the proxy's URL instead, mode 0600, for a URL with a password.
	ProxyFile string `json:"proxyFile,omitempty"`
}

// MeshIPsec is how packets travel with engine ipsec.
type MeshIPsec struct {
	// Cipher is aes-256-gcm or chacha20-poly1305: of what this node sends. Default aes-256-gcm.
	Cipher string `json:"cipher,omitempty"`
	// Port is the UDP port of ESP. Default 4500.
	Port *int `json:"port,omitempty"`
	// ESP is auto, without UDP where packets of protocol 50 pass, or udp. Default udp.
	ESP string `json:"esp,omitempty"`
	// Only has nodes that do not run ipsec not be reached, instead of by WireGuard.
	Only bool `json:"only,omitempty"`
}

// MeshMarks are the marks of packets.
type MeshMarks struct {
	// Own is the mark of packets from WireGuard's socket.
	Own Mark `json:"own,omitempty"`
	// Mesh is the mark of packets that go into the mesh.
	Mesh Mark `json:"mesh,omitempty"`
	// Mask are the bits that the mesh uses.
	Mask Mark `json:"mask,omitempty"`
}

// MeshOffloads default to true: an offload that does not work is turned off automatically.
type MeshOffloads struct {
	UDPGSO *bool `json:"udpGSO,omitempty"`
	UDPGRO *bool `json:"udpGRO,omitempty"`
	TUNTSO *bool `json:"tunTSO,omitempty"`
	TUNGRO *bool `json:"tunGRO,omitempty"`
}

// Mark is a value for some bits of a packet's mark, written 0x20 or 32.
type Mark uint32

// UnmarshalText reads a number from 1, hexadecimal after 0x, else decimal. An empty text is an
// error: the default applies only to a field that is left out.
func (m *Mark) UnmarshalText(text []byte) error {
	digits, base := string(text), 10
	if hex, ok := strings.CutPrefix(digits, "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n == 0 || base == 10 && digits[0] == '0' {
		return fmt.Errorf("%q is no mark: 0x1 to 0xffffffff are", text)
	}
	*m = Mark(n)
	return nil
}

// MarshalText writes it in hexadecimal.
func (m Mark) MarshalText() ([]byte, error) { return []byte(fmt.Sprintf("%#x", uint32(m))), nil }
