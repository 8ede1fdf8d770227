// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"io"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// SealCache seals what a node keeps on its own disk, so that the file reveals
// nothing without the secret. Random is 12 bytes from rand, which
// must never repeat: use crypto/rand.
func (k Keys) SealCache(rand io.Reader, plain []byte) ([]byte, error) {
	out := make([]byte, nonceSize, len(plain)+overhead)
	if _, err := io.ReadFull(rand, out); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return k.Get().cache.Seal(out, out, plain, cacheLabel()), nil
}

// OpenCache opens what SealCache sealed, and reports false for anything else.
func (k Keys) OpenCache(sealed []byte) ([]byte, bool) {
	if len(sealed) < overhead {
		return nil, false
	}
	plain, err := k.Get().cache.Open(nil, sealed[:nonceSize], sealed[nonceSize:], cacheLabel())
	return plain, err == nil
}

// sealedKey is how long the key of a cache is, sealed with a secret.
const sealedKey = 32 + overhead

// SealCacheFor seals it so that each of several secrets opens it: with a key drawn for
// this once, which stands before it, sealed with each. Random is as for SealCache.
//
//	number of secrets (1) · for each: the key, as SealCache seals it (60) · nonce (12) · ciphertext and tag
func SealCacheFor(rand io.Reader, secrets []Keys, plain []byte) ([]byte, error) {
	drawn := make([]byte, 32+nonceSize)
	if _, err := io.ReadFull(rand, drawn); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	key, nonce := drawn[:32], drawn[32:]
	out := make([]byte, 0, 1+len(secrets)*sealedKey+len(plain)+overhead)
	out = append(out, byte(len(secrets)))
	for _, k := range secrets {
		sealed, err := k.SealCache(rand, key)
		if err != nil {
			return nil, err
		}
		out = append(out, sealed...)
	}
	label := message("tombolo discovery cache 2", out)
	return gcm(key).Seal(append(out, nonce...), nonce, plain, label), nil
}

// OpenCacheFor opens what SealCacheFor sealed with one of several secrets, and reports
// false for anything else.
func OpenCacheFor(secrets []Keys, sealed []byte) ([]byte, bool) {
	if len(sealed) == 0 || len(sealed) < 1+int(sealed[0])*sealedKey+overhead {
		return nil, false
	}
	head, body := sealed[:1+int(sealed[0])*sealedKey], sealed[1+int(sealed[0])*sealedKey:]
	for at := 1; at < len(head); at += sealedKey {
		for _, k := range secrets {
			key, ok := k.OpenCache(head[at : at+sealedKey])
			if !ok {
				continue
			}
			plain, err := gcm(key).Open(nil, body[:nonceSize], body[nonceSize:], message("tombolo discovery cache 2", head))
			return plain, err == nil
		}
	}
	return nil, false
}

func cacheLabel() []byte { return message("tombolo discovery cache 1") }
