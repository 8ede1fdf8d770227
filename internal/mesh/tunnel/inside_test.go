// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/conn"
	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

func TestFill(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:1")
	for _, c := range []struct {
		sizes string // of packets
		join  bool
		want  string // packets of each message
	}{
		{"100", true, "1"},
		{"100 100 100", true, "3"},
		{"100 100 100", false, "1 1 1"},
		{"100 100 50 100 100", true, "3 2"}, // a smaller one ends a message
		{"50 100", true, "1 1"},             // a larger one begins one
		{"100 0 100", true, "2 1"},
		{"0 0", true, "1 1"},
		{"30000 30000 30000", true, "2 1"}, // more than a datagram holds
		{strings.TrimSpace(strings.Repeat("10 ", 128)), true, "64 64"},
	} {
		var packets [][]byte
		for _, f := range strings.Fields(c.sizes) {
			n := 0
			fmt.Sscan(f, &n)
			packets = append(packets, make([]byte, n))
		}
		b := newBatch()
		var got []string
		for i := range b.fill(to, netip.Addr{}, packets, c.join) {
			n := int(b.msgs[i].hdr.Iovlen)
			got = append(got, fmt.Sprint(n))
			if _, segment := b.control(i); n > 1 && b.msgs[i].hdr.Controllen == 0 || segment != 0 {
				t.Errorf("%s: message %d of %d packets has no size of segments", c.sizes, i, n)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%.40s: %v, want %s", c.sizes, got, c.want)
		}
		if n := b.packets(len(got)); n != len(packets) {
			t.Errorf("%.40s: %d packets of %d", c.sizes, n, len(packets))
		}
	}
}

// TestNames: what is written is read, of both families, with a link and without.
func TestNames(t *testing.T) {
	b := newBatch()
	for i, text := range []string{"192.0.2.1:65535", "[2001:db8::1]:1", "[fe80::1%7]:53"} {
		at := netip.MustParseAddrPort(text)
		b.setName(i, at)
		if got := b.name(i); got != at {
			t.Errorf("%v is read as %v", at, got)
		}
		b.setControl(i, at.Addr(), 0)
		if local, segment := b.control(i); local != at.Addr() || segment != 0 {
			t.Errorf("from %v: %v, %d", at.Addr(), local, segment)
		}
	}
}

// TestSpread: whatever the kernel joined comes apart as it was, in order within each
// message, and nothing is lost.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReader()
		in := room{bufs: make([][]byte, tunnelBatch), sizes: make([]int, tunnelBatch), from: make([]source, tunnelBatch)}
		for i := range in.bufs {
			in.bufs[i] = make([]byte, 1<<16)
		}
		want, got := map[string]int{}, map[string]int{}
		collect := func(n int) {
			for i := range n {
				if in.sizes[i] > 0 {
					got[string(in.bufs[i][:in.sizes[i]])]++
				}
			}
		}
		apart := rapid.SampledFrom([]int{1, fitNear, fitAll}).Draw(t, "apart")
		messages := rapid.IntRange(1, tunnelBatch/apart).Draw(t, "messages")
		for i := range messages {
			segment := rapid.IntRange(1, 900).Draw(t, "segment")
			count := rapid.IntRange(1, tunnelSegments).Draw(t, "count")
			if apart == 1 {
				count = 1
			}
			total := segment*(count-1) + rapid.IntRange(1, segment).Draw(t, "last")
			whole := in.bufs[i*apart][:total]
			for j := range whole {
				whole[j] = byte(i*7 + j/segment*13 + j)
			}
			for at := 0; at < total; at += segment {
				want[string(whole[at:min(at+segment, total)])]++
			}
			r.b.msgs[i].len = uint32(total)
			r.b.names[i].Family = 2
			groControl(r.b, i, segment)
			r.spread(i, apart, in)
		}
		collect(messages * apart)
		for len(r.spilt) > 0 {
			clear(in.sizes)
			collect(r.unspill(in))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d kinds of packets came of %d", len(got), len(want))
		}
	})
}

