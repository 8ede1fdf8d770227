// SPDX-License-Identifier: Apache-2.0

package state

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestAStateOfANewerFormatIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		// What else a newer release keeps, this one cannot read.
		if err := tx.Bucket([]byte(bucketTokens)).Put([]byte("x"), []byte("of a form to come")); err != nil {
			return err
		}
		return put(tx, bucketMeta, keyFormat, formatVersion+1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Open(dir); !fault.Has(err, fault.CodeStateVersion) || fault.From(err).Next == "" {
			t.Fatalf("%v, want %s with a next step", err, fault.CodeStateVersion)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil || string(after) != string(before) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestTheErrorsOfADiskAreToldFromDamage(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want fault.Code
	}{
		"a full disk":             {&os.PathError{Op: "write", Err: syscall.ENOSPC}, fault.CodeStateAccess},
		"a disk turned read-only": {syscall.EROFS, fault.CodeStateAccess},
		"a lost permission":       {os.ErrPermission, fault.CodeStateAccess},
		"anything else":           {os.ErrInvalid, fault.CodeStateCorrupt},
		"a fault keeps its code":  {fault.New(fault.CodeTokenUsed, "x"), fault.CodeTokenUsed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fault.From(wrap(c.err)).Code; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	if wrap(nil) != nil {
		t.Error("no error became one")
	}
}
