// SPDX-License-Identifier: Apache-2.0

package enrol

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

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// anIdentity is that of an agent that has joined.
func anIdentity(t *testing.T) *Identity {
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
	out := &Identity{Hubs: []string{"hub.example:8443"}, Token: "aaaaaaaa", Key: must(trust.NewKey())}
	cert, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleAgent, Cluster: cluster, Name: "a1"}, Key: out.Key.Public(), Life: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.SetCertificates(string(trust.EncodeCertificate(cert.Raw)), string(ca.CertificatePEM())); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnIdentityIsTheSameAfterStorage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if i, err := Load(dir); i != nil || err != nil || i.Joined() {
		t.Fatalf("before anything is stored: %v, %v", i, err)
	}
	alone := &Identity{Key: must(trust.NewKey())}
	if err := alone.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil || got.Joined() || !samePublic(got, alone) {
		t.Fatalf("a key before the join: %v", err)
	}

	want := anIdentity(t)
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err = Load(dir)
	if err != nil || !got.Joined() || got.Who != want.Who || got.Who.Name != "a1" || !got.Cert.Equal(want.Cert) || !got.CA.Equal(want.CA) ||
		!samePublic(got, want) || got.Token != "aaaaaaaa" || fmt.Sprint(got.Hubs) != fmt.Sprint(want.Hubs) {
		t.Fatalf("%+v, %v", got, err)
	}
	if c := got.TLS(); c.Leaf == nil || len(c.Certificate) != 1 {
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

func samePublic(a, b *Identity) bool {
	x, err1 := trust.KeyHash(a.Key.Public())
	y, err2 := trust.KeyHash(b.Key.Public())
	return err1 == nil && err2 == nil && x == y
}

// TestAReaderSeesAWholeIdentity loads all the time while the file is replaced.
func TestAReaderSeesAWholeIdentity(t *testing.T) {
	dir := t.TempDir()
	one, two := anIdentity(t), &Identity{Key: must(trust.NewKey())}
	if err := one.Save(dir); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		defer close(stop)
		for range 30 {
			if err := errors.Join(two.Save(dir), one.Save(dir)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	for {
		if _, err := Load(dir); err != nil {
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
	good := stored{Version: 1, Hubs: me.Hubs, Key: string(must(trust.EncodeKey(me.Key)))}
	good.Certificate, good.CA = string(trust.EncodeCertificate(me.Cert.Raw)), string(trust.EncodeCertificate(me.CA.Raw))
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
		"the key of another":             {with(func(s *stored) { s.Key = string(must(trust.EncodeKey(other.Key))) }), fault.CodeStateCorrupt},
		"a damaged certificate":          {with(func(s *stored) { s.Certificate = s.Certificate[:100] }), fault.CodeStateCorrupt},
		"a certificate without identity": {with(func(s *stored) { s.Certificate = s.CA }), fault.CodeStateCorrupt},
		"no CA":                          {with(func(s *stored) { s.CA = "" }), fault.CodeStateCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			i, err := Load(dir)
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
		if err := anIdentity(t).Save(dir); !fault.Has(err, fault.CodeStateAccess) || fault.From(err).Next == "" {
			t.Errorf("save in %s: %v", dir, err)
		}
	}
	if _, err := Load(file); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("load: %v", err)
	}
	full := t.TempDir()
	if err := os.Mkdir(filepath.Join(full, identityFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := anIdentity(t).Save(full); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("save over a directory: %v", err)
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 1 {
		t.Errorf("a failed save leaves %v, %v", entries, err)
	}
}
