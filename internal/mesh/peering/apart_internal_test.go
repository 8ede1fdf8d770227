// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// heeding is an engine that keeps what it was told.
type heeding struct {
	silent
	told *tunnel.Config
}

func (h heeding) Apply(c tunnel.Config) error {
	*h.told = c
	return nil
}

func common(member.Key, member.Key) []Secret {
	return []Secret{{ID: seal.ClusterID{1}, PSK: tunnel.NewSecret([32]byte{1})}}
}

// TestEnginesThatDoNotMeet: a peer with another engine has no tunnel, nor has one without a pin where that is needed,
// and the reason is said; the engine gets the pins of the others.
func TestEnginesThatDoNotMeet(t *testing.T) {
	for _, c := range []struct {
		own, peer member.Engine
		pin       member.Pin
		code      fault.Code
		why       string
	}{
		{"", "", member.Pin{}, "", ""},
		{member.WireGuard, "", member.Pin{}, "", ""},
		{member.WireGuard, member.WireGuard, member.Pin{2}, "", ""},
		{member.IPsec, member.IPsec, member.Pin{2}, "", ""},
		{member.IPsec, "", member.Pin{2}, fault.CodeEngine, "peer n2: it runs engine wireguard, this node ipsec"},
		{"", member.IPsec, member.Pin{2}, fault.CodeEngine, "peer n2: it runs engine ipsec, this node wireguard"},
		{member.IPsec, "other", member.Pin{2}, fault.CodeEngine, "peer n2: it runs engine other, this node ipsec"},
		{member.IPsec, member.IPsec, member.Pin{}, fault.CodeEntryInvalid, "no source states the pin"},
	} {
		var told tunnel.Config
		signer := tunnel.NewSigner(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
		p, err := New(Parts{Private: privateOf(t), Signer: signer, Encrypts: c.own, Socket: silent{}, Engine: heeding{told: &told},
			Traffic: silent{}, Datapath: NewDatapath(nil)})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Set([]Peer{{ID: "m", Name: "n2", Key: member.Key{9}, Pin: c.pin, Engine: c.peer, Secrets: common}})
		what := fmt.Sprintf("%q and %q", c.own, c.peer)
		if (err != nil) != (c.code != "") || told.Signer.IsZero() {
			t.Errorf("%s: %v, %+v", what, err, told)
		}
		if h := p.Healths(); len(h) != 1 || c.code != "" && !h[0].Down {
			t.Errorf("%s: %+v", what, h)
		}
		if c.code == "" {
			if len(told.Peers) != 1 || told.Peers[0].Pin != c.pin {
				t.Errorf("%s: the engine has %+v", what, told.Peers)
			}
			continue
		}
		r := p.refused[0]
		if f := fault.From(r.Problem); len(told.Peers) != 0 || f.Code != c.code || f.Next == "" || !strings.Contains(r.Why, c.why) {
			t.Errorf("%s: %+v, want %q", what, r, c.why)
		}
	}
}

// TestManyEnginesThatDoNotMeet are one error, whose length has a bound.
func TestManyEnginesThatDoNotMeet(t *testing.T) {
	p, err := New(Parts{Private: privateOf(t), Socket: silent{}, Engine: heeding{told: new(tunnel.Config)}, Traffic: silent{}, Datapath: NewDatapath(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var all []Peer
	for i := range limit.MeshNames + 3 {
		all = append(all, Peer{ID: fmt.Sprintf("m%02d", i), Name: fmt.Sprintf("n%02d", i), Key: member.Key{9, byte(i)}, Engine: member.IPsec, Secrets: common})
	}
	err = p.Set(all)
	if text := fmt.Sprint(err); strings.Count(text, "mesh_engine") != 1 || !strings.Contains(text, "n00, n01") || !strings.Contains(text, "and 3 more another engine") || strings.Contains(text, all[limit.MeshNames].Name) {
		t.Errorf("%s", text)
	}
}
