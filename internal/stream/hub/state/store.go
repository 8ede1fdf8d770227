// SPDX-License-Identifier: Apache-2.0

// Package state keeps what a hub must remember in one crash-safe file: its CA,
// join tokens, clusters with their WireGuard keys, and the client certificates that it
// issued. Every change is one transaction. It does not decide: token rules are in trust.
package state

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// formatVersion is raised when an older Tombolo could not read the file, or would not
// heed what is in it. Format 1 had no revoked agents.
const formatVersion = 2

const fileName = "hub.db"

// Bucket and key names.
const (
	bucketMeta         = "meta"
	bucketTokens       = "tokens"
	bucketClusters     = "clusters"
	bucketCertificates = "certificates"
	bucketNodes        = "nodes"   // and agents
	bucketRemoved      = "removed" // clusters
	bucketWireGuard    = "wireguard"
	keyFormat          = "format"
	keyCACert          = "ca.crt"
	keyCAKey           = "ca.key"
)

func buckets() []string {
	return []string{bucketMeta, bucketTokens, bucketClusters, bucketCertificates, bucketNodes, bucketRemoved,
		bucketWireGuard}
}

// Cluster is a registered cluster.
type Cluster struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Sockets []string  `json:"sockets"` // protocols that were asked for at run time
	// Backend carries its dials; empty: what the configuration says of clusters that have none of their own.
	Backend string `json:"backend,omitempty"`
}

// Certificate is a client's or operator's certificate that the hub issued.
type Certificate struct {
	Serial   string    `json:"serial"`
	Identity string    `json:"identity"` // SPIFFE URI
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked,omitzero"`
}

// Store is the open file. One process holds it at a time.
type Store struct{ db *bbolt.DB }

// Open opens the state in dir and creates both where they are missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(dir, err)
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(dir); err != nil {
			return nil, err
		}
	}
	return open(path)
}

// create makes an empty state that appears in dir only when it is whole, so that
// a disk that is full leaves none behind. Of two that do so at once the first wins.
func create(dir string) (err error) {
	staging, err := os.MkdirTemp(dir, ".create-")
	if err != nil {
		return unwritable(dir, err)
	}
	defer os.RemoveAll(staging)
	s, err := open(filepath.Join(staging, fileName))
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return unwritable(dir, err)
	}
	err = os.Link(filepath.Join(staging, fileName), filepath.Join(dir, fileName))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return unwritable(dir, err)
	}
	return store.SyncNames(dir)
}

