// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// What a dial must not reach is made anew when something has changed, and not for
// each dial.
func TestOwnListenersAreRemembered(t *testing.T) {
	health, hub := []netip.AddrPort{netip.MustParseAddrPort("[::]:8445")}, netip.MustParseAddrPort("10.0.0.1:8443")
	machine := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")}
	o := &ownList{}
	for i, step := range []struct {
		bound   []netip.AddrPort
		hubs    []netip.AddrPort
		machine []netip.Addr
		made    int
	}{
		{health, nil, machine, 1},
		{health, nil, machine, 1},
		{health, nil, slices.Clone(machine), 1},
		{health, []netip.AddrPort{hub}, machine, 2},
		{health, []netip.AddrPort{hub}, machine[:1], 3},
		{health, []netip.AddrPort{hub}, machine[:1], 3},
		{nil, []netip.AddrPort{hub}, machine[:1], 4},
		{nil, nil, nil, 5},
		{append(health, netip.MustParseAddrPort("0.0.0.0:5000")), nil, machine, 6},
	} {
		got := o.list(step.bound, step.hubs, step.machine)
		if want := listeners(step.bound, step.hubs, step.machine); !slices.Equal(got, want) || o.made != step.made {
			t.Errorf("step %d: %v, made %d times; want %v, %d", i, got, o.made, want, step.made)
		}
	}
}

// A machine with very many addresses: looking each up in all others would take
// longer than a test may.
func TestOwnListenersOfManyAddresses(t *testing.T) {
	machine := make([]netip.Addr, 400_000)
	for i := range machine { // each twice
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24+uint32(i/2))
		machine[i] = netip.AddrFrom4(b)
	}
	out := listeners([]netip.AddrPort{netip.MustParseAddrPort("[::]:8445")}, nil, machine)
	if want := 2 + len(machine)/2; len(out) != want || out[len(out)-1] != (policy.Listener{At: netip.AddrPortFrom(machine[len(machine)-1], 8445), Of: policy.ListenerOfAgent}) {
		t.Errorf("%d listeners, want %d", len(out), want)
	}
}
