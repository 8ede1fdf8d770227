// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

var ( // addresses as bytes
	ten    = []byte{10, 0, 0, 5}
	mapped = netip.MustParseAddr("::ffff:10.0.0.5").AsSlice()
	ula    = netip.MustParseAddr("fd00::a").AsSlice()
	global = netip.MustParseAddr("2001:db8::5").AsSlice()
)

func wgKey() []byte { return append([]byte{9}, make([]byte, 31)...) } // RFC 7748: the base point

func aPin() []byte { return append(make([]byte, 31), 8) }

func full() *discovery.Member {
	return &discovery.Member{
		Node: "machine-1", Hostname: "worker-1.example", Nodename: "worker-1", Addresses: [][]byte{ten, mapped, global},
		Endpoints:    []*discovery.Endpoint{{Ip: mapped, Port: 51820, Kind: "own"}, {Ip: ten, Port: 51820, Kind: "own"}, {Ip: global, Port: 1, Kind: "of tomorrow"}},
		WireguardKey: wgKey(), Overlay6: ula, Overlay4: []byte{100, 64, 0, 1},
		Ranges:   []*discovery.Prefix{{Ip: []byte{10, 244, 1, 7}, Bits: 24}, {Ip: netip.MustParseAddr("::ffff:10.244.1.0").AsSlice(), Bits: 120}, {Ip: global, Bits: 64}, {Ip: []byte{10, 0, 0, 1}, Bits: 32}},
		Excluded: []*discovery.Prefix{{Ip: []byte{0, 0, 0, 0}, Bits: 0}, {Ip: make([]byte, 16), Bits: 0}, {Ip: global, Bits: 128}},
		Observed: []*discovery.Observation{{WireguardKey: wgKey(), Endpoint: &discovery.Endpoint{Ip: ten, Port: 65535, Kind: "observed"}}},
		Role:     "controlplane", ApiServerPort: 6443, OperatingSystem: "an\x1b[31m OS\u202e", Software: strings.Repeat("é", 200),
		Mesh: 7, RelayCluster: "c1", Relays: []string{"hub-2", "hub-1", "hub-2"}, Pin: aPin(), Engine: "of tomorrow",
	}
}

func TestParseMember(t *testing.T) {
	got, err := seal.ParseMember(full())
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	want := member.Facts{
		Node: "machine-1", Hostname: "worker-1.example", Nodename: "worker-1", Role: member.RoleControlPlane, APIServerPort: 6443,
		OS: "an?[31m OS?", Software: strings.Repeat("é", seal.DiscoveryText/2), Key: member.Key(wgKey()),
		Overlay6: netip.MustParseAddr("fd00::a"), Overlay4: netip.MustParseAddr("100.64.0.1"),
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5")},
		Endpoints: []member.Endpoint{{Addr: at("10.0.0.5:51820"), Kind: member.KindOwn}, {Addr: at("[2001:db8::5]:1")}},
		Ranges:    []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("10.0.0.1/32")},
		Excluded:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("2001:db8::5/128")},
		Observed:  []member.Observation{{Key: member.Key(wgKey()), Addr: at("10.0.0.5:65535")}},
		Mesh:      7, RelayCluster: "c1", Relays: []string{"hub-2", "hub-1"}, Pin: member.Pin(aPin()), Engine: "of tomorrow",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if again, err := seal.ParseMember(seal.Message(got)); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("as a message and back %+v, %v", again, err)
	}
	bare, err := seal.ParseMember(&discovery.Member{Node: "a", Role: "of tomorrow"})
	if err != nil || !reflect.DeepEqual(bare, member.Facts{Node: "a"}) || !proto.Equal(seal.Message(bare), says("a")) {
		t.Errorf("the least member: %+v, %v", bare, err)
	}
}

