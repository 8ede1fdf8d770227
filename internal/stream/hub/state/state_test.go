// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

const fileName = "hub.db"

// noon is the time of every test here.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func open(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func cluster(t testing.TB, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantCode(t *testing.T, err error, code fault.Code) *fault.Fault {
	t.Helper()
	if !fault.Has(err, code) {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	f := fault.From(err)
	if f.What == "" || f.Next == "" {
		t.Errorf("fault %q says not what failed or not what to do next", f.Explain())
	}
	return f
}

// filled makes a state with a CA, a token, clusters and certificates, and closes it.
func filled(t *testing.T, dir string) {
	t.Helper()
	s, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authority(id.DefaultTrustDomain, noon()); err != nil {
		t.Fatal(err)
	}
	for i := range 40 { // more than one page, so that there are branches and free pages
		token, _ := trust.NewToken(cluster(t, fmt.Sprintf("c%d", i)), time.Hour, 3, noon())
		cert := state.Certificate{Serial: fmt.Sprintf("%040d", i), Identity: "spiffe://tombolo.internal/operator/o", Expires: noon().Add(time.Hour)}
		if err := errors.Join(s.PutToken(token, noon()), s.PutCertificate(cert, noon())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsStoredIsThereAfterReopening(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := s.Authority("example.org", noon())
	if err != nil {
		t.Fatal(err)
	}
	c1 := cluster(t, "c1")
	token, _ := trust.NewToken(c1, time.Hour, 1, noon())
	cert := state.Certificate{Serial: "ab", Identity: "spiffe://example.org/cluster/c1/client/x", Issued: noon(), Expires: noon().Add(time.Hour)}
	err = errors.Join(s.PutToken(token, noon()), s.AddSocket(c1, "connect", noon()), s.AddSocket(c1, "connect", noon()), s.PutCertificate(cert, noon()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(cert.Identity, "ab", noon()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir)
	again, err := s.Authority("another.org", noon())
	if err != nil {
		t.Fatal(err)
	}
	if trust.Pin(again.Certificate()) != trust.Pin(ca.Certificate()) || again.TrustDomain() != "example.org" {
		t.Error("the CA is another one after reopening")
	}
	tokens, err1 := s.Tokens()
	clusters, err2 := s.Clusters()
	certs, err3 := s.Certificates()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if len(tokens) != 1 || tokens[0].SecretHash != token.SecretHash {
		t.Errorf("tokens: %+v", tokens)
	}
	if len(clusters) != 1 || clusters[0].Name != "c1" || len(clusters[0].Sockets) != 1 {
		t.Errorf("clusters: %+v, want c1 with one socket", clusters)
	}
	if len(certs) != 1 || !certs[0].Revoked.Equal(noon()) {
		t.Errorf("certificates: %+v, want one, revoked", certs)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, fileName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestOneUseIsGrantedOnceToFiftyAtATime(t *testing.T) {
	s := open(t, t.TempDir())
	token, secret := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
	if err := s.PutToken(token, noon()); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 50)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range cap(results) {
		done.Go(func() {
			start.Wait()
			_, _, err := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, KeyHash: fmt.Sprintf("key-%d", i), Issue: issued}, noon())
			results <- err
		})
	}
	start.Done()
	done.Wait()
	close(results)
	granted := 0
	for err := range results {
		if err == nil {
			granted++
		} else {
			wantCode(t, err, fault.CodeTokenUsed)
		}
	}
	if granted != 1 {
		t.Errorf("granted %d times, want once", granted)
	}
}

func issued(string) (state.Holder, error) { return state.Holder{Expires: noon().Add(time.Hour)}, nil }

func TestTokens(t *testing.T) {
	s := open(t, t.TempDir())
	token, secret := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
	if err := s.PutToken(token, noon()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id, secret string
		now        time.Time
		want       fault.Code
	}{
		"a token that was never issued":         {"aaaaaaaa", secret, noon(), fault.CodeTokenUnknown},
		"an empty token name":                   {"", secret, noon(), fault.CodeTokenUnknown},
		"a secret that is wrong":                {token.ID, "wrong", noon(), fault.CodeTokenUnknown},
		"a token at the instant of its end":     {token.ID, secret, noon().Add(time.Hour), fault.CodeTokenExpired},
		"a token name longer than a key may be": {string(make([]byte, 40_000)), secret, noon(), fault.CodeTokenUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := s.UseToken(state.Use{TokenID: c.id, Secret: c.secret, KeyHash: "key", Issue: issued}, c.now)
			wantCode(t, err, c.want)
		})
	}
	t.Run("the same key gets its name again, from a use that is stored", func(t *testing.T) {
		c, first, err1 := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, KeyHash: "key", Issue: issued}, noon())
		_, second, err2 := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, KeyHash: "key", Issue: issued}, noon())
		if errors.Join(err1, err2) != nil || first != second || c.String() != "c1" {
			t.Errorf("got %v %v in %v, %v %v", first, second, c, err1, err2)
		}
	})
	t.Run("a deleted token is unknown", func(t *testing.T) {
		if err := s.DeleteToken(token.ID); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, KeyHash: "key", Issue: issued}, noon())
		wantCode(t, err, fault.CodeTokenUnknown)
		wantCode(t, s.DeleteToken(token.ID), fault.CodeNotFound)
	})
	t.Run("a dead token is kept for a while and then forgotten", func(t *testing.T) {
		old, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
		young, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
		if err := s.PutToken(old, noon()); err != nil {
			t.Fatal(err)
		}
		if err := s.PutToken(young, old.Expires.Add(state.TokenKept)); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Tokens(); err != nil || len(all) != 2 {
			t.Errorf("%d tokens, %v; want both", len(all), err)
		}
		if err := s.PutToken(young, old.Expires.Add(state.TokenKept+1)); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Tokens(); err != nil || len(all) != 1 || all[0].ID != young.ID {
			t.Errorf("tokens %v, %v; want the young one alone", all, err)
		}
	})
}

