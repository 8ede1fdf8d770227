// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// connErrors keeps why a service cannot be reached: gRPC gives that as text, in words of its own.
type connErrors struct{ last atomic.Pointer[error] }

func (u *connErrors) note(err error) { u.last.Store(&err) }

// why is what keeps us from the service, and the next step if one is known; empty if nothing does.
func (u *connErrors) why() (why, hint string) {
	err := u.last.Load()
	if err == nil || *err == nil {
		return "", ""
	}
	if f := fault.From(*err); f.Code != fault.CodeInternal {
		if f.Why == "" {
			return f.What, f.Next
		}
		return f.What + ": " + f.Why, f.Next
	}
	return (*err).Error(), ""
}

// addressDialer dials as gRPC asks for it.
type addressDialer = func(context.Context, string) (net.Conn, error)

// dialer notes what becomes of the connections.
func (u *connErrors) dialer(dial addressDialer) addressDialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		u.note(err)
		return conn, err
	}
}

// handshakes notes what becomes of the handshakes.
type handshakes struct {
	credentials.TransportCredentials
	connErrors *connErrors
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.connErrors.note(err)
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.connErrors}
}
