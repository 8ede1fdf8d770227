// SPDX-License-Identifier: Apache-2.0

package disco

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Kind is what a packet of the socket is, by its first bytes.
type Kind uint8

// The kinds.
const (
	Unknown Kind = iota
	WireGuard
	STUN
	Probe
	IPsec // with its mark: by a relay alone
)

// KindOf returns the kind of a packet, which need not be valid.
func KindOf(b []byte) Kind {
	switch {
	case len(b) < 4:
		return Unknown
	case b[0] >= 1 && b[0] <= 4 && b[1]|b[2]|b[3] == 0:
		return WireGuard // a STUN message of these bytes would have no method
	case binary.BigEndian.Uint32(b) == magic:
		return Probe
	case string(b[:4]) == IPsecMark:
		return IPsec
	case len(b) >= 20 && b[0]>>6 == 0 && binary.BigEndian.Uint32(b[4:]) == 0x2112a442: // RFC 8489 section 5
		return STUN
	}
	return Unknown
}

// magic begins each probe: no type of WireGuard, and not the zero bits of STUN.
const magic = 0xf5544201

// IPsecMark is in front of what nodes with IPsec send each other by a relay: ESP, or the handshakes for its keys behind
// RFC 3948's marker. ESP itself begins with a number, which may be any.
const IPsecMark = "\xf5TBE"

// Message is a probe's payload: exactly one of its fields is there.
type Message struct {
	Ping *Ping
	Pong *Pong
	Call *Call
	// Trial goes by protocol 50 alone, sealed by a Pair of its own (NewTrialPair).
	Trial *Trial
}

// Trial asks whether packets of protocol 50 pass without UDP, or answers.
type Trial struct {
	ID     uint64
	Answer bool
	// Rests says that the sender wants no ESP without UDP for now.
	Rests bool
	// Heard is how many packets of ESP without UDP the sender has received of the receiver.
	Heard uint64
}

// Ping asks for a pong by the way that it came.
type Ping struct {
	ID     uint64
	Wanted bool // the sender has traffic with the receiver
	// Asks says that the receiver answers no handshake of the sender, and may begin one itself.
	Asks bool
	// Alone says that the sender, a gateway of its cluster, reaches no other node of it.
	Alone bool
}

// Pong answers a ping.
type Pong struct {
	ID   uint64
	From netip.AddrPort // where the ping came from
	Size uint16         // of the UDP payload that came, in bytes
	// Wanted says that the sender has traffic with the receiver: a restarted node learns from the
	// first answer that its peer waits for a session.
	Wanted bool
	Alone  bool // as in a ping
}

// Call says: I ping you now at all that you have, do so at these.
type Call struct {
	Endpoints []netip.AddrPort // at most limit.PathCalledAt
}

// The types of messages, and the lengths of their bodies.
const (
	typePing = 1
	typePong = 2
	typeCall = 3
	// typeTrial is not known to nodes of a release before, which hear nothing of protocol 50.
	typeTrial = 4

	flagWanted = 1
	flagAsks   = 2
	flagAlone  = 4
	flagAnswer = 1 // of a trial
	flagRests  = 2

	sizePing  = 8 + 1
	sizePong  = 8 + sizeAddr + 2 // without flags, which came later
	sizeTrial = 8 + 1 + 8
	sizeAddr  = 16 + 2
	pingZeros = 30 // so that no answer is longer than what it answers
)

