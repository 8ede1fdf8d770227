// SPDX-License-Identifier: Apache-2.0

package loopback_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/loopback"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

const mark = "mark"

// twin is a kernel, its loopback link and a relay.
type twin struct {
	loopback.Traffic
	peers map[member.Key]bool
	paths map[member.Key]path.Path
	take  func(netip.Addr, []byte)
	came  []string // to the kernel
	went  []string // by the relay
}

func (w *twin) Apply(cfg tunnel.Config) error {
	w.peers = map[member.Key]bool{}
	for _, p := range cfg.Peers {
		w.peers[p.Key] = true
	}
	return nil
}

func (w *twin) SetPath(k member.Key, to path.Path, _ netip.Addr) bool {
	w.paths[k] = to
	return w.peers[k]
}

func (w *twin) TryPSK(member.Key, tunnel.Secret) error { return nil }
func (w *twin) Handshake(member.Key) error             { return nil }
func (w *twin) Port() uint16                           { return 7 }

func (w *twin) Send(from netip.Addr, b []byte) error {
	w.came = append(w.came, from.String()+" "+string(b))
	return nil
}

func (w *twin) Run(_ context.Context, take func(netip.Addr, []byte)) error { w.take = take; return nil }

func (w *twin) Relay(hub string, k member.Key, packets [][]byte) {
	for _, b := range packets {
		w.went = append(w.went, hub+" "+string(k[:1])+" "+string(b))
	}
}

// TestAPeerHasAPlace: packets go both ways between the kernel and the relay, each from and to the peer's own place.
func TestAPeerHasAPlace(t *testing.T) {
	w := &twin{paths: map[member.Key]path.Path{}}
	e := loopback.New(w, w, w, mark)
	a, b, plain, gone := member.Key{'a'}, member.Key{'b'}, member.Key{'c'}, member.Key{'d'}
	apply := func(keys ...member.Key) {
		t.Helper()
		cfg := tunnel.Config{Peers: []tunnel.Peer{{Key: plain}}}
		for _, k := range keys {
			cfg.Peers = append(cfg.Peers, tunnel.Peer{Key: k, Probes: true})
		}
		if err := e.Apply(cfg); err != nil || len(w.peers) != len(cfg.Peers) {
			t.Fatal(err, w.peers)
		}
	}
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(a, b, gone)
	at := map[member.Key]netip.Addr{}
	for _, k := range []member.Key{a, b, gone} {
		if !e.SetPath(k, path.Path{Relay: "h1"}, netip.Addr{}) {
			t.Error("a peer is none")
		}
		to := w.paths[k].Addr
		if at[k] = to.Addr(); !to.Addr().IsLoopback() || to.Port() != 7 {
			t.Errorf("the kernel sends to %v", to)
		}
	}
	if at[a] == at[b] || at[b] == at[gone] {
		t.Errorf("two have one place: %v", at)
	}
	apply(a, b)
	for _, k := range []member.Key{plain, gone} {
		if e.SetPath(k, path.Path{Relay: "h1"}, netip.Addr{}); !w.paths[k].IsZero() || e.Receive(k, []byte(mark+"x")) {
			t.Errorf("%c is reached by a relay at %v, or heard by it", k[0], w.paths[k])
		}
	}
	direct := path.Path{Addr: netip.MustParseAddrPort("192.0.2.1:9")}
	if e.SetPath(a, direct, netip.Addr{}); w.paths[a] != direct {
		t.Errorf("a direct path has become %v", w.paths[a])
	}
	w.take(at[a], []byte("1")) // what was heard by the relay is still answered by it
	w.take(at[b], []byte("2"))
	w.take(at[gone], []byte("3"))
	w.take(netip.MustParseAddr("192.0.2.9"), []byte("4"))
	if want := []string{"h1 a mark1", "h1 b mark2"}; !slices.Equal(w.went, want) {
		t.Errorf("by the relay went %q, want %q", w.went, want)
	}
	if !e.Receive(a, []byte(mark+"5")) || !e.Receive(b, []byte(mark+"6")) || e.Receive(a, []byte("other7")) || e.Receive(a, []byte(mark)) {
		t.Error("what is the kernel's is not told apart")
	}
	if want := []string{at[a].String() + " 5", at[b].String() + " 6"}; !slices.Equal(w.came, want) {
		t.Errorf("to the kernel came %q, want %q", w.came, want)
	}
}

// TestPlacesAreBounded, and used again.
func TestPlacesAreBounded(t *testing.T) {
	w := &twin{paths: map[member.Key]path.Path{}}
	e := loopback.New(w, w, w, "")
	const most = 1 << 15
	for round := range 3 {
		var cfg tunnel.Config
		for i := range most + 10 {
			cfg.Peers = append(cfg.Peers, tunnel.Peer{Key: member.Key{byte(round), byte(i >> 8), byte(i)}, Probes: true})
		}
		if err := e.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		places := map[netip.Addr]bool{}
		for _, p := range cfg.Peers {
			e.SetPath(p.Key, path.Path{Relay: "h"}, netip.Addr{})
			if at := w.paths[p.Key]; at.Direct() {
				places[at.Addr.Addr()] = true
			}
		}
		if len(places) != most {
			t.Errorf("%d have a place, want %d", len(places), most)
		}
	}
}
