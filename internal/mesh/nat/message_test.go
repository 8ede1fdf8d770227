// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/stun/v3"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestARequestIsAnsweredWithWhereItCameFrom(t *testing.T) {
	for _, from := range []string{"192.0.2.7:51820", "[2001:db8::7]:51820", "[::ffff:192.0.2.7]:51820"} {
		req := Request(ID{1, 2, 3}, WishNothing)
		if len(req) != 20 || !IsSTUN(req) {
			t.Fatalf("a request of %d bytes: %x", len(req), req)
		}
		m, err := Parse(req)
		if err != nil || m.Class != ClassRequest || m.ID != (ID{1, 2, 3}) || m.ChangePort {
			t.Fatalf("%+v, %v", m, err)
		}
		answer := Answer(m, at(from), netip.AddrPort{})
		want := 32
		if unmap(at(from)).Addr().Is6() {
			want = 44
		}
		if len(answer) != want {
			t.Errorf("the answer to %s has %d bytes, want %d", from, len(answer), want)
		}
		got, err := Parse(answer)
		if err != nil || got.Class != ClassSuccess || got.ID != m.ID || got.Mapped != unmap(at(from)) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestVectors reads the answers of RFC 5769, which carry attributes that we do not need.
func TestVectors(t *testing.T) {
	v4, _ := hex.DecodeString("0101003c2112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220002000080001a147e112a643" +
		"000800142b91f599fd9e90c38c7489f92af9ba53f06be7d780280004c07d4c96")
	v6, _ := hex.DecodeString("010100482112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220002000140002a1470113a9faa5d3f179bc25f4b5bed2b9d9" +
		"00080014a382954e4be67bf11784c97c8292c275bfe3ed4180280004c8fb0b4c")
	for want, b := range map[string][]byte{"192.0.2.1:32853": v4, "[2001:db8:1234:5678:11:2233:4455:6677]:32853": v6} {
		m, err := Parse(b)
		if err != nil || m.Mapped != at(want) {
			t.Errorf("%+v, %v; want %s", m, err, want)
		}
		b[len(b)-1] ^= 1
		if _, err := Parse(b); err == nil {
			t.Error("a wrong fingerprint was taken")
		}
	}
}

func TestAFingerprintIsAnsweredWithOne(t *testing.T) {
	raw := stun.MustBuild(stun.TransactionID, stun.BindingRequest, stun.Fingerprint)
	m, err := Parse(raw.Raw)
	if err != nil || !m.Fingerprint {
		t.Fatalf("%+v, %v", m, err)
	}
	answer := Answer(m, at("192.0.2.7:1"), netip.AddrPort{})
	if got, err := Parse(answer); err != nil || !got.Fingerprint || got.Mapped != at("192.0.2.7:1") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAttributesOfRequests(t *testing.T) {
	build := func(attrs ...stun.RawAttribute) []byte {
		m := begin(stun.BindingRequest, ID{9})
		for _, a := range attrs {
			m.Add(a.Type, a.Value)
		}
		return m.Raw
	}
	change := func(flags byte) stun.RawAttribute {
		return stun.RawAttribute{Type: stun.AttrChangeRequest, Value: []byte{0, 0, 0, flags}}
	}
	for name, c := range map[string]struct {
		b       []byte
		port    bool
		address bool
		unknown []uint16
	}{
		"none":            {b: build()},
		"change port":     {b: build(change(2)), port: true},
		"change address":  {b: build(change(4)), address: true},
		"both":            {b: build(change(6)), port: true, address: true},
		"of strange size": {b: build(stun.RawAttribute{Type: stun.AttrChangeRequest, Value: []byte{2}}), unknown: []uint16{3}},
		"credentials":     {b: build(stun.RawAttribute{Type: stun.AttrUsername, Value: []byte("x")})},
		"may be ignored":  {b: build(stun.RawAttribute{Type: 0x8abc, Value: []byte("x")})},
		"must be known":   {b: build(stun.RawAttribute{Type: 0x7abc}, stun.RawAttribute{Type: 0x25}), unknown: []uint16{0x7abc, 0x25}},
		"too many":        {b: build(slices.Repeat([]stun.RawAttribute{{Type: 0x7abc}}, 9)...), unknown: []uint16{0x7abc, 0x7abc, 0x7abc, 0x7abc}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(c.b)
			if err != nil || m.ChangePort != c.port || m.ChangeAddress != c.address || !slices.Equal(m.Unknown, c.unknown) {
				t.Fatalf("%+v, %v", m, err)
			}
			refusal, err := Parse(Refusal(m))
			if err != nil || refusal.Code != 420 || refusal.ID != m.ID || refusal.Class != ClassFailure {
				t.Errorf("%+v, %v", refusal, err)
			}
		})
	}
	if change := Request(ID{1}, WishOtherPort); !bytes.Equal(change[20:], []byte{0, 3, 0, 4, 0, 0, 0, 2}) {
		t.Errorf("%x", change)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	good := Request(ID{1}, WishNothing)
	edit := func(fn func(b []byte) []byte) []byte { return fn(bytes.Clone(good)) }
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"short":           good[:19],
		"cookie":          edit(func(b []byte) []byte { b[4] = 0; return b }),
		"top bits":        edit(func(b []byte) []byte { b[0] = 0x40; return b }),
		"length":          edit(func(b []byte) []byte { b[3] = 4; return b }),
		"trailing":        edit(func(b []byte) []byte { return append(b, 0, 0, 0, 0) }),
		"odd":             edit(func(b []byte) []byte { b[3] = 2; return append(b, 0, 0) }),
		"attribute":       edit(func(b []byte) []byte { b[3] = 4; return append(b, 0, 1, 0, 8) }),
		"allocate":        edit(func(b []byte) []byte { b[1] = 3; return b }),
		"indication":      edit(func(b []byte) []byte { b[1] = 0x11; return b }),
		"success without": edit(func(b []byte) []byte { b[0] = 1; b[1] = 1; return b }),
		"failure without": edit(func(b []byte) []byte { b[0] = 1; b[1] = 0x11; return b }),
		"huge": edit(func(b []byte) []byte {
			b[2], b[3] = byte(limit.STUNMessage>>8), byte(limit.STUNMessage&0xff)
			return append(b, make([]byte, limit.STUNMessage)...)
		}),
	} {
		if m, err := Parse(b); err == nil {
			t.Errorf("%s is %+v", name, m)
		}
	}
}

func TestTheOtherEndpointIsToldToWhoSpeaksOfIt(t *testing.T) {
	for wish, want := range map[Wish]netip.AddrPort{WishNothing: {}, WishOther: at("198.51.100.1:3478"), WishOtherPort: at("198.51.100.1:3478")} {
		m, err := Parse(Request(ID{1}, wish))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(Answer(m, at("203.0.113.9:4000"), at("198.51.100.1:3478")))
		if err != nil || got.Other != want || got.Mapped != at("203.0.113.9:4000") {
			t.Errorf("wish %d: %+v, %v", wish, got, err)
		}
	}
}

// FuzzParse: whatever comes, nothing panics; what is a request is answered with
// 40 bytes more at most, and the answer is read as it was written.
func FuzzParse(f *testing.F) {
	f.Add(Request(ID{1}, WishNothing))
	f.Add(Request(ID{1}, WishOtherPort))
	f.Add(stun.MustBuild(stun.TransactionID, stun.BindingRequest, stun.NewUsername("x"), stun.Fingerprint).Raw)
	f.Add(Answer(Message{ID: ID{2}}, at("192.0.2.1:5"), netip.AddrPort{}))
	f.Add(Refusal(Message{ID: ID{2}, Unknown: []uint16{5}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		if !IsSTUN(b) {
			t.Fatal("a message that is none")
		}
		if m.Class != ClassRequest {
			return
		}
		for _, answer := range [][]byte{Answer(m, at("[2001:db8::1]:9"), at("[2001:db8::2]:9")), Refusal(m)} {
			if len(answer) > len(b)+40 {
				t.Fatalf("%d bytes for %d", len(answer), len(b))
			}
			if got, err := Parse(answer); err != nil || got.ID != m.ID {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	})
}

func TestOnlyAnswersCount(t *testing.T) {
	server, now := at("198.51.100.1:3478"), time.Unix(1000, 0)
	ask := func() (*Client, Message) {
		c := NewClient([32]byte{7})
		m, err := Parse(c.Ask(server, now))
		if err != nil {
			t.Fatal(err)
		}
		return c, m
	}
	later := now.Add(30 * time.Millisecond)
	c, m := ask()
	good := Answer(m, at("203.0.113.9:4000"), netip.AddrPort{})
	got, err := c.Take(at("[::ffff:198.51.100.1]:3478"), good, later)
	if err != nil || got.Mapped != at("203.0.113.9:4000") || got.Server != server || got.RTT != 30*time.Millisecond {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := c.Take(server, good, later); err == nil {
		t.Error("an answer counts twice")
	}
	for name, try := range map[string]func(c *Client, m Message) error{
		"another address": func(c *Client, m Message) error { _, err := c.Take(at("198.51.100.2:3478"), good, later); return err },
		"another port":    func(c *Client, m Message) error { _, err := c.Take(at("198.51.100.1:3479"), good, later); return err },
		"another id": func(c *Client, m Message) error {
			m.ID[0]++
			_, err := c.Take(server, Answer(m, at("203.0.113.9:4000"), netip.AddrPort{}), later)
			return err
		},
		"a request": func(c *Client, m Message) error {
			_, err := c.Take(server, Request(m.ID, WishNothing), later)
			return err
		},
		"a refusal": func(c *Client, m Message) error { _, err := c.Take(server, Refusal(m), later); return err },
		"too late":  func(c *Client, m Message) error { c.Forget(later); _, err := c.Take(server, good, later); return err },
		"nonsense":  func(c *Client, m Message) error { _, err := c.Take(server, []byte("x"), later); return err },
		"IPv6": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("[2001:db8::1]:9"), netip.AddrPort{}), later)
			return err
		},
		"loopback": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("127.0.0.1:9"), netip.AddrPort{}), later)
			return err
		},
		"multicast": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("224.0.0.1:9"), netip.AddrPort{}), later)
			return err
		},
		"broadcast": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("255.255.255.255:9"), netip.AddrPort{}), later)
			return err
		},
		"port 0": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("203.0.113.9:0"), netip.AddrPort{}), later)
			return err
		},
		"link-local": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("169.254.1.1:9"), netip.AddrPort{}), later)
			return err
		},
		"unspecified": func(c *Client, m Message) error {
			_, err := c.Take(server, Answer(m, at("0.0.0.0:9"), netip.AddrPort{}), later)
			return err
		},
	} {
		c, m := ask()
		if try(c, m) == nil {
			t.Errorf("%s counts", name)
		}
	}
}

