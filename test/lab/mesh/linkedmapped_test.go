// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

const (
	// nobody is a port at which nothing listens.
	nobody = 7199
	// inPieces is a datagram that no link carries in one piece.
	inPieces = 1900
)

// mapped has the east know the west by other ranges, through gateways and node to node.
func (r *linkedRig) mapped(t *testing.T) {
	a, d := r.east.pods[0], r.west.pods[2]
	by := func(networkType string) {
		r.clusters(p2p(), map[string]any{"networkType": networkType, "globalCIDRsMap": map[string]any{
			"10.99.0.0/16": "240.99.0.0/16", "10.102.0.0/16": "240.102.0.0/16", "fd99::/48": "fd99:9::/48"}})
	}
	by("gateway")
	to4 := strings.Replace(d.addr, "10.99.", "240.99.", 1)
	to6 := strings.Replace(d.addr6, "fd99:0:", "fd99:9:", 1)
	for _, to := range []string{to4, to6} {
		r.carrier(to) // what is sent before goes wherever it likes
	}
	r.reaches("a pod of the east reaches one of the west by its mapped address", a.host, to4, a.addr)
	r.reaches("and is reached by one", d.host, a.addr, to4)
	r.reaches("by IPv6, too", a.host, to6, a.addr6)
	r.reaches("and the other way", d.host, a.addr6, to6)
	r.eventually("a Service by its mapped address", nil, func() error {
		_, err := r.seenAs(a.host, "240.102.0.10")
		return err
	})
	for _, networkType := range []string{"gateway", "p2p"} {
		if by(networkType); networkType == "p2p" {
			r.eventually("it goes node to node", nil, func() error {
				if r.carrier(to4) != r.west.nodes[2] {
					return errNotYet
				}
				return nil
			})
		}
		for _, w := range []mappedWay{{a, to4, ""}, {a, to6, ""}, {d, a.addr, ""}, {d, a.addr6, ""}} {
			w.what = fmt.Sprintf("%s, %s to %s", networkType, w.from.host.Name(), w.at)
			r.datagrams(w)
			r.unreachable(w)
		}
	}
}

// mappedWay is from a pod to another one, by an address.
type mappedWay struct {
	from pod
	at   string // of the other one
	what string
}

// datagrams go to an address and back, as questions of DNS do, and in pieces.
func (r *linkedRig) datagrams(w mappedWay) {
	r.t.Helper()
	for _, size := range []int{60, inPieces} {
		r.eventually(fmt.Sprintf("%s: %d bytes and back", w.what, size), nil,
			func() error { return echoed(w.from.host, w.at, size) })
	}
}

// dialled is a socket whose kernel takes answers and errors of one address alone.
func dialled(from *lab.Host, to string, port int) (*net.UDPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusedWithin)
	defer cancel()
	c, err := from.DialContext(ctx, "udp", netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port)).String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), c.SetDeadline(time.Now().Add(500 * time.Millisecond)) // what is lost is sent again
}

func echoed(from *lab.Host, to string, size int) error {
	c, err := dialled(from, to, echo)
	if err != nil {
		return err
	}
	defer c.Close()
	sent, got := []byte(strings.Repeat(marker, size/len(marker)+1)[:size]), make([]byte, 2*size)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	n, err := c.Read(got)
	if err == nil && string(got[:n]) != string(sent) {
		err = fmt.Errorf("%d bytes came back, or others", n)
	}
	return err
}

// unreachable has the pod's kernel say that nothing listens, and the sender's believe it: the error is about a packet
// that it knows.
func (r *linkedRig) unreachable(w mappedWay) {
	r.t.Helper()
	r.eventually(w.what+": port unreachable", nil, func() error {
		c, err := dialled(w.from.host, w.at, nobody)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte(marker)); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}
