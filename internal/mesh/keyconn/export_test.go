// SPDX-License-Identifier: Apache-2.0

package keyconn

// Bounds that tests compare with.
const (
	ConnsUnknown, ConnsOfOne, ConnsTrusted = connsUnknown, connsOfOne, connsTrusted
	ConnWithin, HandshakeWithin            = connWithin, handshakeWithin
	PacketBytes                            = packetBytes
)

// Held are the slots that are taken.
func (p *Port) Held() int {
	p.slots.mu.Lock()
	defer p.slots.mu.Unlock()
	return p.slots.all
}
