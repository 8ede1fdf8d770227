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

func TestWhichMessagesSpeakOfOurs(t *testing.T) {
	n := Names{Link: "tombolo0", Filter: "ours", Protocol: 180}
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
		{"our link", n.inRoute, message(unix.RTM_DELLINK, "tombolo0\x00"), true},
		{"another link", n.inRoute, message(unix.RTM_NEWLINK, "eth0\x00"), false},
		{"our route", n.inRoute, message(unix.RTM_DELROUTE, "\x02\x00\x00\x00\xb4\xb4\x00"), true},
		{"another route", n.inRoute, route, false},
		{"a route that is cut off", n.inRoute, message(unix.RTM_NEWROUTE, "\x02"), false},
		{"a rule", n.inRoute, message(unix.RTM_DELRULE, ""), true},
		{"nothing", n.inRoute, nil, false},
		{"less than a header", n.inRoute, make([]byte, headerLength-1), false},
		{"a length beyond the end", n.inFilter, append(message(7, "x")[:4:4], 255, 0, 0, 0), false},
		{"a length of nothing", n.inFilter, make([]byte, 64), false},
	} {
		if got := among(tc.data, tc.of); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