// open opens the file at path, or makes it.
func open(path string) (*Store, error) {
	dir := filepath.Dir(path)
	if err := private.CheckState(path); fault.Has(err, fault.CodeSecret) { // the CA's key is in it
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second, FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) { return openChecked(name, flag, mode) },
	})
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return nil, f
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, corrupt(path, err)
	case err != nil:
		return nil, unwritable(dir, err)
	}
	s := &Store{db}
	if err := s.prepare(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func unwritable(dir string, err error) error {
	return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be used").Because(err).
		Hint("create it for this user (uid %d), or choose another with --state-dir", os.Getuid())
}

func corrupt(path string, err error) error {
	return fault.New(fault.CodeStateCorrupt, "the state file "+path+" cannot be read").Because(err).
		Hint("put it aside and bring back a copy: tombolo hub restore --from FILE")
}

// prepare checks the format and every record of a state, or makes the buckets of a new one.
func (s *Store) prepare(path string) error {
	var format int
	fresh := true
	err := s.db.View(func(tx *bbolt.Tx) error {
		if name, _ := tx.Cursor().First(); name == nil {
			return nil
		}
		fresh = false
		if tx.Bucket([]byte(bucketMeta)) == nil {
			return errors.New("it is not a hub's")
		}
		if found, err := get(tx, bucketMeta, keyFormat, &format); err != nil || !found || format < 1 ||
			format > formatVersion {
			return err
		}
		return checkRecords(tx)
	})
	switch {
	case err != nil:
		return corrupt(path, err)
	case format > formatVersion:
		return fault.Newf(fault.CodeStateVersion, "the state in %s has format %d", path, format).
			Whyf("this release reads up to format %d", formatVersion).Hint("run the newer release, or restore an older backup")
	case fresh:
		err = s.db.Update(func(tx *bbolt.Tx) error {
			for _, name := range buckets() {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return put(tx, bucketMeta, keyFormat, formatVersion)
		})
		if err != nil {
			return unwritable(filepath.Dir(path), err)
		}
	case format < 1:
		return corrupt(path, errors.New("it has no format"))
	default:
		return s.upgrade(path, format)
	}
	return nil
}

// upgrade brings a state of an earlier release to the present form.
func (s *Store) upgrade(path string, format int) error {
	var missing []string
	err := s.db.View(func(tx *bbolt.Tx) error {
		missing = slices.DeleteFunc(buckets(), func(name string) bool { return tx.Bucket([]byte(name)) != nil })
		return nil
	})
	if err == nil && (len(missing) > 0 || format < formatVersion) {
		err = s.db.Update(func(tx *bbolt.Tx) error {
			for _, name := range missing {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return put(tx, bucketMeta, keyFormat, formatVersion)
		})
	}
	if err != nil {
		return unwritable(filepath.Dir(path), err)
	}
	return nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Authority gives the stored CA, or makes one for the trust domain and stores
// it before it is used.
func (s *Store) Authority(trustDomain string, now time.Time) (*trust.Authority, error) {
	var ca *trust.Authority
	read := func(tx *bbolt.Tx) (err error) {
		ca, err = storedAuthority(tx)
		return err
	}
	if err := s.db.View(read); ca != nil || err != nil {
		return ca, wrap(err)
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		err := read(tx)
		if ca != nil || err != nil {
			return err
		}
		if ca, err = trust.NewAuthority(trustDomain, now); err != nil {
			return err
		}
		key, err := ca.KeyPEM()
		if err != nil {
			return err
		}
		return errors.Join(put(tx, bucketMeta, keyCACert, ca.CertificatePEM()), put(tx, bucketMeta, keyCAKey, key))
	})
	return ca, wrap(err)
}

// Clusters lists the registered clusters by name.
func (s *Store) Clusters() ([]Cluster, error) { return list[Cluster](s, bucketClusters) }

// AddSocket remembers that a cluster asked for a socket of the protocol.
func (s *Store) AddSocket(c id.Cluster, protocol string, now time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		if err := addCluster(tx, c.String(), now); err != nil {
			return err
		}
		var rec Cluster
		if _, err := get(tx, bucketClusters, c.String(), &rec); err != nil {
			return err
		}
		if slices.Contains(rec.Sockets, protocol) {
			return nil
		}
		rec.Sockets = append(rec.Sockets, protocol)
		return put(tx, bucketClusters, rec.Name, rec)
	}))
}

// PutCertificate remembers an issued certificate. Those that ran out are forgotten on the way.
func (s *Store) PutCertificate(c Certificate, now time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		var old []string
		err := each(tx, bucketCertificates, func(key string, c Certificate) {
			if now.Sub(c.Expires) > limit.ExpiryWarning {
				old = append(old, key)
			}
		})
		if err != nil {
			return err
		}
		for _, key := range old {
			if err := tx.Bucket([]byte(bucketCertificates)).Delete([]byte(key)); err != nil {
				return err
			}
		}
		return put(tx, bucketCertificates, c.Serial, c)
	}))
}

// Certificates lists the issued certificates, the first to end first.
func (s *Store) Certificates() ([]Certificate, error) {
	out, err := list[Certificate](s, bucketCertificates)
	slices.SortFunc(out, func(a, b Certificate) int { return a.Expires.Compare(b.Expires) })
	return out, err
}

// Revoke marks certificates of an identity as revoked: the one with the serial number,
// or all if that is empty. It returns them.
func (s *Store) Revoke(identity, serial string, now time.Time) (out []Certificate, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		err := each(tx, bucketCertificates, func(_ string, c Certificate) {
			if c.Identity == identity && (serial == "" || c.Serial == serial) {
				out = append(out, c)
			}
		})
		if err != nil {
			return err
		}
		for i := range out {
			if out[i].Revoked.IsZero() {
				out[i].Revoked = now.UTC()
			}
			if err := put(tx, bucketCertificates, out[i].Serial, out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fault.Newf(fault.CodeNotFound, "there is no certificate of %s", identity).Hint("tombolo certificate list")
	}
	return out, wrap(err)
}

// Backup writes a consistent copy of the whole state. It holds the CA's key. The copy is
// whole before any of it is written: while it is made no change can make the file larger,
// nobody can read it after such a change has begun, and w may wait for its reader.
func (s *Store) Backup(w io.Writer) error {
	var copied bytes.Buffer
	err := s.db.View(func(tx *bbolt.Tx) error {
		copied.Grow(int(tx.Size()))
		_, err := tx.WriteTo(&copied)
		return err
	})
	if err != nil {
		return err
	}
	_, err = copied.WriteTo(w)
	return err
}
