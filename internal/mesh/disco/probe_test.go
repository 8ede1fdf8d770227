// SPDX-License-Identifier: Apache-2.0

package disco_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

func key(t testing.TB, b byte) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(k *ecdh.PrivateKey) [32]byte { return [32]byte(k.PublicKey().Bytes()) }

// pairs are both ends of one pair.
func pairs(t testing.TB, psk byte) (one, two *disco.Pair) {
	t.Helper()
	a, b := key(t, 1), key(t, 2)
	one, err := disco.NewPair(a, public(b), [32]byte{psk})
	if err != nil {
		t.Fatal(err)
	}
	two, err = disco.NewPair(b, public(a), [32]byte{psk})
	if err != nil {
		t.Fatal(err)
	}
	return one, two
}

type counter byte

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		*c++
		b[i] = byte(*c)
	}
	return len(b), nil
}

func messages() []disco.Message {
	at := netip.MustParseAddrPort
	return []disco.Message{
		{Ping: &disco.Ping{ID: 7}},
		{Ping: &disco.Ping{ID: 1 << 63, Wanted: true}},
		{Pong: &disco.Pong{ID: 7, From: at("198.51.100.7:51820"), Size: 1452}},
		{Pong: &disco.Pong{ID: 7, From: at("[2001:db8::7]:1"), Size: 91}},
		{Pong: &disco.Pong{ID: 7}}, // by a relay there is no address
		{Call: &disco.Call{}},
		{Call: &disco.Call{Endpoints: []netip.AddrPort{at("10.0.0.1:51820"), at("[2001:db8::1]:65535")}}},
		{Pong: &disco.Pong{ID: 7, From: at("198.51.100.7:51820"), Size: 1452, Wanted: true}},
		{Ping: &disco.Ping{ID: 3, Asks: true}},
		{Ping: &disco.Ping{ID: 3, Alone: true}},
		{Pong: &disco.Pong{ID: 7, From: at("198.51.100.7:51820"), Size: 1452, Alone: true}},
		{Trial: &disco.Trial{ID: 7, Heard: 1 << 40}},
		{Trial: &disco.Trial{ID: 7, Answer: true}},
		{Trial: &disco.Trial{ID: 7, Answer: true, Rests: true}},
	}
}

func TestWhatIsSealedIsOpened(t *testing.T) {
	one, two := pairs(t, 3)
	for _, m := range messages() {
		for _, size := range []int{0, 100, 1252, 1472} {
			b, err := one.Seal(nil, new(counter), m, size)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) < size || size > 200 && len(b) != size {
				t.Errorf("%d bytes, want %d", len(b), size)
			}
			if disco.KindOf(b) != disco.Probe {
				t.Error("it is not known as a probe")
			}
			if h, ok := disco.HintOf(b); !ok || h != two.Hint {
				t.Errorf("the hint is %x, want %x", h, two.Hint)
			}
			got, err := two.Open(b)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%+v became %+v, %v", m, got, err)
			}
			if _, err := one.Open(b); err == nil {
				t.Error("a probe was taken by who sent it")
			}
		}
	}
}

