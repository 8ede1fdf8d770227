// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
)

// OpenESP is what a packet of ESP has within, in UDP or not (RFC 4303, RFC 4106), if it is of one of the states; the
// upper half of its sequence number is 0. Nil: it cannot be decrypted.
func OpenESP(frame []byte, keys map[uint32][]byte) (spi uint32, plain []byte) {
	esp, _ := ESPWithin(frame)
	if len(esp) < 8+8+16 {
		return 0, nil
	}
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

// ESPWithin is the ESP of a frame, and whether it is without UDP; nil: it has none. What else goes by UDP, or by
// protocol 50, looks the same.
func ESPWithin(frame []byte) (esp []byte, raw bool) {
	var proto byte
	switch {
	case len(frame) > 14+20 && frame[12] == 0x08 && frame[13] == 0:
		size := int(frame[16])<<8 | int(frame[17])
		proto, esp = frame[14+9], frame[14+20:max(14+20, min(len(frame), 14+size))] // short frames are filled
	case len(frame) > 14+40 && frame[12] == 0x86 && frame[13] == 0xdd:
		proto, esp = frame[14+6], frame[14+40:]
	}
	switch {
	case proto == 50:
		return esp, true
	case proto != 17 || len(esp) < 8:
		return nil, false
	}
	if size := int(esp[4])<<8 | int(esp[5]); size >= 8 && size <= len(esp) {
		esp = esp[:size]
	}
	return esp[8:], false
}
