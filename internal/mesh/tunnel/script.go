// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Config is the whole desired state of an Engine.
type Config struct {
	Key    Secret
	Signer Signer // WireGuard does without
	Peers  []Peer
}

// Peer is another node.
type Peer struct {
	Key       member.Key
	Pin       member.Pin // of its certificate: WireGuard does without
	PSK       Secret     // may be none
	Ranges    []netip.Prefix
	Keepalive time.Duration // 0: none
	// Probes says that its owner finds its paths by probes; without them WireGuard's
	// roaming is on, and Stats say where it was heard.
	Probes bool
	// First is where a handshake goes while no path was set. The kernel's WireGuard needs it, which
	// does not say that a packet waits for one; this engine's does not.
	First netip.AddrPort
}

// script is what has to be said to wireguard-go so that its peers become those that are
// wanted, in its configuration protocol. It holds keys: it must not be printed. What is
// there already is not mentioned, and ranges are given before they are taken, so that
// one which moves is always somebody's.
func script(have, want map[member.Key]Peer) string {
	var add, remove strings.Builder
	for _, k := range sorted(want) {
		w := want[k]
		h, ok := have[k]
		if ok && h.Probes != w.Probes { // roaming is decided when a peer is made
			fmt.Fprintf(&add, "public_key=%x\nremove=true\n", k[:])
			ok, h = false, Peer{}
		}
		if !ok {
			fresh(&add, w)
		}
		var lines, gone strings.Builder
		change(&lines, h, w, !ok)
		for _, r := range missing(h.Ranges, w.Ranges) {
			fmt.Fprintf(&gone, "allowed_ip=-%v\n", r)
		}
		section(&add, k, lines.String())
		section(&remove, k, gone.String())
	}
	for _, k := range sorted(have) {
		if _, ok := want[k]; !ok {
			fmt.Fprintf(&remove, "public_key=%x\nremove=true\n", k[:])
		}
	}
	return add.String() + remove.String()
}

func section(b *strings.Builder, k member.Key, lines string) {
	if lines != "" {
		fmt.Fprintf(b, "public_key=%x\nupdate_only=true\n%s", k[:], lines)
	}
}

// fresh makes a peer. One that is made with an endpoint never roams; one that gets it
// later does.
func fresh(b *strings.Builder, p Peer) {
	fmt.Fprintf(b, "public_key=%x\n", p.Key[:])
	if !p.Probes {
		fmt.Fprintf(b, "public_key=%x\n", p.Key[:])
	}
	fmt.Fprintf(b, "endpoint=%s%s\n", endpointPrefix, p.Key.String())
}

func change(b *strings.Builder, have, want Peer, fresh bool) {
	if fresh && !want.PSK.IsZero() || !fresh && !have.PSK.Equal(want.PSK) {
		psk := want.PSK.bytes()
		b.WriteString("preshared_key=" + hex.EncodeToString(psk[:]) + "\n")
	}
	if have.Keepalive != want.Keepalive {
		fmt.Fprintf(b, "persistent_keepalive_interval=%d\n", int(want.Keepalive/time.Second))
	}
	for _, r := range missing(want.Ranges, have.Ranges) {
		fmt.Fprintf(b, "allowed_ip=%v\n", r)
	}
}

// missing are those of a that b has not.
func missing(a, b []netip.Prefix) (out []netip.Prefix) {
	in := make(map[netip.Prefix]bool, len(b))
	for _, r := range b {
		in[r.Masked()] = true
	}
	for _, r := range a {
		if !in[r.Masked()] {
			out = append(out, r.Masked())
		}
	}
	return out
}

func sorted(m map[member.Key]Peer) []member.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b member.Key) int { return bytes.Compare(a[:], b[:]) })
}
