// SPDX-License-Identifier: Apache-2.0

// Package proxyheader reads and writes the header of the PROXY protocol, by which a load
// balancer tells where a connection comes from (HAProxy, proxy-protocol.txt). It does not
// decide whom to believe: the reader takes a header from those that it trusts alone.
package proxyheader

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The bounds of a PROXY protocol header (HAProxy, proxy-protocol.txt sections 2.1 and 2.2).
const (
	mostV1 = 107
	mostV2 = 4 << 10 // 16 bytes, addresses, and what load balancers add as TLVs
)

var signatureV2 = [12]byte{'\r', '\n', '\r', '\n', 0, '\r', '\n', 'Q', 'U', 'I', 'T', '\n'}

// Read reads the header that a trusted load balancer sends first: the client's
// address, and how many bytes the header has. need says how many are missing at least.
// peer is the load balancer itself, whose health checks say LOCAL or UNKNOWN.
func Read(b []byte, peer netip.AddrPort) (client netip.AddrPort, size, need int, err error) {
	size, need, err = frame(b)
	if err != nil || need > 0 {
		return netip.AddrPort{}, 0, need, err
	}
	h, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b[:size])))
	if err != nil {
		return netip.AddrPort{}, 0, 0, Refuse("it cannot be read")
	}
	if h.Command.IsLocal() || h.TransportProtocol.IsUnspec() {
		return peer, size, 0, nil
	}
	from, _, ok := h.TCPAddrs()
	if !ok {
		return netip.AddrPort{}, 0, 0, Refuse("it is about no TCP connection")
	}
	at := from.AddrPort()
	if !at.Addr().IsValid() {
		return netip.AddrPort{}, 0, 0, Refuse("it has no client address")
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), size, 0, nil
}

// frame finds the end of the header: the library is given exactly its bytes.
func frame(b []byte) (size, need int, err error) {
	if len(b) == 0 {
		return 0, len("PROXY UNKNOWN\r\n"), nil // the shortest: nothing behind it is asked for
	}
	if n := min(len(b), len(signatureV2)); bytes.Equal(b[:n], signatureV2[:n]) {
		if len(b) < 16 {
			return 0, 16 - len(b), nil
		}
		size = 16 + int(binary.BigEndian.Uint16(b[14:]))
		switch {
		case size > mostV2:
			return 0, 0, Refuse("it is too large")
		case len(b) < size:
			return 0, size - len(b), nil
		}
		return size, 0, nil
	}
	const v1 = "PROXY "
	if n := min(len(b), len(v1)); string(b[:n]) != v1[:n] {
		return 0, 0, Refuse("the load balancer sent none")
	}
	switch end := bytes.Index(b[:min(len(b), mostV1)], []byte("\r\n")); {
	case end >= 0:
		return end + 2, 0, nil
	case len(b) >= mostV1:
		return 0, 0, Refuse("it is too large")
	}
	return 0, 1, nil
}

// Begins reports whether the first 5 bytes, or more, are those of a header: what an untrusted client may not send.
func Begins(b []byte) bool {
	return bytes.HasPrefix(b, []byte("PROXY")) || len(b) >= 5 && bytes.HasPrefix(b, signatureV2[:5])
}

// Refuse is the fault of a header that is missing, malformed or from somebody who may not send one.
func Refuse(why string) *fault.Fault {
	return fault.New(fault.CodeProxyHeader, "the PROXY protocol header is refused").Whyf("%s", why).
		Hint("check the load balancer, and proxyProtocol.from here")
}

// Local is the header of a connection of one's own, on behalf of no client.
func Local() []byte { return append(signatureV2[:], 0x20, 0, 0, 0) }

// Format renders the header for an upstream, in version 1 or 2.
func Format(version byte, client, edge netip.AddrPort) ([]byte, error) {
	from, to := net.TCPAddrFromAddrPort(client), net.TCPAddrFromAddrPort(edge)
	return proxyproto.HeaderProxyFromAddrs(version, from, to).Format()
}
