// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdh"
	"crypto/rand"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestANameGoesOverToTheNextKey: of a key that a hub has vouched for, to the one that is
// shown to take its place, and to no other one.
func TestANameGoesOverToTheNextKey(t *testing.T) {
	before, after := member.Key{1}, member.Key{2}
	for name, c := range map[string]struct {
		succeeds bool
		keys     []member.Key
		vouched  string
		want     bool
	}{
		"shown":                       {true, []member.Key{after, before}, "n", true},
		"claimed":                     {false, []member.Key{after, before}, "n", false},
		"another key":                 {true, []member.Key{after, {3}}, "n", false},
		"one key":                     {true, []member.Key{after}, "n", false},
		"vouched for by another name": {true, []member.Key{after, before}, "o", false},
	} {
		p, err := New(Parts{Private: privateOf(t)})
		if err != nil {
			t.Fatal(err)
		}
		x := newPeer()
		x.Peer = Peer{ID: "m", Name: "n", Keys: []member.Key{before}}
		p.peers["m"] = x
		p.vouch(x, before, c.vouched)
		if p.Certified("m") != (c.vouched == "n") {
			t.Errorf("%s: certified before", name)
		}
		x.Keys, x.Succeeds = c.keys, c.succeeds
		x.inherit()
		if got := p.Certified("m"); got != c.want {
			t.Errorf("%s: certified %v", name, got)
		}
		x.Keys = []member.Key{after} // the old one is given up
		if got := p.Certified("m"); got != c.want {
			t.Errorf("%s: certified at the end %v", name, got)
		}
	}
	p, err := New(Parts{Private: privateOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	x := newPeer() // the hub leads a probe of the old key while both count
	x.Peer = Peer{ID: "m", Name: "n", Keys: []member.Key{after, before}, Succeeds: true}
	p.peers["m"] = x
	p.vouch(x, before, "n")
	if !p.Certified("m") {
		t.Error("not certified by the old key")
	}
}

func privateOf(t *testing.T) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
