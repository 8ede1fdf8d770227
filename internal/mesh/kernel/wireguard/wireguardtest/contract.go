// SPDX-License-Identifier: Apache-2.0

package wireguardtest

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Subject is a kernel without links.
type Subject interface {
	wireguard.Links
	wireguard.Control
	Up(link string) error
}

// Link is the name that subjects have free.
const Link = "tombolo0"

// Contract holds for every kernel. Each part gets a fresh one.
func Contract(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, part := range map[string]func(*testing.T, Subject){
		"a link is made and removed":           madeAndRemoved,
		"what is applied is there":             applied,
		"a link is taken over as it is":        takenOver,
		"a range moves, and what goes is gone": moved,
		"many peers and ranges come whole":     many,
		"a path is an endpoint, and stays it":  paths,
		"a preshared key is replaced":          presharedKeys,
		"what is asked for changes nothing":    asked,
		"a link that goes is noticed":          gone,
		"another engine finds the name free":   left,
	} {
		t.Run(name, func(t *testing.T) { part(t, fresh(t)) })
	}
}

// Key draws a key pair.
func Key(t *testing.T) (tunnel.Secret, member.Key) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tunnel.NewSecret([32]byte(k.Bytes())), member.Key(k.PublicKey().Bytes())
}

func open(t *testing.T, s Subject, port uint16) *wireguard.Device {
	t.Helper()
	d, err := wireguard.Open(wireguard.Settings{Link: Link, MTU: 1420, Port: port, Mark: 0x20},
		wireguard.Parts{Control: s, Links: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Up(Link); err != nil {
		t.Fatal(err)
	}
	return d
}

func apply(t *testing.T, d *wireguard.Device, own tunnel.Secret, peers ...tunnel.Peer) {
	t.Helper()
	if err := d.Apply(tunnel.Config{Key: own, Peers: peers}); err != nil {
		t.Fatal(err)
	}
}

func device(t *testing.T, s Subject) *wgtypes.Device {
	t.Helper()
	d, err := s.Device(Link)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func find(t *testing.T, s Subject, k member.Key) wgtypes.Peer {
	t.Helper()
	for _, p := range device(t, s).Peers {
		if p.PublicKey == wgtypes.Key(k) {
			return p
		}
	}
	t.Fatalf("there is no peer %v", k)
	return wgtypes.Peer{}
}

func ranges(p wgtypes.Peer) (out []string) {
	for _, n := range p.AllowedIPs {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return out
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	a, aIs := got.([]string)
	b, bIs := want.([]string)
	if aIs && bIs && slices.Equal(a, b) || !aIs && got == want {
		return
	}
	t.Errorf("%s: %v, want %v", what, got, want)
}

func nets(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func madeAndRemoved(t *testing.T, s Subject) {
	d := open(t, s, 0)
	have := device(t, s)
	same(t, "mark", have.FirewallMark, 0x20)
	if d.Port() == 0 || have.ListenPort != int(d.Port()) {
		t.Errorf("the port is %d, and said to be %d", have.ListenPort, d.Port())
	}
	kind, err := s.Kind(Link)
	if err != nil || kind != wireguard.Ours {
		t.Errorf("the link is of kind %v: %v", kind, err)
	}
	if err := d.Close(false); err != nil {
		t.Fatal(err)
	}
	if kind, err = s.Kind(Link); err != nil || kind != wireguard.None {
		t.Errorf("after it the link is of kind %v: %v", kind, err)
	}
}

func applied(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, public := Key(t)
	_, a := Key(t)
	psk := tunnel.NewSecret([32]byte{1, 2, 3})
	at := netip.MustParseAddrPort("192.0.2.7:51820")
	apply(t, d, own, tunnel.Peer{Key: a, PSK: psk, Ranges: nets("10.1.0.0/16", "fd00:1::/64"),
		Keepalive: 25 * time.Second, First: at})
	same(t, "public key", device(t, s).PublicKey, wgtypes.Key(public))
	p := find(t, s, a)
	same(t, "preshared key", p.PresharedKey, wgtypes.Key(psk.Bytes()))
	same(t, "keepalive", p.PersistentKeepaliveInterval, 25*time.Second)
	same(t, "endpoint", p.Endpoint.String(), at.String())
	same(t, "ranges", ranges(p), []string{"10.1.0.0/16", "fd00:1::/64"})
	apply(t, d, own, tunnel.Peer{Key: a})
	p = find(t, s, a)
	same(t, "preshared key", p.PresharedKey, wgtypes.Key{})
	same(t, "keepalive", p.PersistentKeepaliveInterval, time.Duration(0))
	same(t, "ranges", ranges(p), []string(nil))
	apply(t, d, own)
	same(t, "peers", len(device(t, s).Peers), 0)
	if err := d.Apply(tunnel.Config{Key: own, Peers: []tunnel.Peer{{Key: public}}}); !fault.Has(err, fault.CodeSelf) {
		t.Errorf("a peer with our own key: %v", err)
	}
	other, public := Key(t)
	apply(t, d, other)
	same(t, "another key", device(t, s).PublicKey, wgtypes.Key(public))
}

// takenOver: a process that was killed closes nothing.
func takenOver(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	_, a := Key(t)
	peer := tunnel.Peer{Key: a, Ranges: nets("10.1.0.0/16"), First: netip.MustParseAddrPort("192.0.2.7:51820")}
	apply(t, d, own, peer)
	was := find(t, s, a)
	next := open(t, s, 0)
	same(t, "port", next.Port(), d.Port())
	apply(t, next, own, peer)
	now := find(t, s, a)
	same(t, "endpoint", now.Endpoint.String(), was.Endpoint.String())
	same(t, "ranges", ranges(now), ranges(was))
	if now.TransmitBytes < was.TransmitBytes {
		t.Error("the peer was made anew")
	}
	if err := next.Abandon(); err != nil { // a start that fails later leaves what it found
		t.Fatal(err)
	}
	find(t, s, a)
}

func moved(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	_, a := Key(t)
	_, b := Key(t)
	apply(t, d, own, tunnel.Peer{Key: a, Ranges: nets("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16")}, tunnel.Peer{Key: b})
	apply(t, d, own, tunnel.Peer{Key: a, Ranges: nets("10.1.0.0/16")},
		tunnel.Peer{Key: b, Ranges: nets("10.2.0.0/16", "10.4.0.0/16")})
	same(t, "ranges of the first", ranges(find(t, s, a)), []string{"10.1.0.0/16"})
	same(t, "ranges of the second", ranges(find(t, s, b)), []string{"10.2.0.0/16", "10.4.0.0/16"})
	same(t, "peers", len(device(t, s).Peers), 2)
}

func many(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	var all []tunnel.Peer
	for i := range 70 {
		_, k := Key(t)
		p := tunnel.Peer{Key: k, PSK: tunnel.NewSecret([32]byte{byte(i), 1}),
			Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i), 0}), 24)}}
		if i == 33 {
			for j := range 600 {
				p.Ranges = append(p.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(j >> 8), byte(j), 0}), 24))
			}
		}
		all = append(all, p)
	}
	apply(t, d, own, all...)
	same(t, "peers", len(device(t, s).Peers), 70)
	for i, p := range all {
		have := find(t, s, p.Key)
		same(t, "ranges", len(have.AllowedIPs), len(p.Ranges))
		same(t, "preshared key", have.PresharedKey, wgtypes.Key(p.PSK.Bytes()))
		if i == 33 {
			all[i].Ranges = p.Ranges[:1]
		}
	}
	apply(t, d, own, all...)
	same(t, "ranges after most are gone", ranges(find(t, s, all[33].Key)), []string{all[33].Ranges[0].String()})
	apply(t, d, own)
	same(t, "peers", len(device(t, s).Peers), 0)
}

