// SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	natpmp "github.com/jackpal/go-nat-pmp"
)

// PMP asks by NAT-PMP. The answers come over a connected socket: from the router's
// port 5351 only.
type PMP struct{}

// Method implements Mapper.
func (PMP) Method() string { return "nat-pmp" }

func client(ctx context.Context, r Router) (*natpmp.Client, error) {
	left := gatewayTime
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	if left <= 0 {
		return nil, context.DeadlineExceeded
	}
	// The two questions of Map share the time.
	return natpmp.NewClientWithLocalAndTimeout(net.IP(r.Gateway.AsSlice()), net.IP(r.Own.AsSlice()), left/2), nil
}

// Map implements Mapper.
func (PMP) Map(ctx context.Context, r Router, port uint16) (Lease, error) {
	c, err := client(ctx, r)
	if err != nil {
		return Lease{}, err
	}
	outer, err := c.GetExternalAddress()
	if err != nil {
		return Lease{}, err
	}
	m, err := c.AddPortMapping("udp", int(port), int(port), int(gatewayLife/time.Second))
	if err != nil {
		return Lease{}, err
	}
	if m.InternalPort != port {
		return Lease{}, errors.Join(fmt.Errorf("the router maps port %d of ours, asked for %d", m.InternalPort, port),
			PMP{}.Unmap(ctx, r, port))
	}
	return Lease{
		netip.AddrPortFrom(netip.AddrFrom4(outer.ExternalIPAddress), m.MappedExternalPort),
		time.Duration(m.PortMappingLifetimeInSeconds) * time.Second,
	}, nil
}

// Unmap implements Mapper.
func (PMP) Unmap(ctx context.Context, r Router, port uint16) error {
	c, err := client(ctx, r)
	if err != nil {
		return err
	}
	_, err = c.AddPortMapping("udp", int(port), 0, 0)
	return err
}
