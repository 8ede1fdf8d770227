// SPDX-License-Identifier: Apache-2.0

// Package datagram carries datagrams on a stream: each behind its length, which takes two bytes, big-endian. Nobody
// waits for a datagram that was lost, and so none waits for room: what does not fit is dropped by whoever reads the
// network, and the order is kept. It does not know what is in a datagram, and has no socket.
package datagram

import (
	"encoding/binary"
	"errors"
)

// Most bounds a datagram, in bytes: the largest that UDP has over IPv4 (RFC 768, RFC 791).
const Most = 65_507

const head = 2

// errLarge is the answer to a datagram that is too large.
var errLarge = errors.New("the datagram has more than 65507 bytes")

// Append appends a datagram to buf as it is on a stream.
func Append(buf, d []byte) ([]byte, error) {
	if len(d) > Most {
		return buf, errLarge
	}
	h := Head(len(d))
	return append(append(buf, h[:]...), d...), nil
}

// Head stands in front of a datagram of n bytes, which are at most Most.
func Head(n int) (h [head]byte) {
	binary.BigEndian.PutUint16(h[:], uint16(n))
	return h
}

// Splitter finds the datagrams in the bytes of a stream, however these are cut. The zero value is at the beginning.
type Splitter struct {
	rest []byte // of a datagram that has not come whole
}

// Split calls emit with each datagram that b completes, which is valid until it returns. It stops at the first error.
func (s *Splitter) Split(b []byte, emit func(d []byte) error) error {
	for len(b) > 0 {
		if len(s.rest) == 0 { // as a rule the whole datagram is here
			if d, n := whole(b); d != nil {
				if err := emit(d); err != nil {
					return err
				}
				b = b[n:]
				continue
			}
		}
		take := head - len(s.rest)
		if take <= 0 {
			take = head + int(binary.BigEndian.Uint16(s.rest)) - len(s.rest)
		}
		take = min(take, len(b))
		s.rest, b = append(s.rest, b[:take]...), b[take:]
		if len(s.rest) < head {
			continue
		}
		if binary.BigEndian.Uint16(s.rest) > Most {
			return errLarge
		}
		if d, _ := whole(s.rest); d != nil {
			err := emit(d)
			if s.rest = s.rest[:0]; cap(s.rest) > small {
				s.rest = nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// small is what a flow may keep for its next datagram.
const small = 4 << 10

// whole is the datagram at the beginning of b, with the bytes that it takes; nil if it is not all there, or too large.
func whole(b []byte) (d []byte, n int) {
	if len(b) < head {
		return nil, 0
	}
	n = head + int(binary.BigEndian.Uint16(b))
	if len(b) < n || n > head+Most {
		return nil, 0
	}
	return b[head:n:n], n
}
