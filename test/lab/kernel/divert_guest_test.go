// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestDiversionsThatAreGone: filters that somebody removes, all or some, are put back; those of somebody else stay, also
// when it begins again, and what an earlier run has left goes.
func TestDiversionsThatAreGone(t *testing.T) {
	l := labtest.New(t, "divert")
	host, err := l.Router("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Do(func() error { diversionsThatAreGone(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

func diversionsThatAreGone(t *testing.T) {
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	index := map[string]int{}
	for i, name := range []string{"one", "two"} {
		d, err := ipsec.Open(ipsec.Settings{Link: name, ID: uint32(i + 1), MTU: 1400})
		fatal(err)
		defer d.Close(false)
		link, err := netlink.LinkByName(name)
		fatal(err)
		index[name] = link.Attrs().Index
	}
	one := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index["one"], Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	two := &netlink.Clsact{QdiscAttrs: one.QdiscAttrs}
	two.LinkIndex = index["two"]
	foreign := &netlink.Flower{FilterAttrs: netlink.FilterAttrs{LinkIndex: index["one"], Parent: netlink.HANDLE_MIN_EGRESS,
		Priority: 50, Handle: 1, Protocol: unix.ETH_P_IP}, EthType: unix.ETH_P_IP}
	fatal(netlink.QdiscAdd(one))
	fatal(netlink.FilterAdd(foreign))
	filters := func() (n int) {
		t.Helper()
		for name, parent := range map[string]uint32{"one": netlink.HANDLE_MIN_EGRESS, "two": netlink.HANDLE_MIN_INGRESS} {
			link, err := netlink.LinkByName(name)
			fatal(err)
			all, err := netlink.FilterList(link, parent)
			fatal(err)
			n += len(all)
		}
		return n
	}
	requires := func(moment string, want int) {
		t.Helper()
		if n := filters(); n != want {
			t.Errorf("%s: %d filters, want %d", moment, n, want)
		}
	}
	open := func() *ipsec.Divert {
		t.Helper()
		d, err := ipsec.OpenDivert("one", "two")
		fatal(err)
		return d
	}
	away := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:1::/64"),
		netip.MustParsePrefix("::/0")}
	d := open()
	requires("begun", 2)
	fatal(d.Away(away))
	fatal(d.Stay([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}))
	requires("diverted", 6)
	for _, c := range []struct {
		name   string
		harm   func() error
		lost   int
		others int
	}{
		{"nothing", func() error { return nil }, 0, 1},
		{"one filter", func() error {
			return netlink.FilterDel(&netlink.Flower{FilterAttrs: netlink.FilterAttrs{LinkIndex: index["one"],
				Parent: netlink.HANDLE_MIN_EGRESS, Priority: 100 + 32 - 8, Protocol: unix.ETH_P_IP}})
		}, 1, 1},
		{"all of the other link", func() error { return netlink.QdiscDel(two) }, 1, 1},
		{"all of the link", func() error { return netlink.QdiscDel(one) }, 4, 0},
	} {
		fatal(c.harm())
		requires("without "+c.name, 5+c.others-c.lost)
		n, err := d.Check()
		if err != nil || n != c.lost {
			t.Errorf("without %s: it puts back %d, want %d: %v", c.name, n, c.lost, err)
		}
		requires(c.name+" is back", 5+c.others)
	}
	// While nothing is diverted nothing is missed, and what then cannot be set is set later.
	fatal(d.Away(nil))
	fatal(d.Stay(nil))
	fatal(netlink.QdiscDel(one))
	if err := d.Away(away); err == nil {
		t.Error("packets are diverted without a classifier")
	}
	if _, err := d.Check(); err != nil {
		t.Error(err)
	}
	requires("tried again", 4)
	fatal(netlink.FilterAdd(foreign))
	fatal(d.Close())
	d = open()
	requires("begun again", 2)
	fatal(d.Away(away))
	requires("diverted again", 5)
	fatal(d.Close())
}
