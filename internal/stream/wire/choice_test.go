// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func TestAddressesAndChoice(t *testing.T) {
	list := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:443"), netip.MustParseAddrPort("[fd00::1]:443")}
	at, got, err := wire.ReadReply(bytes.NewReader(frame(t, wire.Addresses(list))), true)
	if err != nil || at != "" || !slices.Equal(got, list) {
		t.Errorf("%q, %v, %v", at, got, err)
	}
	if got, err := wire.ReadChoice(bytes.NewReader(frame(t, wire.Choice(list[1:])))); err != nil || !slices.Equal(got, list[1:]) {
		t.Errorf("%v, %v", got, err)
	}
	// A fault stands for itself, whatever comes with it.
	m := wire.Reply("", fault.New(fault.CodePolicyDenied, "no"))
	m.Addresses = []string{"nonsense"}
	if _, _, err := wire.ReadReply(bytes.NewReader(frame(t, m)), true); !fault.Has(err, fault.CodePolicyDenied) {
		t.Errorf("%v", err)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	many := make([]string, limit.ResolvedAddresses+1)
	for i := range many {
		many[i] = "10.0.0.1:1"
	}
	for name, list := range map[string][]string{
		"none": nil, "too many": many, "a name": {"localhost:80"}, "no port": {"10.0.0.1"}, "port 0": {"10.0.0.1:0"},
		"a zone": {"[fe80::1%eth0]:80"}, "an odd form": {"127.1:80"}, "a good one and a bad one": {"10.0.0.1:1", ""},
		"a long one": {strings.Repeat("1", 300)},
	} {
		for _, m := range []proto.Message{&pb.DialReply{Addresses: list}, &pb.DialChoice{Addresses: list}} {
			data := frame(t, m)
			var err error
			if _, reply := m.(*pb.DialReply); reply {
				_, _, err = wire.ReadReply(bytes.NewReader(data), true)
			} else {
				_, err = wire.ReadChoice(bytes.NewReader(data))
			}
			if !fault.Has(err, fault.CodeFrameInvalid) {
				t.Errorf("%s in %T: %v", name, m, err)
			}
		}
	}
	// Mapped addresses are the IPv4 ones.
	got, err := wire.ReadChoice(bytes.NewReader(frame(t, &pb.DialChoice{Addresses: []string{"[::ffff:10.0.0.1]:1"}})))
	if err != nil || got[0] != netip.MustParseAddrPort("10.0.0.1:1") {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzReadChoice(f *testing.F) {
	for _, m := range []proto.Message{&pb.DialChoice{}, wire.Choice([]netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:443")})} {
		data, err := wire.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := wire.ReadChoice(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(got) == 0 || len(got) > limit.ResolvedAddresses {
			t.Fatalf("%d addresses", len(got))
		}
		for _, a := range got {
			if !a.IsValid() || a.Port() == 0 || a.Addr().Is4In6() || a.Addr().Zone() != "" {
				t.Fatalf("%v is accepted", a)
			}
		}
	})
}