func TestParseMemberRefuses(t *testing.T) {
	type m = discovery.Member
	many := func(n int) (out [][]byte) {
		for i := range n {
			out = append(out, []byte{10, 1, byte(i >> 8), byte(i)})
		}
		return out
	}
	for why, change := range map[string]func(*m){
		"node: the member does not say":        func(m *m) { m.Node = "" },
		"node: it has more":                    func(m *m) { m.Node = strings.Repeat("a", seal.DiscoveryText+1) },
		"hostname: it has more":                func(m *m) { m.Hostname = "a\nb" },
		"nodename: it has more":                func(m *m) { m.Nodename = "a\u202eb" },
		"addresses[1]: an address has 4":       func(m *m) { m.Addresses[1] = ten[:3] },
		"addresses[0]: 0.0.0.0 is not":         func(m *m) { m.Addresses[0] = make([]byte, 4) },
		"addresses[0]: :: is not":              func(m *m) { m.Addresses[0] = make([]byte, 16) },
		"addresses[0]: 224.0.0.1 is not":       func(m *m) { m.Addresses[0] = netip.MustParseAddr("::ffff:224.0.0.1").AsSlice() },
		"addresses[0]: 255.255.255.255 is not": func(m *m) { m.Addresses[0] = []byte{255, 255, 255, 255} },
		"addresses: there are 257":             func(m *m) { m.Addresses = many(limit.DiscoveryFacts + 1) },
		"endpoints: there are 65":              func(m *m) { m.Endpoints = make([]*discovery.Endpoint, limit.DiscoveryEndpoints+1) },
		"endpoints[2]: there is no port":       func(m *m) { m.Endpoints[2].Port = 0 },
		"endpoints[2]: port 65536":             func(m *m) { m.Endpoints[2].Port = 65536 },
		"endpoints[0]: an address has":         func(m *m) { m.Endpoints[0] = nil },
		"wireguard_key: a key has 32":          func(m *m) { m.WireguardKey = m.WireguardKey[:31] },
		"wireguard_key: the key is zero":       func(m *m) { m.WireguardKey = make([]byte, 32) },
		"wireguard_key: the key is of low":     func(m *m) { m.WireguardKey = append([]byte{1}, make([]byte, 31)...) },
		"pin: a pin has 32":                    func(m *m) { m.Pin = m.Pin[:31] },
		"pin: the pin is zero":                 func(m *m) { m.Pin = make([]byte, 32) },
		"engine: it has more":                  func(m *m) { m.Engine = "ip\nsec" },
		"overlay6: 100.64.0.1 is not":          func(m *m) { m.Overlay6 = m.Overlay4 },
		"overlay4: fd00::a is not":             func(m *m) { m.Overlay4 = m.Overlay6 },
		"overlay4: an address has":             func(m *m) { m.Overlay4 = []byte{1} },
		"ranges[0]: 10.244.1.7 has 32 bits":    func(m *m) { m.Ranges[0].Bits = 33 },
		"ranges[2]: 2001:db8::5 has 128":       func(m *m) { m.Ranges[2].Bits = 1<<32 - 1 },
		"ranges[1]: ::ffff:10.244.1.0/95":      func(m *m) { m.Ranges[1].Bits = 95 },
		"ranges[3]: an address has 4":          func(m *m) { m.Ranges[3].Ip = nil },
		"ranges[3]: 224.0.0.0/4 is":            func(m *m) { m.Ranges[3] = &discovery.Prefix{Ip: []byte{224, 0, 0, 9}, Bits: 4} },
		"ranges: there are 257":                func(m *m) { m.Ranges = make([]*discovery.Prefix, limit.DiscoveryFacts+1) },
		"excluded[1]: ::":                      func(m *m) { m.Excluded[1].Bits = 129 },
		"excluded: there are 257":              func(m *m) { m.Excluded = make([]*discovery.Prefix, limit.DiscoveryFacts+1) },
		"observed[0]: a key has":               func(m *m) { m.Observed[0].WireguardKey = nil },
		"observed[0]: an address has":          func(m *m) { m.Observed[0].Endpoint = nil },
		"observed: there are 257":              func(m *m) { m.Observed = make([]*discovery.Observation, limit.DiscoveryFacts+1) },
		"relay_cluster: cluster name":          func(m *m) { m.RelayCluster = "C1" },
		"relay_cluster: it is empty":           func(m *m) { m.RelayCluster = "" },
		"relays[1]: hub name":                  func(m *m) { m.Relays[1] = "a.b" },
		"relays[0]: hub name is empty":         func(m *m) { m.Relays[0] = "" },
		"relays: there are 9":                  func(m *m) { m.Relays = make([]string, limit.MeshRelays+1) },
		"api_server_port: port 65536":          func(m *m) { m.ApiServerPort = 65536 },
	} {
		t.Run(why, func(t *testing.T) {
			m := full()
			change(m)
			got, err := seal.ParseMember(m)
			refused(t, err, fault.CodeEntryInvalid, why)
			if !reflect.DeepEqual(got, member.Facts{}) {
				t.Errorf("half of it is taken: %+v", got)
			}
		})
	}
	most := full()
	most.Addresses = many(limit.DiscoveryFacts)
	if got, err := seal.ParseMember(most); err != nil || len(got.Addresses) != limit.DiscoveryFacts {
		t.Errorf("the most addresses: %d, %v", len(got.Addresses), err)
	}
	if _, err := seal.ParseMember(nil); err == nil {
		t.Error("nothing is a member")
	}
}

