// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const lan, mine6 = "10.0.0.2:51820", "[2001:db8::2]:51820"

func answered(server, mapped string) Asked {
	return Asked{Server: Server{"hub", at(server)}, Mapped: at(mapped), RTT: 12345 * time.Microsecond}
}

func silent(server string) Asked {
	return Asked{Server: Server{"hub", at(server)}, Why: "no answer"}
}

func facts(asked ...Asked) Facts {
	return Facts{Own: []netip.Addr{at(lan).Addr()}, Sockets: []netip.AddrPort{at("0.0.0.0:51820"), at("[::]:51820")}, Asked: asked, Hairpin: No}
}

// situations are what nodes meet. Each is a golden file, too.
func situations() map[string]struct {
	Facts
	udp, varies, cgnat Tri
	mapping, filtering Behaviour // of IPv4
} {
	type situation = struct {
		Facts
		udp, varies, cgnat Tri
		mapping, filtering Behaviour
	}
	with := func(f Facts, fn func(*Facts)) Facts {
		fn(&f)
		return f
	}
	const second, a3479 = "198.51.100.2:3478", "198.51.100.1:3479"
	coned := facts(answered(one, home), answered(second, home), answered(a3479, home))
	return map[string]situation{
		"full-cone": {with(coned, func(f *Facts) {
			f.OtherPort = []Asked{answered(one, home)}
			f.Hairpin = Yes
		}), Yes, No, Unknown, EndpointIndependent, AtMostAddress},
		"port-restricted": {with(coned, func(f *Facts) { f.OtherPort = []Asked{silent(one)} }), Yes, No, Unknown, EndpointIndependent, AddressPortDependent},
		"symmetric": {facts(answered(one, "203.0.113.5:1001"), answered(second, "203.0.113.5:1002"), answered(a3479, "203.0.113.5:1003")),
			Yes, Yes, Unknown, AddressPortDependent, NotKnown},
		"address-dependent": {facts(answered(one, "203.0.113.5:1001"), answered(second, "203.0.113.5:1002"), answered(a3479, "203.0.113.5:1001")),
			Yes, Yes, Unknown, AddressDependent, NotKnown},
		"dependent": {facts(answered(one, "203.0.113.5:1001"), answered(second, "203.0.113.5:1002")),
			Yes, Yes, Unknown, DestinationDependent, NotKnown},
		"one-server": {facts(answered(one, home), answered(a3479, home), silent(second)), Yes, Unknown, Unknown, NotKnown, NotKnown},
		"open": {with(facts(answered(one, "192.0.2.2:51820"), answered(second, "192.0.2.2:51820"), answered("[2001:db8:9::1]:3478", mine6)), func(f *Facts) {
			f.Own = []netip.Addr{at("192.0.2.2:1").Addr(), at(mine6).Addr()}
			f.OtherPort = []Asked{answered(one, "192.0.2.2:51820"), answered("[2001:db8:9::1]:3478", mine6)}
			f.Relays = []Relay{{Name: "far", Why: "connection refused"}, {Name: "near", Latency: 30 * time.Millisecond}, {Name: "nearest", Latency: 2 * time.Millisecond}}
		}), Yes, No, No, None, AtMostAddress},
		"firewalled": {with(facts(answered(one, "192.0.2.2:51820")), func(f *Facts) {
			f.Own = []netip.Addr{at("192.0.2.2:1").Addr()}
			f.OtherPort = []Asked{silent(one)}
		}), Yes, No, No, None, AddressPortDependent},
		"cgnat-by-router": {with(coned, func(f *Facts) {
			f.Mapping = &PortMapping{Method: "upnp", External: at("100.64.9.9:51820"), Lifetime: 2 * time.Hour, Tried: []Tried{{"nat-pmp", "no answer"}, {"upnp", ""}}}
		}), Yes, No, Yes, EndpointIndependent, NotKnown},
		"cgnat-by-difference": {with(coned, func(f *Facts) {
			f.Mapping = &PortMapping{Method: "nat-pmp", External: at("192.0.2.99:51820"), Lifetime: time.Hour, Tried: []Tried{{"nat-pmp", ""}}}
		}), Yes, No, Yes, EndpointIndependent, NotKnown},
		"cgnat-by-own": {with(coned, func(f *Facts) { f.Own = []netip.Addr{at("100.65.0.3:1").Addr()} }), Yes, No, Yes, EndpointIndependent, NotKnown},
		"port-mapped": {with(facts(answered(one, "203.0.113.5:1001"), answered(second, "203.0.113.5:1002")), func(f *Facts) {
			f.Mapping = &PortMapping{Method: "nat-pmp", External: at(home), Lifetime: 2 * time.Hour, Tried: []Tried{{"nat-pmp", ""}}}
		}), Yes, Yes, No, DestinationDependent, NotKnown},
		"udp-blocked": {with(facts(silent(one), silent(second)), func(f *Facts) {
			f.Relays = []Relay{{Name: "hub", Latency: 20 * time.Millisecond}}
			f.Hairpin = ""
			f.Mapping = &PortMapping{Tried: []Tried{{"nat-pmp", "no answer"}, {"upnp", "no router answers"}}}
		}), No, Unknown, Unknown, NotKnown, NotKnown},
		"offline":       {with(facts(silent(one)), func(f *Facts) { f.Own, f.Relays = nil, []Relay{{Name: "hub", Why: "no route"}} }), No, Unknown, Unknown, NotKnown, NotKnown},
		"nobody-to-ask": {with(facts(), func(f *Facts) { f.Hairpin = Unknown }), Unknown, Unknown, Unknown, NotKnown, NotKnown},
		"ipv6-only": {with(facts(answered("[2001:db8:9::1]:3478", mine6), answered("[2001:db8:9::2]:3478", mine6)), func(f *Facts) {
			f.Own = []netip.Addr{at(mine6).Addr()}
			f.OtherPort = []Asked{silent("[2001:db8:9::1]:3478")}
		}), Yes, No, Unknown, NotKnown, NotKnown},
		"other-port-mapped-by-nat": {with(facts(answered(one, "10.0.0.2:60000"), answered(second, "10.0.0.2:60000")), func(f *Facts) {}),
			Yes, No, Unknown, EndpointIndependent, NotKnown},
	}
}

func TestClassify(t *testing.T) {
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			r := Classify(s.Facts)
			if r.UDP != s.udp || r.Varies != s.varies || r.CGNAT != s.cgnat || r.IPv4.Mapping != s.mapping || r.IPv4.Filtering != s.filtering {
				t.Errorf("UDP %s, varies %s, CGNAT %s, mapping %s, filtering %s; want %s, %s, %s, %s, %s", r.UDP, r.Varies, r.CGNAT, r.IPv4.Mapping,
					r.IPv4.Filtering, s.udp, s.varies, s.cgnat, s.mapping, s.filtering)
			}
		})
	}
}

func TestTextAndJSON(t *testing.T) {
	for name, s := range situations() {
		r := Classify(s.Facts)
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for ext, got := range map[string][]byte{"txt": []byte(r.Text()), "json": append(data, '\n')} {
			file := filepath.Join("testdata", "report", name+"."+ext)
			if os.Getenv("TOMBOLO_UPDATE_GOLDEN") != "" {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s (run with TOMBOLO_UPDATE_GOLDEN=1 if it is right): %v\n%s\nwant\n%s", file, err, got, want)
			}
		}
	}
}
