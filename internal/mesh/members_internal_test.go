// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestOurKeyCountsForWhoProvesIt: who only says that it has a key of ours would keep this
// node from starting; of who has signed with it we have been copied.
func TestOurKeyCountsForWhoProvesIt(t *testing.T) {
	ours, err := drawKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, proven := range []bool{false, true} {
		other := member.Key{1}
		got := believed([]roster.Member{
			{Facts: member.Facts{ID: "says", Key: ours.public}, Proven: proven},
			{Facts: member.Facts{ID: "other", Key: other}, Entries: []roster.Entry{{ID: "other"}}},
		}, ours.public)
		if has := got[0].Key == ours.public; has != proven || !has && got[0].Key != (member.Key{}) {
			t.Errorf("proven %v: it has the key %x", proven, got[0].Key)
		}
		if got[1].Key != other {
			t.Errorf("another's key is %x", got[1].Key)
		}
	}
}

func TestIDsOfMembersAreUnique(t *testing.T) {
	in := []roster.Member{
		{Facts: member.Facts{ID: "n1"}, Tier: roster.TierKubernetes}, {Facts: member.Facts{ID: "n1"}, Tier: roster.TierStatic},
		{Facts: member.Facts{ID: "n2"}, Tier: roster.TierOlder},
	}
	var got []string
	for _, m := range believed(in, member.Key{9}) {
		got = append(got, m.ID)
	}
	if want := []string{"n1 (kubernetes)", "n1", "n2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWhatIsNeededOutside: addresses that are written down, each once; what a resolver would
// say of a name is nobody's word.
func TestWhatIsNeededOutside(t *testing.T) {
	got := servicesOf(
		[]string{"stun.example.com:3478", "192.0.2.3:3478", "192.0.2.1:3478"},
		[]string{"hub.example.com:443", "192.0.2.1:443", "[::ffff:192.0.2.4]:443", "[2001:db8::1]:443", "127.0.0.1:443", "nonsense"},
		[]endpoint.Server{{Name: "d", HostPort: "192.0.2.2:443"}, {Name: "e", HostPort: "discovery.example.com:443"}})
	want := []topology.Service{
		{Addr: netip.MustParseAddr("192.0.2.1"), What: "the hub 192.0.2.1:443"}, {Addr: netip.MustParseAddr("192.0.2.4"), What: "the hub [::ffff:192.0.2.4]:443"},
		{Addr: netip.MustParseAddr("2001:db8::1"), What: "the hub [2001:db8::1]:443"}, {Addr: netip.MustParseAddr("192.0.2.2"), What: "the discovery service 192.0.2.2:443"},
		{Addr: netip.MustParseAddr("192.0.2.3"), What: "the STUN server 192.0.2.3:3478"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
