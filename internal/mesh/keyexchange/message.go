// SPDX-License-Identifier: Apache-2.0

package keyexchange

import (
	"encoding/binary"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// kind is what a message is.
type kind byte

const (
	offer  kind = 1
	answer kind = 2
	done   kind = 3
	// offerRaw is an offer of a tunnel of ESP without UDP.
	offerRaw kind = 4
)

// message is one of an exchange.
type message struct {
	kind  kind
	epoch uint64
	spi   uint32
	life  uint32 // of the sender
}

// messageBytes is the size of each message: kind, epoch, SPI, life, in network order.
const messageBytes = 1 + 8 + 4 + 4

// lowestSPI is the first that is not reserved (RFC 4303 section 2.1).
const lowestSPI = 0x100

func (m message) bytes() []byte {
	b := binary.BigEndian.AppendUint64([]byte{byte(m.kind)}, m.epoch)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, m.spi), m.life)
}

// parse reads a message that has to be of a kind; an offer may be of either.
func parse(b [messageBytes]byte, want kind) (message, error) {
	n := binary.BigEndian
	m := message{kind(b[0]), n.Uint64(b[1:]), n.Uint32(b[9:]), n.Uint32(b[13:])}
	if m.kind != want && (want != offer || m.kind != offerRaw) || m.spi < lowestSPI {
		return m, fault.New(fault.CodeRequest, "a message about keys").
			Whyf("kind %d with SPI %#x, want kind %d with an SPI of at least %#x", m.kind, m.spi, want, lowestSPI)
	}
	return m, nil
}