// TestCallsToNobody: what cannot be the address of one machine is not called, nor anything else of
// such a call.
func TestCallsToNobody(t *testing.T) {
	one, two := pairs(t, 3)
	at := netip.MustParseAddrPort
	for _, bad := range []netip.AddrPort{
		at("0.0.0.0:1"), at("[::]:1"), at("224.0.0.1:1"), at("[ff02::1]:1"), at("255.255.255.255:1"), at("192.0.2.1:0"), at("[::ffff:224.0.0.1]:1"),
	} {
		b, err := one.Seal(nil, new(counter), disco.Message{Call: &disco.Call{Endpoints: []netip.AddrPort{at("192.0.2.1:1"), bad}}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := two.Open(b); err == nil {
			t.Errorf("%v is called: %+v", bad, m.Call)
		}
	}
}

func TestNoAnswerIsLongerThanWhatItAnswers(t *testing.T) {
	one, _ := pairs(t, 3)
	ping, err := one.Seal(nil, new(counter), messages()[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	pong, err := one.Seal(nil, new(counter), messages()[3], 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(pong) > len(ping) {
		t.Errorf("a ping of %d bytes is answered with %d", len(ping), len(pong))
	}
}

func TestOneBitMore(t *testing.T) {
	one, two := pairs(t, 3)
	b, err := one.Seal(nil, new(counter), messages()[2], 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		wrong := bytes.Clone(b)
		wrong[i/8] ^= 1 << (i % 8)
		if m, err := two.Open(wrong); err == nil {
			t.Fatalf("with bit %d turned it is taken: %+v", i, m)
		}
	}
	for n := range b {
		if _, err := two.Open(b[:n]); err == nil {
			t.Fatalf("cut to %d bytes it is taken", n)
		}
	}
}

func TestAnotherPresharedKey(t *testing.T) {
	one, _ := pairs(t, 3)
	_, other := pairs(t, 4)
	b, err := one.Seal(nil, new(counter), messages()[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(b); err == nil {
		t.Error("who does not know the cluster's secret was heard")
	}
}

func TestKeysOfLowOrder(t *testing.T) {
	low := [][32]byte{{}, {1}}
	for _, text := range []string{
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	} {
		raw, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		low = append(low, [32]byte(raw))
	}
	for _, k := range low {
		if _, err := disco.NewPair(key(t, 1), k, [32]byte{3}); err == nil {
			t.Errorf("%x was taken", k)
		}
	}
}

func TestNothingIsPrinted(t *testing.T) {
	one, _ := pairs(t, 3)
	shown := fmt.Sprintf("%v %+v %#v", one, *one, *one)
	if strings.Count(shown, "0x") > 40 || len(shown) > 500 { // two hints and four functions
		t.Errorf("it prints %d bytes: %s", len(shown), shown)
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]disco.Kind{
		"": disco.Unknown, "010000": disco.Unknown,
		"01000000": disco.WireGuard, "04000000ff": disco.WireGuard, "05000000": disco.Unknown, "00000000": disco.Unknown,
		"01000001": disco.Unknown, "f5544201": disco.Probe, "f5544202": disco.Unknown, "f5544245": disco.IPsec,
		"000100002112a442000102030405060708090a0b":     disco.STUN, // a request
		"010100002112a442000102030405060708090a0b":     disco.STUN, // a response
		"010100002112a443000102030405060708090a0b":     disco.Unknown,
		"410100002112a442000102030405060708090a0b":     disco.Unknown,
		"000100002112a442000102030405060708090a":       disco.Unknown,
		"010000002112a442000102030405060708090a0b0c0d": disco.WireGuard,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := disco.KindOf(b); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}

// The vectors were made by testdata/vectors.py, which knows the specification alone.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Sender, Receiver, PSK, Hint, Nonce string
		Probes                             []struct{ What, Payload, Packet string }
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	raw := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sender, err := ecdh.X25519().NewPrivateKey(raw(v.Sender))
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := ecdh.X25519().NewPrivateKey(raw(v.Receiver))
	if err != nil {
		t.Fatal(err)
	}
	out, err := disco.NewPair(sender, public(receiver), [32]byte(raw(v.PSK)))
	if err != nil {
		t.Fatal(err)
	}
	in, err := disco.NewPair(receiver, public(sender), [32]byte(raw(v.PSK)))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(in.Hint[:]); got != v.Hint {
		t.Errorf("the hint is %s, want %s", got, v.Hint)
	}
	want := map[string]disco.Message{"ping": messages()[1], "pong": messages()[2], "call": messages()[6], "wanted": messages()[7], "unknown": {}}
	if len(v.Probes) != len(want) {
		t.Fatalf("%d vectors, want %d", len(v.Probes), len(want))
	}
	for _, p := range v.Probes {
		packet := raw(p.Packet)
		got, err := in.Open(packet)
		if err != nil || !reflect.DeepEqual(got, want[p.What]) {
			t.Errorf("%s: %+v, %v", p.What, got, err)
		}
		if p.What == "unknown" {
			continue
		}
		sealed, err := out.Seal(nil, bytes.NewReader(raw(v.Nonce)), want[p.What], 0)
		if err != nil || !bytes.Equal(sealed, packet) {
			t.Errorf("%s: sealed as %x, %v", p.What, sealed, err)
		}
	}
}

func TestACallIsBounded(t *testing.T) {
	one, two := pairs(t, 3)
	call := &disco.Call{}
	for i := range 100 {
		call.Endpoints = append(call.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 1))
	}
	b, err := one.Seal(nil, new(counter), disco.Message{Call: call}, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := two.Open(b)
	if err != nil || len(got.Call.Endpoints) != limit.PathCalledAt {
		t.Errorf("%d endpoints, %v", len(got.Call.Endpoints), err)
	}
}