func TestSiderosEndpoints(t *testing.T) {
	key := secretOf(t, readVectors(t).Secret).Sidero()
	seals := func(text string) []byte {
		blob, err := key.SealEndpoint(netip.MustParseAddrPort(text))
		if err != nil {
			t.Fatal(err)
		}
		return blob
	}
	if a := seals("10.0.0.5:51820"); !bytes.Equal(a, seals("10.0.0.5:51820")) || !bytes.Equal(a, seals("[::ffff:10.0.0.5]:51820")) || bytes.Equal(a, seals("10.0.0.5:51821")) {
		t.Error("equal endpoints are not equal bytes, or others are")
	}
	for why, at := range map[string]netip.AddrPort{
		"there is no port": netip.MustParseAddrPort("10.0.0.5:0"), "there is no address": {}, "a zone": netip.MustParseAddrPort("[fe80::1%eth0]:1"),
		"one machine": netip.MustParseAddrPort("[ff02::1]:1"),
	} {
		_, err := key.SealEndpoint(at)
		refused(t, err, fault.CodeEntryInvalid, why)
	}
	field := func(ip []byte, port ...byte) []byte {
		return slices.Concat([]byte{0x0a, byte(len(ip))}, ip, []byte{0x10}, port)
	}
	for name, c := range map[string]struct {
		plain []byte // before it is filled up and sealed
		why   string // "": it opens
	}{
		"good":                {append([]byte{8}, field(ten, 1)...), ""},
		"mapped":              {append([]byte{20}, field(mapped, 1)...), ""},
		"a field of tomorrow": {append([]byte{10}, append(field(ten, 1), 0x18, 1)...), ""},
		"length 0":            {[]byte{0}, "its length"},
		"length beyond":       {append([]byte{16}, field(ten, 1)...), "its length"},
		"length 255":          {append([]byte{255}, field(ten, 1)...), "its length"},
		"too short a length":  {append([]byte{7}, field(ten, 1)...), "not zero"},
		"not filled by zero":  {append([]byte{8}, append(field(ten, 1), 0, 1)...), "not zero"},
		"no message":          {[]byte{1, 0x0a}, "no message"},
		"group":               {[]byte{1, 0x0b}, "no message"},
		"no address":          {[]byte{2, 0x10, 1}, "an address has"},
		"5 bytes":             {append([]byte{9}, field(append(ten[:4:4], 1), 1)...), "an address has"},
		"no port":             {append([]byte{6}, field(ten)[:6]...), "no port"},
		"port too large":      {append([]byte{10}, field(ten, 0x80, 0x80, 4)...), "above 65535"},
		"unspecified":         {append([]byte{8}, field(make([]byte, 4), 1)...), "one machine"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := key.OpenEndpoint(block(t, c.plain))
			if c.why == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, err, fault.CodeEntryInvalid, c.why)
		})
	}
	for _, n := range []int{0, 1, 15, 17, 31, 33, 48} {
		_, err := key.OpenEndpoint(make([]byte, n))
		refused(t, err, fault.CodeEntryInvalid, "bytes, not 16 or 32")
	}
	for _, n := range []int{0, 1, 27, 2049} {
		_, err := key.OpenData(make([]byte, n))
		refused(t, err, fault.CodeEntryInvalid, "bytes, not 28 to 2048")
	}
}
