// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/link/check"
)

// Machine reads what the kernel is set to into Forwards4, Forwards6 and Strict of the mesh's link. What cannot be read
// counts as well: a kernel without IPv6 forwards none of it, and needs not.
func Machine(m *check.Measured, link string) {
	m.Forwards4, m.Forwards6 = setting("ipv4/ip_forward") != "0", setting("ipv6/conf/all/forwarding") != "0"
	// The kernel takes the larger one (ip-sysctl.rst): 1 is strict, 2 is loose.
	m.Strict = max(setting("ipv4/conf/all/rp_filter"), setting("ipv4/conf/"+link+"/rp_filter")) == "1"
}

func setting(path string) string {
	data, err := os.ReadFile(filepath.Join("/proc/sys/net", filepath.FromSlash(path)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Within are the addresses of this machine within some ranges.
func Within(ranges []netip.Prefix) (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		at := p.Addr().Unmap()
		if err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(at) }) {
			out = append(out, at)
		}
	}
	return out
}