// groControl is what the kernel says of a message that it joined.
func groControl(b *batch, i, segment int) {
	n := putControl(b.ctl[i][:], 17, 104, 4) // SOL_UDP, UDP_GRO
	binary.NativeEndian.PutUint32(b.ctl[i][16:], uint32(segment))
	b.msgs[i].hdr.SetControllen(n)
}

// TestAdapt: after a message with many packets all fit, and when they stay away more
// messages are received at once again.
func TestAdapt(t *testing.T) {
	r := newReader()
	if r.adapt(fitNear); r.apart != fitNear {
		t.Errorf("%d packets fit", fitNear)
	}
	if r.adapt(fitNear + 1); r.apart != fitAll {
		t.Errorf("%d packets do not fit, and are %d apart", fitNear+1, r.apart)
	}
	for i := range calmAfter {
		if r.apart != fitAll {
			t.Fatalf("near again after %d", i)
		}
		r.adapt(1)
	}
	if r.apart != fitNear {
		t.Errorf("%d apart after %d calm ones", r.apart, calmAfter)
	}
}

// FuzzControl: whatever the kernel should say, reading it ends, and within its bytes.
func FuzzControl(f *testing.F) {
	b := newBatch()
	b.setControl(0, netip.MustParseAddr("fe80::1%7"), 1400)
	f.Add(b.ctl[0][:])
	f.Add(bytes.Repeat([]byte{0xff}, controlSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBatch()
		b.msgs[0].hdr.SetControllen(copy(b.ctl[0][:], data))
		if _, segment := b.control(0); segment < 0 || segment > 1<<16 {
			t.Errorf("segments of %d bytes", segment)
		}
	})
}

// FuzzSort: packets of strangers are given to nobody, whatever they are; none is for
// WireGuard that would not bear its index or MAC.
func FuzzSort(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 1, 0, 0, 0})
	f.Add(append([]byte{1, 0, 0, 0}, make([]byte, 144)...))
	f.Add(append([]byte{2, 0, 0, 0}, make([]byte, 88)...))
	f.Add([]byte{0xf5, 0x54, 0x42, 0x01})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > 1<<16-1 {
			return
		}
		s := &Socket{}
		s.probes, s.stuns = newQueue(4, tunnelProbe, &s.counts.Probes), newQueue(4, tunnelProbe, &s.counts.STUN)
		s.sessions.init()
		p := &peers{of: map[member.Key]*endpoint{}}
		bind := newBind(s, p, nil)
		s.sessions.setKey(member.Key{1})
		given := len(packet) > 0 && packet[0] > typeResponse // WireGuard drops what is for no session
		buf := make([]byte, 1<<16)
		in := room{bufs: [][]byte{buf}, sizes: []int{copy(buf, packet)}, eps: make([]conn.Endpoint, 1), from: make([]source, 1)}
		n := s.sort(newReader(), in)
		if n != 0 && !given || (n != 0) != (in.sizes[0] != 0) {
			t.Errorf("%x is for the device", packet)
		}
		peer := p.add(member.Key{7})
		if bind.Receive(peer.key, packet); len(bind.inject.full) != 0 && !given {
			t.Errorf("%x by a relay is for the device", packet)
		}
		if peer.received.Load() != 0 {
			t.Errorf("%x counts as the peer's", packet)
		}
		total := s.counts.Unknown.Load() + s.counts.Stray.Load() + uint64(len(s.probes.full)+len(s.stuns.full)) + s.counts.Probes.Load() + s.counts.STUN.Load()
		if len(packet) > 0 && n == 0 && total == 0 {
			t.Errorf("%x is not accounted for", packet)
		}
	})
}

