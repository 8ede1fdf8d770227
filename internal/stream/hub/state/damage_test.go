// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// content opens the state and renders all that is in it; with write it then
// writes, so that free pages are used too.
func content(t testing.TB, dir string, write bool) (string, error) {
	t.Helper()
	s, err := state.Open(dir)
	if err != nil {
		return "", err
	}
	defer s.Close()
	ca, err := s.Authority("never-made.example", noon())
	if err != nil {
		return "", err
	}
	tokens, err1 := s.Tokens()
	clusters, err2 := s.Clusters()
	certs, err3 := s.Certificates()
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{trust.Pin(ca.Certificate()), tokens, clusters, certs})
	if err != nil {
		t.Fatal(err)
	}
	if !write {
		return string(text), nil
	}
	token, _ := trust.NewToken(cluster(t, "another"), time.Hour, 1, noon())
	return string(text), s.PutToken(token, noon())
}

// TestDamageIsAFaultAndNeverAPanic flips bits and cuts the file all over. A state
// that opens all the same must be the true one, or the one before its last change,
// which a damaged newest head page leads back to.
func TestDamageIsAFaultAndNeverAPanic(t *testing.T) {
	source := t.TempDir()
	filled(t, source)
	before, err := os.ReadFile(filepath.Join(source, fileName))
	if err != nil {
		t.Fatal(err)
	}
	older, err := content(t, source, true) // its write makes the newest transaction
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(source, fileName))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := content(t, source, false)
	if err != nil {
		t.Fatal(err)
	}
	if older == newest || string(before) == string(whole) {
		t.Fatal("the two states do not differ")
	}

	dir := t.TempDir()
	opened, refused := 0, 0
	try := func(what string, data []byte) {
		t.Helper()
		path := filepath.Join(dir, fileName)
		// Removed first: some file systems flush a file that is truncated and written anew.
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		got, err := content(t, dir, (opened+refused)%16 == 0) // a write costs two flushes of the disk
		switch {
		case err == nil && got != older && got != newest:
			t.Errorf("%s: the state opens with another content", what)
		case err == nil:
			opened++
		case !fault.Has(err, fault.CodeStateCorrupt):
			t.Errorf("%s: %v, want %s", what, err, fault.CodeStateCorrupt)
		default:
			refused++
		}
	}
	flip := func(at int, mask byte) {
		data := append([]byte(nil), whole...)
		data[at] ^= mask
		try(fmt.Sprintf("byte %d xor %#x", at, mask), data)
	}
	pageSize := os.Getpagesize()
	for page := 0; page < len(whole); page += pageSize {
		for at := page; at < page+48; at++ { // heads, and the first elements
			flip(at, 1<<(at%8))
		}
	}
	for at := 0; at < len(whole); at += 397 {
		flip(at, 0xff)
	}
	for size := 1; size < len(whole); size += pageSize/2 + 1 {
		try(fmt.Sprintf("cut to %d bytes", size), whole[:size])
	}
	for page := 0; page < len(whole); page += pageSize {
		data := append([]byte(nil), whole...)
		clear(data[page+10 : page+12])
		try(fmt.Sprintf("page %d counts nothing", page/pageSize), data)
		clear(data[page : page+pageSize])
		try(fmt.Sprintf("page %d cleared", page/pageSize), data)
		copy(data[page:], whole[3*pageSize:4*pageSize])
		try(fmt.Sprintf("page %d written over", page/pageSize), data)
	}
	if opened < 100 || refused < 100 {
		t.Errorf("%d opened, %d refused: the damage is not spread over used and unused bytes", opened, refused)
	}
}

// TestARecordThatIsNotWhatWasWrittenIsRefused damages values through the library,
// so that the pages are sound.
func TestARecordThatIsNotWhatWasWrittenIsRefused(t *testing.T) {
	first := func(b *bbolt.Bucket) ([]byte, []byte) {
		k, v := b.Cursor().First()
		return k, append([]byte(nil), v...)
	}
	for name, change := range map[string]func(tx *bbolt.Tx) error{
		"a token with one digit changed": func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("tokens"))
			k, v := first(b)
			v[len(v)/2] ^= 1
			return b.Put(k, v)
		},
		"a token under another name": func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("tokens"))
			_, v := first(b)
			return b.Put([]byte("aaaaaaaa"), v)
		},
		"an empty record": func(tx *bbolt.Tx) error { return tx.Bucket([]byte("clusters")).Put([]byte("x"), nil) },
		"a CA without its key": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Delete([]byte("ca.key"))
		},
		"a state without its format": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Delete([]byte("format"))
		},
		"a state without its certificates":  func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("certificates")) },
		"a state without its CA and format": func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("meta")) },
		"a bucket within a bucket":          func(tx *bbolt.Tx) error { _, err := tx.Bucket([]byte("tokens")).CreateBucket([]byte("b")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			foreign(t, dir, change)
			_, err := state.Open(dir)
			wantCode(t, err, fault.CodeStateCorrupt)
		})
	}
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	s, err := state.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.Authority("example.org", noon()); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		f.Fatal(err)
	}
	whole = whole[:min(len(whole), 16*os.Getpagesize())]
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		data := append([]byte(nil), whole...)
		copy(data[int(at)%len(data):], patch)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := content(t, dir, true); err != nil && !fault.Has(err, fault.CodeStateCorrupt) {
			t.Errorf("%v, want %s", err, fault.CodeStateCorrupt)
		}
	})
}
