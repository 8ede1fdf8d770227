// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"io"

	"github.com/tombolo-io/tombolo/internal/fault"
)

// SealCache seals what a node keeps on its own disk, so that the file tells
// nothing to who does not have the secret. Random is 12 bytes from rand, which
// must never repeat: use crypto/rand.
func (k Keys) SealCache(rand io.Reader, plain []byte) ([]byte, error) {
	out := make([]byte, nonceSize, len(plain)+overhead)
	if _, err := io.ReadFull(rand, out); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return k.get().cache.Seal(out, out, plain, cacheLabel()), nil
}

// OpenCache opens what SealCache sealed, and reports false for anything else.
func (k Keys) OpenCache(sealed []byte) ([]byte, bool) {
	if len(sealed) < overhead {
		return nil, false
	}
	plain, err := k.get().cache.Open(nil, sealed[:nonceSize], sealed[nonceSize:], cacheLabel())
	return plain, err == nil
}

func cacheLabel() []byte { return message("tombolo discovery cache 1") }