// TestSessions: a packet counts for the peer to which its index was given, for as long as a session
// may live, and a handshake is for this node by its first MAC alone.
func TestSessions(t *testing.T) {
	s := &Socket{}
	s.sessions.init()
	p := &peers{of: map[member.Key]*endpoint{}}
	b := newBind(s, p, nil)
	s.sessions.setKey(member.Key{1})
	one, two := p.add(member.Key{1}), p.add(member.Key{2})
	shake := func(kind byte, size int, index uint32) []byte {
		m := make([]byte, size)
		m[0] = kind
		binary.LittleEndian.PutUint32(m[4:], index)
		return m
	}
	b.learn([][]byte{shake(typeInitiation, sizeInitiation, 11)}, one)
	b.learn([][]byte{shake(typeResponse, sizeResponse, 22), shake(typeTransport, 100, 33)}, two)
	find := func(m []byte) (*endpoint, bool) {
		l := s.sessions.look()
		defer l.unlock()
		return l.find(m)
	}
	answer := shake(typeResponse, sizeResponse, 0)
	binary.LittleEndian.PutUint32(answer[8:], 11)
	forged := bytes.Clone(answer)
	mac, err := blake2s.New128(s.sessions.mac.Load()[:])
	if err != nil {
		t.Fatal(err)
	}
	mac.Write(answer[:sizeResponse-32])
	copy(answer[sizeResponse-32:], mac.Sum(nil))
	for _, c := range []struct {
		name string
		m    []byte
		peer *endpoint
		ok   bool
	}{
		{"content", shake(typeTransport, 32, 11), one, true},
		{"an answer", answer, one, true},
		{"an answer without a MAC", forged, nil, false},
		{"a cookie", shake(typeCookie, sizeCookie, 22), two, true},
		{"what was no handshake", shake(typeTransport, 32, 33), nil, true},
		{"a short one", shake(typeTransport, 31, 11), nil, false},
		{"a long cookie", shake(typeCookie, sizeCookie+1, 22), nil, false},
		{"a handshake for nobody", shake(typeInitiation, sizeInitiation, 11), nil, false},
	} {
		if peer, ok := find(c.m); peer != c.peer || ok != c.ok {
			t.Errorf("%s: %p, %v", c.name, peer, ok)
		}
	}
	for i := range uint32(2 * tunnelIndexes) {
		b.learn([][]byte{shake(typeInitiation, sizeInitiation, 1000+i)}, one)
	}
	if n := len(s.sessions.given[one]); n > tunnelIndexes || len(s.sessions.owner) != n+1 {
		t.Errorf("%d indexes of a peer, %d in all", n, len(s.sessions.owner))
	}
	s.sessions.forget(one)
	if peer, _ := find(shake(typeTransport, 32, 1000+2*tunnelIndexes-1)); peer != nil || len(s.sessions.owner) != 1 {
		t.Error("a peer that is gone has a session")
	}
}

