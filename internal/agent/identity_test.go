// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/trust"
)

// anIdentity is that of an agent that has joined.
func anIdentity(t *testing.T) *identity {
	t.Helper()
	now := time.Now()
	ca, err := trust.NewAuthority("example.org", now)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	out := &identity{hubs: []string{"hub.example:8443"}, key: must(trust.NewKey())}
	cert, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleAgent, Cluster: cluster, Name: "a1"}, Key: out.key.Public(), Life: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.setCertificates(string(trust.EncodeCertificate(cert.Raw)), string(ca.CertificatePEM())); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnIdentityIsTheSameAfterStorage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if i, err := loadIdentity(dir); i != nil || err != nil || i.joined() {
		t.Fatalf("before anything is stored: %v, %v", i, err)
	}
	alone := &identity{key: must(trust.NewKey())}
	if err := alone.save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := loadIdentity(dir)
	if err != nil || got.joined() || !samePublic(got, alone) {
		t.Fatalf("a key before the join: %v", err)
	}

	want := anIdentity(t)
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	got, err = loadIdentity(dir)
	if err != nil || !got.joined() || got.who != want.who || got.who.Name != "a1" || !got.cert.Equal(want.cert) || !got.ca.Equal(want.ca) ||
		!samePublic(got, want) || fmt.Sprint(got.hubs) != fmt.Sprint(want.hubs) {
		t.Fatalf("%+v, %v", got, err)
	}
	if c := got.tls(); c.Leaf == nil || len(c.Certificate) != 1 {
		t.Errorf("%+v", c)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v; want the file alone", entries, err)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, identityFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode().Perm(), err, mode)
		}
	}
}

func samePublic(a, b *identity) bool {
	x, err1 := trust.KeyHash(a.key.Public())
	y, err2 := trust.KeyHash(b.key.Public())
	return err1 == nil && err2 == nil && x == y
}

// TestAReaderSeesAWholeIdentity loads all the time while the file is replaced.
func TestAReaderSeesAWholeIdentity(t *testing.T) {
	dir := t.TempDir()
	one, two := anIdentity(t), &identity{key: must(trust.NewKey())}
	if err := one.save(dir); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		defer close(stop)
		for range 30 {
			if err := errors.Join(two.save(dir), one.save(dir)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	for {
		if _, err := loadIdentity(dir); err != nil {
			t.Fatalf("a reader saw half of it: %v", err)
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

func TestDamagedIdentitiesAreRefused(t *testing.T) {
	me := anIdentity(t)
	good := stored{Version: 1, Hubs: me.hubs, Key: string(must(trust.EncodeKey(me.key)))}
	good.Certificate, good.CA = string(trust.EncodeCertificate(me.cert.Raw)), string(trust.EncodeCertificate(me.ca.Raw))
	with := func(edit func(*stored)) string {
		s := good
		edit(&s)
		return string(must(json.Marshal(s)))
	}
	other := anIdentity(t)
	for name, c := range map[string]struct {
		text string
		want fault.Code
	}{
		"nothing":                        {"", fault.CodeStateCorrupt},
		"text":                           {"hello", fault.CodeStateCorrupt},
		"half of the file":               {with(func(*stored) {})[:500], fault.CodeStateCorrupt},
		"JSON of another kind":           {`{"version":"one"}`, fault.CodeStateCorrupt},
		"an empty object":                {`{}`, fault.CodeStateCorrupt},
		"a newer version":                {`{"version":2,"key":{"of":"another form"}}`, fault.CodeStateVersion},
		"no key":                         {with(func(s *stored) { s.Key = "" }), fault.CodeStateCorrupt},
		"a damaged key":                  {with(func(s *stored) { s.Key = strings.Replace(s.Key, "M", "!", 1) }), fault.CodeStateCorrupt},
		"the key of another":             {with(func(s *stored) { s.Key = string(must(trust.EncodeKey(other.key))) }), fault.CodeStateCorrupt},
		"a damaged certificate":          {with(func(s *stored) { s.Certificate = s.Certificate[:100] }), fault.CodeStateCorrupt},
		"a certificate without identity": {with(func(s *stored) { s.Certificate = s.CA }), fault.CodeStateCorrupt},
		"no CA":                          {with(func(s *stored) { s.CA = "" }), fault.CodeStateCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			i, err := loadIdentity(dir)
			f := fault.From(err)
			if f == nil || f.Code != c.want || i != nil || f.Next == "" || !strings.Contains(f.What, dir) {
				t.Fatalf("%v, %v; want %s", i, err, c.want)
			}
			if strings.Contains(f.Explain(), "PRIVATE") || len(f.Explain()) > 600 {
				t.Errorf("the error shows too much: %s", f.Explain())
			}
		})
	}
}

func TestAStateDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, "/proc/self/agent"} {
		if err := anIdentity(t).save(dir); !fault.Has(err, fault.CodeStateAccess) || fault.From(err).Next == "" {
			t.Errorf("save in %s: %v", dir, err)
		}
	}
	if _, err := loadIdentity(file); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("load: %v", err)
	}
	full := t.TempDir()
	if err := os.Mkdir(filepath.Join(full, identityFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := anIdentity(t).save(full); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("save over a directory: %v", err)
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 1 {
		t.Errorf("a failed save leaves %v, %v", entries, err)
	}
}