func TestCertificates(t *testing.T) {
	s := open(t, t.TempDir())
	put := func(serial string, expires, now time.Time) {
		t.Helper()
		if err := s.PutCertificate(state.Certificate{Serial: serial, Identity: "x", Expires: expires}, now); err != nil {
			t.Fatal(err)
		}
	}
	put("late", noon().Add(2*time.Hour), noon())
	put("early", noon().Add(time.Hour), noon())
	if all, err := s.Certificates(); err != nil || len(all) != 2 || all[0].Serial != "early" {
		t.Errorf("%v, %v; want the first to end first", all, err)
	}
	if _, err := s.Revoke("x", "unknown", noon()); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("revoking an unknown one: %v", err)
	}
	if c, err := s.Revoke("x", "early", noon()); err != nil || len(c) != 1 || !c[0].Revoked.Equal(noon()) {
		t.Errorf("revoking: %+v, %v", c, err)
	}
	later := noon().Add(time.Minute)
	if c, err := s.Revoke("x", "", later); err != nil || len(c) != 2 || !c[0].Revoked.Equal(noon()) || !c[1].Revoked.Equal(later) {
		t.Errorf("all of the name, and the first keeps its time: %+v, %v", c, err)
	}
	put("new", noon().Add(10_000*time.Hour), noon().Add(time.Hour+limit.ExpiryWarning+1))
	if all, err := s.Certificates(); err != nil || len(all) != 2 || all[0].Serial != "late" {
		t.Errorf("%v, %v; want that the one long ended is forgotten", all, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Run("a state that another holds", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir)
		_, err := state.Open(dir)
		wantCode(t, err, fault.CodeStateBusy)
	})
	t.Run("a path that is a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := state.Open(path)
		wantCode(t, err, fault.CodeStateAccess)
	})
	t.Run("a path where nothing can be made", func(t *testing.T) {
		_, err := state.Open("/proc/self/state")
		wantCode(t, err, fault.CodeStateAccess)
	})
	t.Run("a directory in place of the file", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, fileName), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := state.Open(dir)
		wantCode(t, err, fault.CodeStateAccess)
	})
	for name, content := range map[string][]byte{
		"text":                {'h', 'e', 'l', 'l', 'o'},
		"a page of zeros":     make([]byte, 4096),
		"many pages of zeros": make([]byte, 64<<10),
		"a single byte":       {0xed},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := state.Open(dir)
			wantCode(t, err, fault.CodeStateCorrupt)
		})
	}
	t.Run("a bbolt file of another program", func(t *testing.T) {
		dir := t.TempDir()
		foreign(t, dir, func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("theirs"))
			return err
		})
		_, err := state.Open(dir)
		wantCode(t, err, fault.CodeStateCorrupt)
	})
	t.Run("an empty file is a new state", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
	})
}

// foreign changes the file with the library itself.
func foreign(t *testing.T, dir string, change func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestALineForAnotherClusterLeavesTheTokenUnused(t *testing.T) {
	s := open(t, t.TempDir())
	token, secret := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
	if err := s.PutToken(token, noon()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, Cluster: "c2", KeyHash: "key", Issue: issued}, noon()); !fault.Has(err, fault.CodeJoinLine) {
		t.Errorf("used for another cluster: %v", err)
	}
	if _, _, err := s.UseToken(state.Use{TokenID: token.ID, Secret: secret, Cluster: "c1", KeyHash: "key", Issue: issued}, noon()); err != nil {
		t.Errorf("the token is lost: %v", err)
	}
}