func paths(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	_, a := Key(t)
	_, nobody := Key(t)
	apply(t, d, own, tunnel.Peer{Key: a})
	at := path.Path{Addr: netip.MustParseAddrPort("[::ffff:192.0.2.9]:7")}
	if !d.SetPath(a, at, netip.Addr{}) || d.SetPath(nobody, at, netip.Addr{}) {
		t.Error("SetPath says who is a peer, and says it wrong")
	}
	same(t, "endpoint", find(t, s, a).Endpoint.String(), "192.0.2.9:7")
	if !d.SetPath(a, path.Path{}, netip.Addr{}) {
		t.Error("no path is refused")
	}
	same(t, "endpoint after no path", find(t, s, a).Endpoint.String(), "192.0.2.9:7")
	six := path.Path{Addr: netip.MustParseAddrPort("[2001:db8::1]:9")}
	d.SetPath(a, six, netip.Addr{})
	same(t, "endpoint", find(t, s, a).Endpoint.String(), "[2001:db8::1]:9")
	for probes, want := range map[bool]string{true: "[2001:db8::1]:9", false: "192.0.2.9:7"} {
		apply(t, d, own, tunnel.Peer{Key: a, Probes: probes})
		d.SetPath(a, six, netip.Addr{})
		roam(t, s, a, at.Addr)
		if _, err := d.Stats(); err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint("endpoint of a peer that was heard elsewhere, with probes: ", probes), find(t, s, a).Endpoint.String(), want)
	}
}

