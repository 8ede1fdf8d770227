// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// Cipher is what encrypts and authenticates packets.
type Cipher int

// The ciphers: both have keys of 256 bits and a salt of 32, which KeyBytes together are.
const (
	AES    Cipher = iota // AES-256-GCM with a check value of 16 bytes (RFC 4106)
	ChaCha               // ChaCha20-Poly1305 (RFC 7634)
)

func (c Cipher) String() string {
	if c == ChaCha {
		return "chacha20-poly1305"
	}
	return "aes-256-gcm"
}

// Kernel is the kernel's name of it.
func (c Cipher) Kernel() string {
	if c == ChaCha {
		return "rfc7539esp(chacha20,poly1305)"
	}
	return "rfc4106(gcm(aes))"
}

// KeyBytes are those of a key with its salt.
const KeyBytes = 32 + 4

// Key is one direction's. It prints as nothing.
type Key struct{ secret.Value[[KeyBytes]byte] }

// NewKey keeps a key.
func NewKey(b [KeyBytes]byte) Key { return Key{secret.Hide(&b)} }

// Name is how the kernel finds a state when a packet comes: the receiver of the packet chooses the SPI.
type Name struct {
	To  netip.Addr
	SPI uint32 // at least 256: those below are reserved (RFC 4303 section 2.1)
}

// Limits are how much a state may do: then it is gone, and packets are dropped. Zero: no limit.
type Limits struct {
	Bytes, Packets uint64
	Age            time.Duration
}

// State is one direction of a tunnel.
type State struct {
	Name
	Peer   uint32 // whose it is
	From   netip.Addr
	Cipher Cipher
	Key    Key
	// FromPort and ToPort are those of ESP in UDP (RFC 3948). Zero: ESP has IP's protocol 50.
	FromPort, ToPort uint16
	// Sends says that packets leave by it, with the mark of the link. Those that come are to be routed by their inner
	// addresses.
	Sends  bool
	Limits Limits
}

// Seen is what the kernel has of a state.
type Seen struct {
	Name
	Peer           uint32
	From           netip.Addr
	UDP            bool
	Sends          bool // packets leave by it, as the mark of the link says; false where the link has none
	Bytes, Packets uint64
	Replayed       uint32 // packets that came twice
	Late           uint32 // packets that came behind the window
	Forged         uint32 // packets that were not what their check value says
	Made, Used     time.Time
}
