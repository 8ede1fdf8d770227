// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// The files of a node in its state directory, beside those of discovery.
const (
	keyFile         = "wireguard.key" // base64, as wg genkey writes it
	overlayFile     = "overlay"       // the addresses that were chosen
	podsFile        = "pods"          // what Kubernetes has reported about this node's pods
	knownRangesFile = "ranges"        // of the members, for when they are silent
)

// key is a private key in the forms in which others want it. The zero value is none.
type key struct {
	raw    [32]byte
	secret tunnel.Secret
	proof  seal.WireGuardPrivate
	public member.Key
}

func (k key) isZero() bool { return k.secret.IsZero() }

func (k key) String() string { return k.public.String() }

// GoString shows nothing of the key either.
func (k key) GoString() string { return k.String() }

func newKey(raw [32]byte) (key, error) {
	proof, err := seal.NewWireGuardPrivate(raw)
	if err != nil {
		return key{}, err
	}
	return key{raw: raw, secret: tunnel.NewSecret(raw), proof: proof, public: proof.Public()}, nil
}

func drawKey() (key, error) {
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return key{}, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	raw[0] &= 248 // as wg genkey does it (RFC 7748 section 5)
	raw[31] = raw[31]&127 | 64
	return newKey(raw)
}

func (k key) encode() []byte { return []byte(base64.StdEncoding.EncodeToString(k.raw[:]) + "\n") }

// private is the key as crypto/ecdh has it.
func (k key) private() (*ecdh.PrivateKey, error) {
	p, err := ecdh.X25519().NewPrivateKey(k.raw[:])
	if err != nil {
		return nil, fault.New(fault.CodeInternal, "the node's key is none of X25519").Because(err)
	}
	return p, nil
}

// readKey reads the node's key, or draws one at the first start.
func readKey(dir string) (key, error) {
	path := filepath.Join(dir, keyFile)
	text, err := private.ReadState(path, limit.PrivateFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k, err := drawKey()
		if err != nil {
			return key{}, err
		}
		return k, writeKey(path, k)
	case fault.Has(err, fault.CodeSecret):
		return key{}, err
	case err != nil:
		return key{}, fault.New(fault.CodeStateAccess, "the node's key is not read").Because(err).
			Hint("run as the user that owns %s", path)
	}
	return parseKey(path, text)
}

func parseKey(path string, text []byte) (key, error) {
	broken := fault.New(fault.CodeStateCorrupt, "the node's key in "+path+" cannot be read").
		Whyf("it is not one line as 'wg genkey' writes it").
		Hint("put it back from a backup; or remove the file: the node then draws a new key, and the others learn it")
	raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != 32 {
		return key{}, broken
	}
	k, err := newKey([32]byte(raw))
	if err != nil || k.raw == [32]byte{} {
		return key{}, broken
	}
	return k, nil
}

func writeKey(path string, k key) error { return written(path, store.Write(path, k.encode())) }

func written(path string, err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.CodeStateAccess, "the state of the node is not written").Because(err).
		Hint("see that there is room and permission for %s", path)
}