func TestAnswersFromOtherPortsAndFromOurselves(t *testing.T) {
	server, now := at("198.51.100.1:3478"), time.Unix(1000, 0)
	c := NewClient([32]byte{1})
	m, _ := Parse(c.AskWish(server, WishOtherPort, now))
	if !m.ChangePort {
		t.Fatal("the request does not ask for another port")
	}
	if _, err := c.Take(at("198.51.100.2:3479"), Answer(m, at("203.0.113.9:4000"), netip.AddrPort{}), now); err == nil {
		t.Error("another address answers for the server")
	}
	if got, err := c.Take(at("198.51.100.1:3479"), Answer(m, at("203.0.113.9:4000"), netip.AddrPort{}), now); err != nil || got.Wish != WishOtherPort || got.From.Port() != 3479 {
		t.Errorf("%+v, %v", got, err)
	}
	self := at("203.0.113.9:4000")
	req := c.AskSelf(self, now)
	m, _ = Parse(req)
	if _, err := c.Take(self, Answer(m, self, netip.AddrPort{}), now); err == nil {
		t.Error("an answer counts as our request that came back")
	}
	if got, err := c.Take(at("10.0.0.1:4000"), req, now); err != nil || !got.Hairpin {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIDsAreSecretAndOpenRequestsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := NewClient([32]byte{1}), NewClient([32]byte{2})
	seen := map[string]bool{}
	for i := range limit.STUNOpen + 10 {
		for _, c := range []*Client{a, b} {
			req := c.Ask(at("198.51.100.1:1"), now.Add(time.Duration(i)))
			if seen[string(req)] {
				t.Fatal("an id comes twice")
			}
			seen[string(req)] = true
		}
	}
	if len(a.open) != limit.STUNOpen {
		t.Errorf("%d requests are open", len(a.open))
	}
}
