// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// FuzzRestore damages a backup, cuts it, or puts something else in its place. It
// is refused with nothing changed, or what it held is what is there: no other CA,
// no certificate that is not revoked any more.
func FuzzRestore(f *testing.F) {
	source := f.TempDir()
	s, err := state.Open(source)
	if err != nil {
		f.Fatal(err)
	}
	ca, err := s.Authority("example.org", noon())
	if err != nil {
		f.Fatal(err)
	}
	if err := s.PutCertificate(state.Certificate{Serial: "0a", Identity: "spiffe://example.org/operator/o", Issued: noon(), Expires: noon().Add(time.Hour)}, noon()); err != nil {
		f.Fatal(err)
	}
	before := snapshot(f, s)
	if _, err := s.Revoke("spiffe://example.org/operator/o", "0a", noon()); err != nil {
		f.Fatal(err)
	}
	whole := snapshot(f, s)
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	newest, err := content(f, source, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), uint32(0), []byte{})
	f.Add(uint32(1), uint32(0), []byte{})
	f.Add(uint32(len(whole)), uint32(len(whole)/2), []byte("x"))
	f.Add(uint32(len(whole)), uint32(0), make([]byte, 64))
	f.Add(uint32(len(whole)), uint32(4<<10), before[:64])
	f.Fuzz(func(t *testing.T, length, at uint32, patch []byte) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:int(length)%(len(data)+1)]
		dir := filepath.Join(t.TempDir(), "state")
		err := state.Restore(bytes.NewReader(data), dir, false)
		if err != nil {
			if !fault.Has(err, fault.CodeStateCorrupt) && !fault.Has(err, fault.CodeStateVersion) {
				t.Errorf("an error without its code: %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("refused, and yet there is %v, %v", left, err)
			}
			return
		}
		got, err := content(t, dir, false)
		if err != nil {
			t.Fatalf("restored, and yet: %v", err)
		}
		if got != newest {
			again, err := state.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			held, err := again.Authority("example.org", noon())
			t.Errorf("it became another state: %s, where %s was; the same CA: %v", got, newest, err == nil && trust.Pin(held.Certificate()) == trust.Pin(ca.Certificate()))
		}
	})
}

// snapshot is a backup.
func snapshot(f *testing.F, s *state.Store) []byte {
	f.Helper()
	var out bytes.Buffer
	if err := s.Backup(&out); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}
