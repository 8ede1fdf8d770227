// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/ecdh"
	"crypto/ed25519"
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
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// The files of a node in its state directory, beside those of discovery.
const (
	keyFile         = "wireguard.key" // base64, as wg genkey writes it
	certificateFile = "ipsec.key"     // base64, the private key of the certificate (RFC 8032 section 5.1.5)
	numbersFile     = "ipsec.numbers" // base64, the secret from which IPsec's numbers of peers are made
	overlayFile     = "overlay"       // the addresses that were chosen
	podsFile        = "pods"          // what Kubernetes has reported about this node's pods
	knownRangesFile = "ranges"        // of the members, for when they are silent
)

// key is a private key in the forms in which others want it, with that of the node's certificate. The zero value is
// none.
type key struct {
	raw         [32]byte
	secret      tunnel.Secret
	proof       seal.WireGuardPrivate
	public      member.Key
	certificate certificate
}

// certificate is the private key of the one by which others know this node in IPsec, and its pin.
type certificate struct {
	signer tunnel.Signer
	pin    member.Pin
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

func newCertificate(seed [32]byte) (certificate, error) {
	private := ed25519.NewKeyFromSeed(seed[:])
	id, err := keyexchange.NewIdentity(private)
	if err != nil {
		return certificate{}, err
	}
	return certificate{tunnel.NewSigner(private), id.Pin()}, nil
}

// draw gives 32 random bytes.
func draw() (raw [32]byte, err error) {
	if _, err := rand.Read(raw[:]); err != nil {
		return raw, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return raw, nil
}

// drawKey makes a key and a certificate.
func drawKey() (key, error) {
	raw, err := draw()
	if err != nil {
		return key{}, err
	}
	raw[0] &= 248 // as wg genkey does it (RFC 7748 section 5)
	raw[31] = raw[31]&127 | 64
	k, err := newKey(raw)
	if err != nil {
		return key{}, err
	}
	k.certificate, err = drawCertificate()
	return k, err
}

func drawCertificate() (certificate, error) {
	seed, err := draw()
	if err != nil {
		return certificate{}, err
	}
	return newCertificate(seed)
}

// private is the key as crypto/ecdh has it.
func (k key) private() (*ecdh.PrivateKey, error) {
	p, err := ecdh.X25519().NewPrivateKey(k.raw[:])
	if err != nil {
		return nil, fault.New(fault.CodeInternal, "the node's key is none of X25519").Because(err)
	}
	return p, nil
}

// readKey reads the keys of this node, or draws them. Without its WireGuard key the certificate is a new one too: a
// copied machine from which that key is removed must not have the other one either. A certificate alone is missing
// where an older version has made the state.
func readKey(dir string) (key, error) {
	raw, err := readSeed(filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		k, err := drawKey()
		if err != nil {
			return key{}, err
		}
		return k, k.write(dir)
	}
	if err != nil {
		return key{}, err
	}
	k, err := newKey(raw)
	if err != nil {
		return key{}, broken(filepath.Join(dir, keyFile))
	}
	path := filepath.Join(dir, certificateFile)
	seed, err := readSeed(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if k.certificate, err = drawCertificate(); err == nil {
			err = k.certificate.write(dir)
		}
	case err == nil:
		k.certificate, err = newCertificate(seed)
	}
	if err != nil {
		return key{}, err
	}
	return k, nil
}

// readNumbers reads the secret from which numbers of peers are made, or draws it. It stays when keys change: by their
// numbers a node finds what it has in the kernel.
func readNumbers(dir string) (raw [32]byte, err error) {
	path := filepath.Join(dir, numbersFile)
	if raw, err = readSeed(path); !errors.Is(err, fs.ErrNotExist) {
		return raw, err
	}
	if raw, err = draw(); err != nil {
		return raw, err
	}
	return raw, writeSeed(path, raw[:])
}

// readSeed reads a file with a private key. The error of one that is not there is fs.ErrNotExist.
func readSeed(path string) (raw [32]byte, err error) {
	text, err := private.ReadState(path, limit.PrivateFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), fault.Has(err, fault.CodeSecret):
		return raw, err
	case err != nil:
		return raw, fault.New(fault.CodeStateAccess, "the node's key is not read").Because(err).
			Hint("run as the user that owns %s", path)
	}
	return parseSeed(path, text)
}

func parseSeed(path string, text []byte) (raw [32]byte, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != len(raw) || [32]byte(b) == raw {
		return raw, broken(path)
	}
	return [32]byte(b), nil
}

func broken(path string) *fault.Fault {
	return fault.New(fault.CodeStateCorrupt, "the node's key in "+path+" cannot be read").
		Whyf("it is not one line with 32 bytes in base64").
		Hint("put it back from a backup; or remove the file: the node then draws a new key, and the others learn it")
}

// write has both keys on disk. Of two starts that are cut short in between the second one draws both again.
func (k key) write(dir string) error {
	if err := k.certificate.write(dir); err != nil {
		return err
	}
	return writeSeed(filepath.Join(dir, keyFile), k.raw[:])
}

func (c certificate) write(dir string) error {
	return writeSeed(filepath.Join(dir, certificateFile), c.signer.Get().Seed())
}

func writeSeed(path string, raw []byte) error {
	return written(path, store.Write(path, encodeSeed(raw)))
}

func encodeSeed(raw []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(raw) + "\n") }

func written(path string, err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.CodeStateAccess, "the state of the node is not written").Because(err).
		Hint("see that there is room and permission for %s", path)
}
