// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdh"
	"crypto/rand"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestANameGoesOverToTheNextKey: the name that a hub has vouched for stays with a member that is shown
// to have both keys, and with no other one.
func TestANameGoesOverToTheNextKey(t *testing.T) {
	before, after := member.Key{9}, member.Key{11}
	secrets := func(member.Key, member.Key) []Secret {
		return []Secret{{ID: seal.ClusterID{1}, PSK: tunnel.NewSecret([32]byte{1})}}
	}
	for name, c := range map[string]struct {
		was, is     bool // proven
		key         member.Key
		certifiedAs string
		want        bool
	}{
		"shown":                       {true, true, after, "n", true},
		"the same key":                {false, false, before, "n", true},
		"claimed":                     {true, false, after, "n", false},
		"claimed before":              {false, true, after, "n", false},
		"vouched for by another name": {true, true, after, "o", false},
		"not vouched for":             {true, true, after, "", false},
	} {
		p, err := New(Parts{Private: privateOf(t), Socket: silent{}, Engine: silent{}, Traffic: silent{}, Datapath: NewDatapath(nil)})
		if err != nil {
			t.Fatal(err)
		}
		set := func(k member.Key, proven bool) {
			t.Helper()
			drafts, refused := p.drafts([]Peer{{ID: "m", Name: "n", Key: k, Proven: proven, Secrets: secrets}})
			if len(refused) > 0 {
				t.Fatal(refused[0].Problem)
			}
			p.adopt(time.Now(), drafts)
		}
		set(before, c.was)
		p.certify(p.peers["m"], c.certifiedAs)
		if p.peers["m"].certified() != (c.certifiedAs == "n") {
			t.Errorf("%s: certified before", name)
		}
		set(c.key, c.is)
		if got := p.peers["m"].certified(); got != c.want {
			t.Errorf("%s: certified %v", name, got)
		}
	}
}

// TestANameIsNotTakenAlong: no other name is certified by a hub's word, and routing plans anew; and what is known
// of a next key, which routing has not planned with yet, says nothing of the key before.
func TestANameIsNotTakenAlong(t *testing.T) {
	p, err := New(Parts{Private: privateOf(t), Socket: silent{}, Engine: silent{}, Traffic: silent{}, Datapath: NewDatapath(nil)})
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string) {
		drafts, _ := p.drafts([]Peer{{ID: "m", Name: name, Key: member.Key{9}, Secrets: func(member.Key, member.Key) []Secret {
			return []Secret{{ID: seal.ClusterID{1}, PSK: tunnel.NewSecret([32]byte{1})}}
		}}})
		p.adopt(time.Now(), drafts)
	}
	set("x")
	p.certify(p.peers["m"], "x")
	p.health.Store(false)
	if h := p.Healths()[0]; !h.Certified || h.Name != "x" || h.Key != (member.Key{9}) {
		t.Fatalf("%+v", h)
	}
	set("v")
	if h := p.Healths()[0]; h.Certified || h.Name != "v" || !p.health.Load() {
		t.Errorf("%+v, and routing is rung: %v", h, p.health.Load())
	}
}

// silent is a socket and an engine that nobody needs.
type silent struct {
	Socket
	Engine
	Traffic
}

func privateOf(t *testing.T) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
