// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// Resolver resolves names as the system does, over sockets with a mark: only marked packets
// may reach the name servers. Without the permission the sockets have no mark.
func Resolver(mark uint32) *net.Resolver {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return Permitted(Mark(c, mark)) }}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}}
}

// Permitted returns an error of Mark, or nil if it is about a missing permission.
func Permitted(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}
