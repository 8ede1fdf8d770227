// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
)

// OpenESP is what a packet of ESP in UDP has within (RFC 4303, RFC 4106), if it is of one of the states; the upper half
// of its sequence number is 0. Nil: it cannot be decrypted.
func OpenESP(frame []byte, keys map[uint32][]byte) (spi uint32, plain []byte) {
	var udp []byte
	switch {
	case len(frame) > 14+20 && frame[12] == 0x08 && frame[13] == 0 && frame[14+9] == 17:
		udp = frame[14+20:]
	case len(frame) > 14+40 && frame[12] == 0x86 && frame[13] == 0xdd && frame[14+6] == 17:
		udp = frame[14+40:]
	}
	if len(udp) < 8+8+8+16 {
		return 0, nil
	}
	if size := int(udp[4])<<8 | int(udp[5]); size >= 8+8+8+16 && size <= len(udp) {
		udp = udp[:size]
	}
	esp := udp[8:]
	spi = uint32(esp[0])<<24 | uint32(esp[1])<<16 | uint32(esp[2])<<8 | uint32(esp[3])
	key := keys[spi]
	if key == nil {
		return spi, nil
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		return spi, nil
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return spi, nil
	}
	nonce := append(bytes.Clone(key[32:]), esp[8:16]...)
	about := append(append(bytes.Clone(esp[:4]), 0, 0, 0, 0), esp[4:8]...)
	plain, err = gcm.Open(nil, nonce, esp[16:], about)
	if err != nil {
		return spi, nil
	}
	return spi, plain
}
