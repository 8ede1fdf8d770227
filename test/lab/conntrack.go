// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// conntrack opens the host's connection tracking.
func conntrack(h *Host) (*netlink.Handle, error) {
	var handle *netlink.Handle
	err := h.Do(func() error {
		var err error
		handle, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		return err
	})
	return handle, err
}

// ForgetConnections flushes the host's connection tracking.
func ForgetConnections(h *Host) error {
	handle, err := conntrack(h)
	if err != nil {
		return fmt.Errorf("opening conntrack of %s: %w", h.Name(), err)
	}
	defer handle.Close()
	if err := handle.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("flushing the connections of %s: %w", h.Name(), err)
	}
	return nil
}

// UDPConnections returns how many UDP connections the host tracks, of both IP
// versions.
func UDPConnections(h *Host) (int, error) {
	handle, err := conntrack(h)
	if err != nil {
		return 0, fmt.Errorf("opening conntrack of %s: %w", h.Name(), err)
	}
	defer handle.Close()
	count := 0
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := handle.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return 0, fmt.Errorf("listing the connections of %s: %w", h.Name(), err)
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
func ForgetAfter(h *Host, unanswered, stream time.Duration) error {
	for file, d := range map[string]time.Duration{
		"netfilter/nf_conntrack_udp_timeout": unanswered, "netfilter/nf_conntrack_udp_timeout_stream": stream,
	} {
		if err := h.Sysctl(file, fmt.Sprint(int(d/time.Second))); err != nil {
			return err
		}
	}
	return nil
}
