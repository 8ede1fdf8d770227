// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// Resolver resolves names as the system does, over sockets that bear a mark: its servers
// may be where only what bears it gets. Where the mark is not permitted it is left out.
func Resolver(mark uint32) *net.Resolver {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return Permitted(Mark(c, mark)) }}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}}
}

// Permitted is an error of Mark without the one about a missing permission.
func Permitted(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}
