// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ForgetConnections flushes the host's connection tracking.
func (h *Host) ForgetConnections() error {
	handle, err := netlink.NewHandleAt(h.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening conntrack of %s: %w", h.name, err)
	}
	defer handle.Close()
	if err := handle.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("flushing the connections of %s: %w", h.name, err)
	}
	return nil
}

// UDPConnections returns how many UDP connections the host tracks, of both IP
// versions.
func (h *Host) UDPConnections() (int, error) {
	handle, err := netlink.NewHandleAt(h.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("opening conntrack of %s: %w", h.name, err)
	}
	defer handle.Close()
	count := 0
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := handle.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return 0, fmt.Errorf("listing the connections of %s: %w", h.name, err)
		}
		for _, flow := range flows {
			if flow.Forward.Protocol == unix.IPPROTO_UDP {
				count++
			}
		}
	}
	return count, nil
}

// ForgetAfter sets how long the host remembers UDP in whole seconds: one without
// an answer, and one that has gone both ways for a while. It holds for packets
// from then on.
func (h *Host) ForgetAfter(unanswered, stream time.Duration) error {
	for file, d := range map[string]time.Duration{
		"netfilter/nf_conntrack_udp_timeout": unanswered, "netfilter/nf_conntrack_udp_timeout_stream": stream,
	} {
		if err := h.Sysctl(file, fmt.Sprint(int(d/time.Second))); err != nil {
			return err
		}
	}
	return nil
}
