// SPDX-License-Identifier: Apache-2.0

// Package carrier turns one connection between a hub and an agent into a
// session with independent streams. Each stream has its own flow control,
// half-close and reset with a code. It does not know what a stream is for, who
// the peer is, or whether it may connect.
package carrier

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Stream is one proxied connection within a session. Read gives io.EOF after
// the peer's CloseWrite or Close, and only then; after the peer's Reset Read and
// Write give a *ResetError, after our own end net.ErrClosed, after a deadline
// os.ErrDeadlineExceeded, and after the end of the session a fault of code
// session_lost. Close ends both directions: the peer reads what was written and
// io.EOF, and a peer that still writes gets a *ResetError with code 0.
type Stream interface {
	net.Conn
	// CloseWrite ends our direction; the peer reads io.EOF after the last byte.
	CloseWrite() error
	// Reset ends both directions at once; the peer sees the code.
	Reset(code uint32) error
}

// Session is one live link. All methods may be called from any goroutine.
type Session interface {
	// OpenStream opens a stream to the peer, without waiting for it.
	OpenStream(ctx context.Context) (Stream, error)
	// AcceptStream waits for the peer's next stream.
	AcceptStream(ctx context.Context) (Stream, error)
	// Close ends the session and all of its streams.
	Close() error
	// Done is closed when the session has ended, from whatever cause.
	Done() <-chan struct{}
	// Traffic reports what the connection below has carried.
	Traffic() Traffic
	// RemoteAddr is the peer's transport address, for people.
	RemoteAddr() net.Addr
}

// Traffic is what a connection has carried, its own framing and TLS included.
type Traffic struct {
	Received, Sent int64     // bytes
	LastReceived   time.Time // when the newest byte came; the session's begin if none did
}

// ResetError is what a reader or writer gets after the peer's Reset.
type ResetError struct{ Code uint32 }

// ResetCode is the peer's code.
func (e *ResetError) ResetCode() uint32 { return e.Code }

func (e *ResetError) Error() string {
	return fmt.Sprintf("the peer reset the stream (code %d)", e.Code)
}

// Name of the carrier in use, for status.
const Name = "tls/yamux"
