// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpeaks: a kernel without XFRM is not asked, for the question would have it load that.
func TestSpeaks(t *testing.T) {
	const head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n" +
		"00000000731da4ef 0   0          00000000 0        0        0     2        0        4\n"
	for _, c := range []struct {
		text string
		want bool
	}{
		{"", false},
		{head, false},
		{head + "0000000084e57853 6   0          00000000 0        0        0     2        0        1578\n", true},
		{head + "0000000084e57853 6   4242       00000000 0        0        0     2        0        1578\n", false},
		{head + "0000000084e57853 16  0          00000000 0        0        0     2        0        1578\n", false},
		{head + "6 0\n", false},
	} {
		if got := speaks([]byte(c.text), unix.NETLINK_XFRM); got != c.want {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// TestTrialIDs: no id of a trial is that of a mesh.
func TestTrialIDs(t *testing.T) {
	for range 1000 {
		if id := trialID(); id == 0 || id&meshes != 0 {
			t.Fatalf("the id %#x", id)
		}
	}
	for _, link := range []string{"tombolo0", "a"} {
		if ID(link)&meshes == 0 {
			t.Errorf("%s has the id %#x", link, ID(link))
		}
	}
}
