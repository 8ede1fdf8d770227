// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
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
	keyFile         = "wireguard.key"  // base64, as wg genkey writes it
	nextFile        = "wireguard.next" // a new key that takes its place
	overlayFile     = "overlay"        // the addresses that were chosen
	podsFile        = "pods"           // what Kubernetes has said of this node's pods
	knownRangesFile = "ranges"         // of the members, for when they are silent
)

// keys are a node's key pairs: the one in force, and while it is replaced the next one.
type keys struct {
	now, next key
	owed      error // why the one in force is on disk as the next one still; nil: it is in its place
}

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

// readKeys reads the key pair, or draws one at the first start.
func readKeys(dir string) (keys, error) {
	var out keys
	var err error
	if out.now, err = readKey(filepath.Join(dir, keyFile)); err != nil {
		return keys{}, err
	}
	if out.next, err = readKey(filepath.Join(dir, nextFile)); err != nil {
		return keys{}, err
	}
	if out.next.public == out.now.public && !out.now.isZero() { // a crash after the new one had taken its place
		return out.drop(dir)
	}
	if !out.now.isZero() {
		return out, nil
	}
	if out.now, err = drawKey(); err != nil {
		return keys{}, err
	}
	out.next = key{}
	return out, writeKey(filepath.Join(dir, keyFile), out.now)
}

func readKey(path string) (key, error) {
	text, err := private.ReadState(path, limit.PrivateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return key{}, nil
	}
	if fault.Has(err, fault.CodeSecret) {
		return key{}, err
	}
	if err != nil {
		return key{}, fault.New(fault.CodeStateAccess, "the node's key is not read").Because(err).Hint("run as the user that owns %s", path)
	}
	return parseKey(path, text)
}

func parseKey(path string, text []byte) (key, error) {
	broken := fault.New(fault.CodeStateCorrupt, "the node's key in "+path+" cannot be read").Whyf("it is not one line as 'wg genkey' writes it")
	if filepath.Base(path) == nextFile {
		broken = broken.Hint("remove the file: the node goes on with the key that it has, and 'tombolo mesh keys rotate' draws another")
	} else {
		broken = broken.Hint("put it back from a backup; or remove the file: the node then draws a new key, and the others learn it")
	}
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
	return fault.New(fault.CodeStateAccess, "the state of the node is not written").Because(err).Hint("see that there is room and permission for %s", path)
}

// begin keeps a new key that shall take the old one's place. That has to be in its own place
// before: after a crash the one there is announced as what the new one takes the place of.
func (k keys) begin(dir string, next key) (keys, error) {
	k, err := k.place(dir)
	if err != nil {
		return k, err
	}
	if err := writeKey(filepath.Join(dir, nextFile), next); err != nil {
		return k, err
	}
	return keys{now: k.now, next: next}, nil
}

// drop gives up a new key of which nobody has heard.
func (k keys) drop(dir string) (keys, error) {
	next := filepath.Join(dir, nextFile)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return keys{now: k.now}, written(next, err)
	}
	return keys{now: k.now}, nil
}

// end puts the new key into the old one's place. It is in force whatever comes of that; what
// the disk does not take is owed.
func (k keys) end(dir string) (keys, error) { return keys{now: k.next}.put(dir) }

// place puts the key in force into its place on disk if that is owed.
func (k keys) place(dir string) (keys, error) {
	if k.owed == nil {
		return k, nil
	}
	return k.put(dir)
}

// put takes two steps: a crash between them leaves the key in both files.
func (k keys) put(dir string) (keys, error) {
	path := filepath.Join(dir, keyFile)
	err := store.Write(path, k.now.encode())
	if err == nil {
		k, err = k.drop(dir)
	}
	k.owed = nil
	if err != nil {
		k.owed = fault.New(fault.CodeStateAccess, "the new key of this node is in force, and not in its place on disk").Because(err).
			Hint("see that there is room and permission for %s: it is tried again every %v", path, limit.MeshKeep)
	}
	return k, k.owed
}