// roam has a peer be somewhere else without the device knowing, as when the kernel hears it there.
func roam(t *testing.T, s Subject, k member.Key, at netip.AddrPort) {
	t.Helper()
	err := s.ConfigureDevice(Link, wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: wgtypes.Key(k), UpdateOnly: true,
		Endpoint: net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))}}})
	if err != nil {
		t.Fatal(err)
	}
}

func presharedKeys(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	_, a := Key(t)
	peer := tunnel.Peer{Key: a, PSK: tunnel.NewSecret([32]byte{1}), Ranges: nets("10.1.0.0/16")}
	apply(t, d, own, peer)
	peer.PSK = tunnel.NewSecret([32]byte{2})
	if err := d.TryPSK(a, peer.PSK); err != nil {
		t.Fatal(err)
	}
	same(t, "preshared key", find(t, s, a).PresharedKey, wgtypes.Key(peer.PSK.Bytes()))
	same(t, "ranges", ranges(find(t, s, a)), []string{"10.1.0.0/16"})
	_, nobody := Key(t)
	if err := d.TryPSK(nobody, peer.PSK); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("of nobody: %v", err)
	}
}

func asked(t *testing.T, s Subject) {
	d := open(t, s, 0)
	own, _ := Key(t)
	for _, every := range []time.Duration{0, 25 * time.Second} {
		_, a := Key(t)
		apply(t, d, own, tunnel.Peer{Key: a, Keepalive: every})
		before := find(t, s, a).TransmitBytes
		d.SetPath(a, path.Path{Addr: netip.MustParseAddrPort("127.0.0.1:9")}, netip.Addr{})
		if err := d.Handshake(a); err != nil {
			t.Fatal(err)
		}
		same(t, "keepalive", find(t, s, a).PersistentKeepaliveInterval, every)
		deadline := time.Now().Add(10 * time.Second)
		for find(t, s, a).TransmitBytes < before+148 {
			if time.Now().After(deadline) {
				t.Fatal("no handshake was begun")
			}
			<-time.After(time.Millisecond)
		}
		if x, ok := d.Activity(a); !ok || x.Asked.IsZero() {
			t.Error("it is not known that one was")
		}
	}
	_, nobody := Key(t)
	if err := d.Handshake(nobody); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("of nobody: %v", err)
	}
}

func gone(t *testing.T, s Subject) {
	d := open(t, s, 0)
	select {
	case <-d.Done():
		t.Fatal("it is gone already")
	default:
	}
	if err := s.Remove(Link); err != nil {
		t.Fatal(err)
	}
	for began, over := time.Now(), false; !over; {
		if _, err := d.Stats(); !fault.Has(err, fault.CodeNotFound) {
			t.Errorf("of a link that is gone: %v", err)
		}
		select {
		case <-d.Done():
			if over = true; time.Since(began) < limit.WireGuardGone {
				t.Error("a link that was renamed would have had no time to come back")
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := d.Close(false); err != nil {
		t.Error(err)
	}
}

func left(t *testing.T, s Subject) {
	if was, err := wireguard.Leave(s, Link); was || err != nil {
		t.Errorf("without a link: %v, %v", was, err)
	}
	open(t, s, 0)
	if was, err := wireguard.Leave(s, Link); !was || err != nil {
		t.Errorf("with one: %v, %v", was, err)
	}
	if kind, err := s.Kind(Link); kind != wireguard.None || err != nil {
		t.Errorf("after it the link is of kind %v: %v", kind, err)
	}
}
