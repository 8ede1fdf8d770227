// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/sidero/sealed"
)

func fullAffiliate() *sealed.Affiliate {
	return &sealed.Affiliate{
		NodeId: "machine-1", Addresses: [][]byte{ten, mapped, global}, Hostname: "worker-1.example", Nodename: "worker-1",
		MachineType: "init", OperatingSystem: "an\x1b OS",
		Kubespan: &sealed.KubeSpan{PublicKey: "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", Address: ula,
			AdditionalAddresses: []*sealed.IPPrefix{{Ip: []byte{10, 244, 1, 7}, Bits: 24}, {Ip: []byte{10, 244, 1, 9}, Bits: 24}}},
		ControlPlane: &sealed.ControlPlane{ApiServerPort: 6443},
	}
}

func TestParseAffiliate(t *testing.T) {
	got, err := seal.ParseAffiliate("machine-1", fullAffiliate())
	if err != nil {
		t.Fatal(err)
	}
	want := member.Facts{
		Node: "machine-1", Hostname: "worker-1.example", Nodename: "worker-1", Role: member.RoleControlPlane, OS: "an? OS",
		Key: member.Key(wgKey()), Overlay6: netip.MustParseAddr("fd00::a"), APIServerPort: 6443,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5")},
		Ranges:    []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if again, err := seal.ParseAffiliate("machine-1", seal.Affiliate(got)); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("written and read: %+v, %v", again, err)
	}
	if few, err := seal.ParseAffiliate("x", &sealed.Affiliate{NodeId: "x"}); err != nil || !reflect.DeepEqual(few, member.Facts{Node: "x"}) {
		t.Errorf("of one that says little: %+v, %v", few, err)
	}
}

func TestAWrongAffiliateIsRefused(t *testing.T) {
	for place, change := range map[string]func(a *sealed.Affiliate){
		"node_id":                                func(a *sealed.Affiliate) { a.NodeId = "another" },
		"hostname":                               func(a *sealed.Affiliate) { a.Hostname = "x\n" },
		"nodename":                               func(a *sealed.Affiliate) { a.Nodename = strings.Repeat("x", 257) },
		"addresses[1]":                           func(a *sealed.Affiliate) { a.Addresses[1] = []byte{1} },
		"kubespan.public_key":                    func(a *sealed.Affiliate) { a.Kubespan.PublicKey = "CQ==" },
		"kubespan.address":                       func(a *sealed.Affiliate) { a.Kubespan.Address = ten },
		"kubespan.additional_addresses[0]":       func(a *sealed.Affiliate) { a.Kubespan.AdditionalAddresses[0].Bits = 33 },
		"control_plane.api_server_port":          func(a *sealed.Affiliate) { a.ControlPlane.ApiServerPort = 65536 },
		"kubespan.public_key: it is not base64":  func(a *sealed.Affiliate) { a.Kubespan.PublicKey = "!" },
		"kubespan.public_key: the key is of low": func(a *sealed.Affiliate) { a.Kubespan.PublicKey = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" },
	} {
		a := fullAffiliate()
		change(a)
		if _, err := seal.ParseAffiliate("machine-1", a); !fault.Has(err, fault.CodeEntryInvalid) || !strings.Contains(fault.From(err).Why, place) {
			t.Errorf("%s: %v", place, err)
		}
	}
	if _, err := seal.ParseAffiliate("", &sealed.Affiliate{}); err == nil {
		t.Error("one without an id is taken")
	}
}

// TestTheCacheIsOfItsSecret: it opens with it, and not torn, changed or with another.
func TestTheCacheIsOfItsSecret(t *testing.T) {
	secret := func(b byte) seal.Keys {
		s, err := seal.NewSecret(bytes.NewReader(bytes.Repeat([]byte{b}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		return s.Keys()
	}
	mine, other := secret(1), secret(2)
	sealed, err := mine.SealCache(bytes.NewReader(make([]byte, 12)), []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, ok := mine.OpenCache(sealed); !ok || string(plain) != "plain" {
		t.Errorf("%q, %v", plain, ok)
	}
	flipped := bytes.Clone(sealed)
	flipped[14] ^= 1
	for name, b := range map[string][]byte{"nothing": nil, "torn": sealed[:len(sealed)-1], "flipped": flipped, "short": sealed[:20]} {
		if _, ok := mine.OpenCache(b); ok {
			t.Errorf("%s: opened", name)
		}
	}
	if _, ok := other.OpenCache(sealed); ok {
		t.Error("another secret opens it")
	}
	if _, err := mine.SealCache(bytes.NewReader(nil), nil); err == nil {
		t.Error("sealed without random numbers")
	}
}

// TestACacheOfSeveralSecrets opens with each of them alone, and not torn, changed or
// with another.
func TestACacheOfSeveralSecrets(t *testing.T) {
	var all []seal.Keys
	for b := range byte(3) {
		s, err := seal.NewSecret(bytes.NewReader(bytes.Repeat([]byte{b + 1}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Keys())
	}
	random := func() *bytes.Reader { return bytes.NewReader(bytes.Repeat([]byte{7, 1, 9}, 40)) }
	sealed, err := seal.SealCacheFor(random(), all[:2], []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		with []seal.Keys
		want bool
	}{
		"both": {all[:2], true}, "the first": {all[:1], true}, "the second": {all[1:2], true}, "the second and a newer one": {all[1:], true},
		"another": {all[2:], false}, "none": {nil, false},
	} {
		if plain, ok := seal.OpenCacheFor(tc.with, sealed); ok != tc.want || ok && string(plain) != "plain" {
			t.Errorf("%s: %q, %v", name, plain, ok)
		}
	}
	for n := range sealed {
		if _, ok := seal.OpenCacheFor(all, sealed[:n]); ok {
			t.Errorf("opened when torn at %d", n)
		}
		flipped := bytes.Clone(sealed)
		flipped[n] ^= 0x41
		if _, ok := seal.OpenCacheFor(all[:2], flipped); ok {
			t.Errorf("opened with byte %d changed", n)
		}
	}
	for n := range 32 + 12 + 12 + 12 {
		if _, err := seal.SealCacheFor(bytes.NewReader(make([]byte, n)), all[:2], nil); err == nil {
			t.Errorf("sealed with %d random bytes", n)
		}
	}
}

// FuzzAffiliate: nothing panics, and what is taken is written and read alike.
func FuzzAffiliate(f *testing.F) {
	data, err := proto.Marshal(fullAffiliate())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("machine-1", data)
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		a := new(sealed.Affiliate)
		if proto.Unmarshal(data, a) != nil {
			return
		}
		m, err := seal.ParseAffiliate(id, a)
		if err != nil {
			return
		}
		if m.Key.IsZero() { // it stands in the same message
			m.Overlay6, m.Ranges = netip.Addr{}, nil
		}
		if again, err := seal.ParseAffiliate(id, seal.Affiliate(m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v is read again as %+v, %v", m, again, err)
		}
	})
}
