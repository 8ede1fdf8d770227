// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// bobPrivate is the other key of RFC 7748, section 6.1.
const bobPrivate = "XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os="

func wireGuardOf(t *testing.T, text string) seal.WireGuardPrivate {
	t.Helper()
	private, err := seal.ParseWireGuardPrivate(text)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// TestANewKeyOfTheMesh: who takes another key is known under both, each proven, until it
// gives up the old one; a claim of the old one in between gets nothing, and a restart
// from the cache forgets none of it.
func TestANewKeyOfTheMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := []v1alpha1.MeshService{native("one")}
		looks := setup{name: "a", dir: t.TempDir(), secrets: []string{secret}, services: s}
		a := w.start(looks)
		b := w.start(setup{name: "b", secrets: []string{secret}, services: s})
		defer b.stop()
		old, next := wireGuardOf(t, alicePrivate), wireGuardOf(t, bobPrivate)
		says := MemberOf(b.Self())
		says.Mesh, says.RelayCluster, says.Relays, says.WireGuard = 1, "c1", []string{"h1", "h2"}, old.Public()
		announce := func() {
			t.Helper()
			if err := b.Announce(says); err != nil {
				t.Fatal(err)
			}
			time.Sleep(settle)
			synctest.Wait()
		}
		wants := func(what string, key, previous member.Key) {
			t.Helper()
			m := a.member("b")
			if m == nil || m.Key != key || m.PreviousKey != previous || m.Mesh != 1 || m.RelayCluster != "c1" ||
				!slices.Equal(m.Relays, []string{"h1", "h2"}) || !m.Entries[0].Proven || m.Entries[0].Previous == previous.IsZero() {
				t.Fatalf("%s: %+v", what, m)
			}
		}
		b.Prove(old)
		announce()
		wants("before", old.Public(), member.Key{})
		b.Prove(next)
		b.ProvePrevious(old)
		says.WireGuard, says.PreviousKey = next.Public(), old.Public()
		announce()
		wants("in between", next.Public(), old.Public())
		evil := w.start(setup{name: "evil", secrets: []string{secret}, services: s, member: func(m *v1alpha1.MeshAnnounce) { m.PublicKey = alicePublic }})
		defer evil.stop()
		a.knows(settle, "b")
		wants("with a claim", next.Public(), old.Public())
		a.stop()
		a = w.start(looks)
		defer a.stop()
		a.knows(settle, "b")
		wants("from the cache", next.Public(), old.Public())
		evil.stop()
		says.PreviousKey = member.Key{}
		announce()
		wants("after", next.Public(), member.Key{})
		says.PreviousKey = next.Public()
		if err := b.Announce(says); err == nil {
			t.Error("a key takes its own place")
		}
	})
}

// TestPreviousProofIsAddedLater: and one that fits no longer is left out.
func TestPreviousProofIsAddedLater(t *testing.T) {
	k, now, old := secretOf(t, newSecret(t)).Keys(), time.Now(), wireGuardOf(t, alicePrivate)
	a := newAnnouncer(drawnKey(t), []seal.Keys{k}, time.Minute, 0)
	proof := func(previous member.Key) (uint64, int) {
		t.Helper()
		version, m := announced(t, a, k, now, seal.Member{Node: "a", WireGuard: keyOf("new"), PreviousKey: previous})
		return version, len(m.GetPreviousProof())
	}
	before, n := proof(old.Public())
	a.provePrevious(old)
	after, proven := proof(old.Public())
	if n != 0 || proven != 64 || after <= before {
		t.Errorf("versions %d and %d, proofs of %d and %d bytes", before, after, n, proven)
	}
	if _, n := proof(keyOf("other")); n != 0 {
		t.Error("a key is proven by another one")
	}
}
