// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// message is one of netlink.
func message(kind uint16, body string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerLength+len(body)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), make([]byte, headerLength-6)...)
	b = append(b, body...)
	return append(b, make([]byte, -len(body)&3)...)
}

// link is one about a link.
func link(kind uint16, index uint32, name string) []byte {
	return message(kind, string(binary.NativeEndian.AppendUint32(make([]byte, 4), index))+"\x00\x00\x00\x00\x00\x00\x00\x00"+name+"\x00")
}

func TestWhichMessagesSpeakOfOurs(t *testing.T) {
	n := Names{Link: "tombolo0", Filter: "ours", Protocol: 180}
	w := &Watch{names: n}
	theirs, route := message(7, "theirs\x00"), message(unix.RTM_NEWROUTE, "\x02\x00\x00\x00\xfe\x04\x00")
	for _, tc := range []struct {
		name string
		of   func(uint16, []byte) bool
		data []byte
		want bool
	}{
		{"our table", n.inFilter, message(7, "xxours\x00x"), true},
		{"another table", n.inFilter, theirs, false},
		{"a table whose name begins as ours", n.inFilter, message(7, "ours2\x00"), false},
		{"ours behind another", n.inFilter, append(theirs, message(7, "ours\x00")...), true},
		{"our link", w.inRoute, link(unix.RTM_DELLINK, 7, "tombolo0"), true},
		{"another link", w.inRoute, link(unix.RTM_NEWLINK, 8, "eth0"), false},
		{"ours under another name", w.inRoute, link(unix.RTM_NEWLINK, 7, "x"), true},
		{"ours that was made anew", w.inRoute, link(unix.RTM_NEWLINK, 9, "tombolo0"), true},
		{"the earlier one's index", w.inRoute, link(unix.RTM_NEWLINK, 7, "x"), false},
		{"a link that is cut off", w.inRoute, message(unix.RTM_NEWLINK, "tombo"), false},
		{"our route", w.inRoute, message(unix.RTM_DELROUTE, "\x02\x00\x00\x00\xb4\xb4\x00"), true},
		{"another route", w.inRoute, route, false},
		{"a route that is cut off", w.inRoute, message(unix.RTM_NEWROUTE, "\x02"), false},
		{"a rule", w.inRoute, message(unix.RTM_DELRULE, ""), true},
		{"nothing", w.inRoute, nil, false},
		{"less than a header", w.inRoute, make([]byte, headerLength-1), false},
		{"a length beyond the end", n.inFilter, append(message(7, "x")[:4:4], 255, 0, 0, 0), false},
		{"a length of nothing", n.inFilter, make([]byte, 64), false},
	} {
		if got := among(tc.data, tc.of); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
