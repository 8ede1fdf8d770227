// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/seal"
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
	return seal.ParseSecret(text)
}

// readPrivate reads a file of mode 0600 or less.
func readPrivate(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fault.Newf(fault.CodeSecret, "the file %s cannot be read", file).Because(err).Hint("correct its path or its rights")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fault.Newf(fault.CodeSecret, "the file %s cannot be read", file).Because(err)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return "", fault.Newf(fault.CodeSecret, "the file %s is not used", file).
			Whyf("its mode is %v: others than its owner may use it", mode).Hint("chmod 600 %s; if others may have read it, write a new one", file)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit.FinderKeyFile+1))
	if err != nil || len(data) > limit.FinderKeyFile {
		return "", fault.Newf(fault.CodeSecret, "the file %s cannot be read", file).Because(errors.Join(err, tooLong(len(data), limit.FinderKeyFile)))
	}
	return string(data), nil
}

func tooLong(have, most int) error {
	if have <= most {
		return nil
	}
	return fmt.Errorf("it has more than %d bytes", most)
}

// memberKey reads the member's key, or draws one if there is none yet.
func memberKey(dir string) (seal.MemberKey, error) {
	path := filepath.Join(dir, keyFile)
	text, err := readPrivate(path)
	if err == nil {
		return seal.ParseMemberKey(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return seal.MemberKey{}, err
	}
	key, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		return key, err
	}
	return key, writeFile(path, []byte(key.Encode()+"\n"))
}

// lastVersion reads the version that was announced last. A damaged file is none:
// the clock gives a version, and a service that knows a newer one says so.
func lastVersion(dir string) uint64 {
	text, err := readPrivate(filepath.Join(dir, versionFile))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

func keepVersion(dir string, version uint64) error {
	return writeFile(filepath.Join(dir, versionFile), strconv.AppendUint(nil, version, 10))
}

// writeFile puts a file of mode 0600 into the place of the old one, at once and
// for good, or leaves all as it was.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	defer func() {
		if err != nil {
			err = fault.Newf(fault.CodeStateAccess, "%s cannot be written", path).Because(err).
				Hint("create %s for this user (uid %d) with free space, or choose another with node.stateDir", dir, os.Getuid())
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
