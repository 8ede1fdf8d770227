// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
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

// taking is traffic that counts what a relay brings.
type taking struct {
	silent
	got *int
}

func (t taking) Receive(member.Key, []byte) bool {
	*t.got++
	return true
}

func knows(p *Peering, name string) bool {
	_, ok := p.seen.Load().by[name]
	return ok
}

// TestPeersOfAnotherEngineOfThisNode: they are no peers and none that are refused, but nobody is looked for at an address
// of theirs; and who scrapes gets both engines' figures as one.
func TestPeersOfAnotherEngineOfThisNode(t *testing.T) {
	reg := prometheus.NewRegistry()
	var told [2]tunnel.Config
	var got [2]int
	open := func(i int, beside *Peering) *Peering {
		p, err := New(Parts{Private: privateOf(t), Socket: silent{}, Engine: heeding{told: &told[i]}, Traffic: taking{got: &got[i]},
			Datapath: NewDatapath(nil), Metrics: reg, Beside: beside})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := open(0, nil)
	second := open(1, first)
	inside := netip.MustParseAddrPort("10.2.0.1:1")
	near := Peer{ID: "a", Name: "n1", Key: member.Key{9}, Secrets: common, Facts: path.Facts{Candidates: []path.Candidate{{Addr: inside}}}}
	far := Peer{ID: "b", Name: "n2", Key: member.Key{8}, Engine: member.IPsec, Elsewhere: true, Secrets: common,
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}
	if err := first.Set([]Peer{near, far}); err != nil {
		t.Fatal(err)
	}
	if h := first.Healths(); len(h) != 1 || h[0].ID != "a" || len(told[0].Peers) != 1 || knows(first, "n2") || !knows(first, "n1") {
		t.Errorf("%+v, the engine has %+v", h, told[0].Peers)
	}
	if f := first.peers["a"].Facts; len(f.Candidates) > 0 || !first.seen.Load().inside.contain(inside.Addr()) {
		t.Errorf("%+v is looked for within the mesh", f.Candidates)
	}
	far.Elsewhere, far.Engine = false, ""
	near.Elsewhere = true
	if err := second.Set([]Peer{near, far}); err != nil {
		t.Fatal(err)
	}
	if n := first.readings().Peers("down") + first.readings().Peers("direct") + first.readings().Peers("idle"); n != 2 {
		t.Errorf("%v peers are counted, want 2", n)
	}
	lost := func() float64 {
		var m dto.Metric
		if err := first.m.Dropped.WithLabelValues("no_peer").Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := lost()
	second.Relayed("h", "n1", []byte{4, 0, 0, 0}) // WireGuard's: the first one has the peer
	if lost() != before || got != [2]int{1, 0} {
		t.Errorf("of what a hub brings for the first engine both have %v", got)
	}
	if second.Relayed("h", "n9", []byte{4, 0, 0, 0}); lost() != before+1 {
		t.Error("what a hub brings for nobody is not counted")
	}
	// A peer that moves here is one from then on.
	far.Ranges = nil
	if err := first.Set([]Peer{far}); err != nil || len(first.Healths()) != 1 || !knows(first, "n2") || first.seen.Load().inside.contain(inside.Addr()) {
		t.Errorf("%v: %+v", err, first.Healths())
	}
}