// append writes the message; fill is how long it is at least.
func (m Message) append(b []byte, fill int) []byte {
	began := len(b)
	switch {
	case m.Ping != nil:
		b = append(b, typePing)
		b = binary.BigEndian.AppendUint64(b, m.Ping.ID)
		b = append(b, flags(m.Ping.Wanted, m.Ping.Asks, m.Ping.Alone))
		fill = max(fill, 1+sizePing+pingZeros)
	case m.Pong != nil:
		b = append(b, typePong)
		b = binary.BigEndian.AppendUint64(b, m.Pong.ID)
		b = appendAddr(b, m.Pong.From)
		b = binary.BigEndian.AppendUint16(b, m.Pong.Size)
		b = append(b, flags(m.Pong.Wanted, false, m.Pong.Alone))
	case m.Call != nil:
		all := m.Call.Endpoints[:min(len(m.Call.Endpoints), limit.PathCalledAt)]
		b = append(b, typeCall, byte(len(all)))
		for _, at := range all {
			b = appendAddr(b, at)
		}
	case m.Trial != nil:
		b = append(b, typeTrial)
		b = binary.BigEndian.AppendUint64(b, m.Trial.ID)
		var f byte
		if m.Trial.Answer {
			f |= flagAnswer
		}
		if m.Trial.Rests {
			f |= flagRests
		}
		b = binary.BigEndian.AppendUint64(append(b, f), m.Trial.Heard)
	}
	for len(b)-began < fill {
		b = append(b, 0)
	}
	return b
}

func flags(wanted, asks, alone bool) (f byte) {
	if wanted {
		f |= flagWanted
	}
	if asks {
		f |= flagAsks
	}
	if alone {
		f |= flagAlone
	}
	return f
}

func appendAddr(b []byte, at netip.AddrPort) []byte {
	a := at.Addr()
	if !a.IsValid() {
		a = netip.IPv6Unspecified()
	}
	raw := a.As16()
	return binary.BigEndian.AppendUint16(append(b, raw[:]...), at.Port())
}

// parse reads a payload. One of an unknown type is no error, and no message.
func parse(b []byte) (m Message, err error) {
	if len(b) == 0 {
		return m, fmt.Errorf("a probe without a type")
	}
	body := b[1:]
	switch b[0] {
	case typePing:
		if len(body) < sizePing+pingZeros {
			return m, fmt.Errorf("a ping of %d bytes: its answer would be longer", len(body))
		}
		m.Ping = &Ping{ID: binary.BigEndian.Uint64(body), Wanted: body[8]&flagWanted != 0, Asks: body[8]&flagAsks != 0,
			Alone: body[8]&flagAlone != 0}
		if m.Ping.ID == 0 {
			return Message{}, fmt.Errorf("a ping without an id")
		}
	case typePong:
		if len(body) < sizePong {
			return m, fmt.Errorf("a pong of %d bytes, not %d", len(body), sizePong)
		}
		m.Pong = &Pong{ID: binary.BigEndian.Uint64(body), Size: binary.BigEndian.Uint16(body[8+sizeAddr:])}
		if len(body) > sizePong {
			m.Pong.Wanted, m.Pong.Alone = body[sizePong]&flagWanted != 0, body[sizePong]&flagAlone != 0
		}
		if m.Pong.From, err = parseAddr(body[8:]); err != nil && body[8+sizeAddr-1]|body[8+sizeAddr-2] != 0 {
			return Message{}, err // without a port it came through a relay, and there is no address
		}
	case typeCall:
		return parseCall(body)
	case typeTrial:
		if len(body) < sizeTrial {
			return m, fmt.Errorf("a trial of %d bytes, not %d", len(body), sizeTrial)
		}
		m.Trial = &Trial{ID: binary.BigEndian.Uint64(body), Answer: body[8]&flagAnswer != 0,
			Rests: body[8]&flagRests != 0, Heard: binary.BigEndian.Uint64(body[9:])}
	}
	return m, nil
}

func parseCall(body []byte) (Message, error) {
	if len(body) < 1 || int(body[0]) > limit.PathCalledAt || len(body) < 1+int(body[0])*sizeAddr {
		return Message{}, fmt.Errorf("a call of %d bytes with a wrong number of endpoints", len(body))
	}
	call := &Call{}
	for i := range int(body[0]) {
		at, err := parseAddr(body[1+i*sizeAddr:])
		if err != nil {
			return Message{}, err
		}
		call.Endpoints = append(call.Endpoints, at)
	}
	return Message{Call: call}, nil
}

// parseAddr refuses what cannot be the address of one machine.
func parseAddr(b []byte) (netip.AddrPort, error) {
	a := netip.AddrFrom16([16]byte(b[:16])).Unmap()
	at := netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[16:]))
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || at.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("%v is not where one machine is reached", at)
	}
	return at, nil
}
