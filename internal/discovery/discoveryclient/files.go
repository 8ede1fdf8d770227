// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// The files of the state directory.
const (
	keyFile     = "member.key"
	versionFile = "member.version"
	cacheFile   = "members.cache"
)

// ReadSecret reads the cluster's secret from a file that others cannot read.
func ReadSecret(file string) (seal.Secret, error) {
	text, err := readPrivate(file)
	if err != nil {
		return seal.Secret{}, err
	}
	s, err := seal.ParseSecret(text)
	if f := fault.From(err); f != nil {
		f.What = "the cluster's secret in " + file + " cannot be read" // of several files the one
		return seal.Secret{}, f
	}
	return s, nil
}

// readPrivate reads a file that others cannot read.
func readPrivate(file string) (string, error) {
	return readable(file, private.Read)
}

// readState reads a file of the state directory.
func readState(file string) (string, error) { return readable(file, private.ReadState) }

func readable(file string, read func(path string, most int) ([]byte, error)) (string, error) {
	data, err := read(file, limit.KeyFile)
	if err == nil || fault.Has(err, fault.CodeSecret) {
		return string(data), err
	}
	return "", fault.Newf(fault.CodeSecret, "the file %s cannot be read", file).Because(err).
		Hint("correct its path or its rights")
}

// lastVersion reads the version that was announced last. A damaged file is none:
// the clock gives a version, and a service that knows a newer one says so.
func lastVersion(dir string) uint64 {
	text, err := readState(filepath.Join(dir, versionFile))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil || n >= lastVersionEver { // none follows it: it is no member's own
		return 0
	}
	return n
}

func keepVersion(dir string, version uint64) error {
	return writeFile(filepath.Join(dir, versionFile), strconv.AppendUint(nil, version, 10))
}

// writeFile replaces a file of the state directory.
func writeFile(path string, data []byte) error { return writeFileBy(path, data, noCrash) }

// step is called before each step of a write: a test ends the process there.
type step = func(what string)

func noCrash(string) {}

func writeFileBy(path string, data []byte, at step) error {
	if err := store.WriteBy(path, data, at); err != nil {
		return fault.Newf(fault.CodeStateAccess, "%s cannot be written", path).Because(err).
			Hint("create %s for this user (uid %d) with free space, or choose another with node.stateDir", filepath.Dir(path),
				os.Getuid())
	}
	return nil
}
