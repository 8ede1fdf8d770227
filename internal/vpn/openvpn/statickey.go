// SPDX-License-Identifier: Apache-2.0

package openvpn

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// StaticKey is the size of a static key in bytes.
const StaticKey = 256

const (
	keyBegin = "-----BEGIN OpenVPN Static key V1-----"
	keyEnd   = "-----END OpenVPN Static key V1-----"
	keyLine  = 16 // bytes
)

// WriteStaticKey writes a key as OpenVPN has it in a file for tls-auth and tls-crypt.
func WriteStaticKey(key [StaticKey]byte) []byte {
	var b bytes.Buffer
	b.WriteString("#\n# 2048 bit OpenVPN static key\n#\n" + keyBegin + "\n")
	for line := range StaticKey / keyLine {
		b.WriteString(hex.EncodeToString(key[line*keyLine:(line+1)*keyLine]) + "\n")
	}
	b.WriteString(keyEnd + "\n")
	return b.Bytes()
}

// CheckStaticKey says what is wrong with the file of a key. It never shows any of it.
func CheckStaticKey(data []byte) error {
	_, rest, found := strings.Cut(string(data), keyBegin)
	body, _, ended := strings.Cut(rest, keyEnd)
	if !found || !ended {
		return fmt.Errorf("it holds no OpenVPN static key")
	}
	text := strings.Join(strings.Fields(body), "")
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != StaticKey {
		return fmt.Errorf("its OpenVPN static key is damaged: %d hexadecimal digits are expected", 2*StaticKey)
	}
	return nil
}
