// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// The keys of RFC 7748, section 6.1.
const (
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
)

func privateFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "wireguard")
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPrivateKeyFile: it is read as a secret, and gives the public key.
func TestPrivateKeyFile(t *testing.T) {
	config := func(file string) (Config, error) {
		return ParseConfig("x.yaml", []byte(head+"cluster: {secretFiles: ["+newSecret(t)+"]}\nnode: {name: a}\nannounce: {privateKeyFile: "+file+"}\n"))
	}
	cfg, err := config(privateFile(t, alicePrivate+"\n", 0o600))
	if err != nil || cfg.Announce.Key.String() != alicePublic || cfg.WireGuard.Public() != cfg.Announce.Key {
		t.Errorf("%v, %v", cfg.Announce.Key, err)
	}
	for name, file := range map[string]string{
		"everybody may read it": privateFile(t, alicePrivate, 0o644), "it is no key": privateFile(t, "x", 0o600), "it is not there": "/nowhere/key",
	} {
		if _, err := config(file); !fault.Has(err, fault.CodeSecret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// proves has a member prove its key.
func proves(t *testing.T) func(*v1alpha1.MeshAnnounce) {
	private := privateFile(t, alicePrivate, 0o600)
	return func(m *v1alpha1.MeshAnnounce) { m.PublicKey, m.PrivateKeyFile = "", private }
}

// TestProvenKeyBeatsAClaim: who names another's key has it until its holder comes, who
// proves it, and for longer than the claim lasts in the cache and after a new member key.
func TestProvenKeyBeatsAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := []v1alpha1.MeshService{native("one")}
		looks := setup{name: "a", dir: t.TempDir(), secrets: []string{secret}, services: s}
		a := w.start(looks)
		evil := w.start(setup{name: "evil", secrets: []string{secret}, services: s, member: func(m *v1alpha1.MeshAnnounce) { m.PublicKey = alicePublic }})
		defer evil.stop()
		a.knows(settle, "evil")
		own := setup{name: "b", dir: t.TempDir(), secrets: []string{secret}, services: s, member: proves(t)}
		b := w.start(own)
		defer b.stop()
		a.knows(settle, "b")
		if m := a.member("b"); m == nil || !m.Entries[0].Proven {
			t.Errorf("%+v", m)
		}
		if r, _ := a.Result(); len(r.Conflicts) != 1 || r.Conflicts[0].Kept.ID != b.Self().ID {
			t.Errorf("%+v", r.Conflicts)
		}
		a.stop()
		a = w.start(looks)
		defer a.stop()
		a.knows(settle, "b")
		if _, err := Rotate(w.config(own)); err != nil {
			t.Fatal(err)
		}
		a.knows(lookInterval+settle, "b")
		if m := a.member("b"); m == nil || m.ID != b.Self().ID || !m.Entries[0].Proven {
			t.Errorf("under the new key: %+v", m)
		}
	})
}

// announced is what others read of it.
func announced(t *testing.T, a *announcer, k seal.Keys, now time.Time, says member.Facts) (version uint64, m *discovery.Member) {
	t.Helper()
	if err := a.announce(now, says); err != nil {
		t.Fatal(err)
	}
	w, _ := a.current()
	_, m, err := k.Open(w.entries[0])
	if err != nil {
		t.Fatal(err)
	}
	return w.version, m
}

// TestProofIsAddedLater: the same content is announced anew once its key can be proven.
func TestProofIsAddedLater(t *testing.T) {
	k, now := secretOf(t, newSecret(t)).Keys(), time.Now()
	private, err := seal.ParseWireGuardPrivate(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	a := newAnnouncer(drawnKey(t), []seal.Keys{k}, time.Minute, 0)
	proof := func(key member.Key) (uint64, int) {
		t.Helper()
		version, m := announced(t, a, k, now, member.Facts{Node: "a", Key: key})
		return version, len(m.GetWireguardProof())
	}
	before, n := proof(private.Public())
	a.prove(private)
	after, proven := proof(private.Public())
	if n != 0 || proven != 64 || after <= before {
		t.Errorf("versions %d and %d, proofs of %d and %d bytes", before, after, n, proven)
	}
	a.prove(private)
	if again, _ := proof(private.Public()); again != after {
		t.Error("the same key is announced anew")
	}
	if _, n := proof(keyOf("other")); n != 0 {
		t.Error("a key is proven by another one")
	}
}