func TestScript(t *testing.T) {
	k1, k2 := member.Key{1}, member.Key{2}
	prefix := func(s ...string) (out []netip.Prefix) {
		for _, s := range s {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	psk := NewSecret([32]byte{0xaa})
	one := Peer{Key: k1, Probes: true, PSK: psk, Ranges: prefix("10.0.0.0/24"), Keepalive: 25 * time.Second}
	with := func(change func(p *Peer)) Peer { p := one; change(&p); return p }
	name := func(k member.Key) string { return fmt.Sprintf("public_key=%x\n", k[:]) }
	update := func(k member.Key) string { return name(k) + "update_only=true\n" }
	end := func(k member.Key) string { return "endpoint=peer:" + k.String() + "\n" }
	secret := "preshared_key=aa" + strings.Repeat("00", 31) + "\n"
	all := func(ps ...Peer) map[member.Key]Peer {
		m := map[member.Key]Peer{}
		for _, p := range ps {
			m[p.Key] = p
		}
		return m
	}
	whole := secret + "persistent_keepalive_interval=25\nallowed_ip=10.0.0.0/24\n"
	for _, c := range []struct {
		name       string
		have, want map[member.Key]Peer
		text       string
	}{
		{"nothing", nil, nil, ""},
		{"the same", all(one), all(one), ""},
		{"the same, in other words", all(one), all(with(func(p *Peer) { p.Ranges = prefix("10.0.0.9/24") })), ""},
		{"a new one", nil, all(one), name(k1) + end(k1) + update(k1) + whole},
		{"one without probes, which roams", nil, all(with(func(p *Peer) { p.Probes = false })), name(k1) + name(k1) + end(k1) + update(k1) + whole},
		{"one that learned probes", all(with(func(p *Peer) { p.Probes = false })), all(one), name(k1) + "remove=true\n" + name(k1) + end(k1) + update(k1) + whole},
		{"gone", all(one), nil, name(k1) + "remove=true\n"},
		{"another key", all(with(func(p *Peer) { p.PSK = Secret{} })), all(one), update(k1) + secret},
		{"no key any more", all(one), all(with(func(p *Peer) { p.PSK = Secret{} })), update(k1) + "preshared_key=" + strings.Repeat("00", 32) + "\n"},
		{"a keepalive less", all(one), all(with(func(p *Peer) { p.Keepalive = 0 })), update(k1) + "persistent_keepalive_interval=0\n"},
		{"a range more, one less", all(one), all(with(func(p *Peer) { p.Ranges = prefix("fd00::/8") })),
			update(k1) + "allowed_ip=fd00::/8\n" + update(k1) + "allowed_ip=-10.0.0.0/24\n"},
		{"a range that moves is given first", all(one), all(with(func(p *Peer) { p.Ranges = nil }), Peer{Key: k2, Probes: true, Ranges: one.Ranges}),
			name(k2) + end(k2) + update(k2) + "allowed_ip=10.0.0.0/24\n" + update(k1) + "allowed_ip=-10.0.0.0/24\n"},
	} {
		if got := script(c.have, c.want); got != c.text {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.text)
		}
	}
}

// TestNoMemoryForAPacket: what comes from the same peer, or from whoever sends junk, costs no
// memory for each packet.
func TestNoMemoryForAPacket(t *testing.T) {
	s, err := OpenSocket(t.Context(), SocketConfig{Offloads: AllOffloads()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := &peers{of: map[member.Key]*endpoint{}}
	b := newBind(s, p, nil)
	shake := make([]byte, sizeInitiation)
	shake[0], shake[4] = typeInitiation, 11
	b.learn([][]byte{shake}, p.add(member.Key{1}))
	content := make([]byte, 200)
	content[0], content[4] = typeTransport, 11
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())
	in := room{bufs: [][]byte{make([]byte, 1<<16)}, sizes: make([]int, 1), eps: make([]conn.Endpoint, 1), from: make([]source, 1)}
	const runs = 100
	for name, packet := range map[string][]byte{"content": content, "junk": []byte("junk")} {
		for range runs + 1 {
			if err := s.Send(at, netip.Addr{}, packet); err != nil {
				t.Fatal(err)
			}
		}
		got := testing.AllocsPerRun(runs, func() {
			in.sizes = in.sizes[:1]
			if n, err := b.receive(s.families[0], in); err != nil || n == 1 != (name == "content") {
				t.Errorf("%d packets, %v", n, err)
			}
		})
		if got >= 1 {
			t.Errorf("%s: %v allocations for a packet", name, got)
		}
	}
	if a := p.get(member.Key{1}).activity(); a.Received != runs+1 || s.counts.Unknown.Load() != runs+1 {
		t.Errorf("%d received, %d unknown", a.Received, s.counts.Unknown.Load())
	}
}

// TestQueue: it takes as many as it has room for, of the size that it has room for, and gives
// them back whole and in order.
func TestQueue(t *testing.T) {
	var dropped atomic.Uint64
	q := newQueue(2, 10, &dropped)
	for i, c := range []struct {
		data string
		want bool
	}{{"one", true}, {"eleven byte", false}, {"two", true}, {"three", false}} {
		if got := q.put(slot{data: []byte(c.data)}); got != c.want {
			t.Errorf("%d: %q is taken: %v", i, c.data, got)
		}
	}
	for _, want := range []string{"one", "two"} {
		s := <-q.full
		if string(s.data) != want {
			t.Errorf("%q, want %q", s.data, want)
		}
		q.back(s)
	}
	if !q.put(slot{data: []byte("four")}) || dropped.Load() != 2 {
		t.Errorf("%d dropped", dropped.Load())
	}
}
