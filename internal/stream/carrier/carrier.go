// SPDX-License-Identifier: Apache-2.0

// Package carrier turns one connection between a hub and an agent into a
// session with independent streams. Each stream has its own flow control,
// half-close and reset with a code. It does not know what a stream is for, who
// the peer is, or whether it may connect.
package carrier

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Stream is one proxied connection within a session. Read returns io.EOF after
// the peer's CloseWrite or Close, and only then. Read and Write return a *ResetError after
// the peer's Reset, net.ErrClosed after our own Close or Reset, os.ErrDeadlineExceeded after
// a deadline, and a fault of code session_lost after the end of the session. Close ends both
// directions: the peer reads what was written, then io.EOF; a peer that still writes gets a
// *ResetError with code 0.
type Stream interface {
	net.Conn
	// CloseWrite ends our direction; the peer reads io.EOF after the last byte.
	CloseWrite() error
	// Reset ends both directions at once; the peer sees the code.
	Reset(code uint32) error
	// CopyFrom sends the bytes of src until src ends: then srcErr is io.EOF or its error.
	// err is why the stream accepts no more bytes. It closes nothing. moved, if not nil,
	// is called with the number of bytes of each piece. A src that is Patient is read
	// without holding a buffer while it is silent.
	CopyFrom(src io.Reader, moved func(n int)) (srcErr, err error)
	// CopyTo writes what the peer sends to dst until the stream ends: then err is io.EOF,
	// or what Read would return. dstErr is why dst accepts no more bytes. A dst that is a
	// PromptWriter may be written to by the goroutine that received the bytes.
	CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error)
}

// Patient is a source that asks for a buffer only when it has bytes. take
// returns a buffer of at least one byte; give returns it unused. The n bytes are at the
// start of the buffer taken last; with n == 0 no buffer is taken.
type Patient interface {
	ReadWhenReady(take func() []byte, give func()) (n int, err error)
}

// PromptWriter is a destination that can take bytes without waiting. WriteNow
// writes what fits at once: with n < len(b) and no error the rest would
// block. It is not called while Write or another WriteNow is under way.
type PromptWriter interface {
	WriteNow(b []byte) (n int, err error)
}

// Session is one live link. All methods may be called from any goroutine.
type Session interface {
	// OpenStream opens a stream to the peer, without waiting for it. first, if not empty,
	// is sent together with the opening. Bytes beyond the first window wait for credit of
	// the peer, as in Write; the end of ctx resets the stream.
	OpenStream(ctx context.Context, first []byte) (Stream, error)
	// AcceptStream waits for the peer's next stream.
	AcceptStream(ctx context.Context) (Stream, error)
	// GoAway tells the peer to open no more streams: its OpenStream fails with a
	// fault of code draining. Open streams continue.
	GoAway()
	// Attach adds a connection that the peer dialled for this session. It returns
	// a fault of code limit_reached if the session takes no more.
	Attach(conn net.Conn) error
	// Close ends the session and all of its streams, and waits until its goroutines
	// have ended. Accept, Dial and Lost must not call it.
	Close() error
	// Done is closed when the session has ended, for any reason.
	Done() <-chan struct{}
	// Traffic reports what the connections of the session have carried.
	Traffic() Traffic
	// Info describes the session, for status.
	Info() Info
	// RemoteAddr is the peer's transport address, for people.
	RemoteAddr() net.Addr
}

// Traffic is what the connections have carried, including the mux's framing but not that
// of TLS.
type Traffic struct {
	Received, Sent int64     // bytes
	LastReceived   time.Time // when the newest byte arrived; the session's start if none did
}

// Info describes a session.
type Info struct {
	Connections int // live ones
	Streams     int // live ones, of both sides
	Unread      int // bytes received and not read yet
}

// Options of a session.
type Options struct {
	// Incoming bounds the streams that the peer may have open; further ones are
	// reset unseen.
	Incoming int
	// Accept, if not nil, is called with each stream of the peer, in place of AcceptStream:
	// rare streams need no goroutine that waits for them. It must not block, and may be
	// called before the session is returned.
	Accept func(Stream)
	// Connections bounds the connections of the session, 0 means 1.
	Connections int
	// Beside bounds the connections with bulk traffic that are served at the same time
	// while another one has interactive traffic; 0: all cores but one.
	Beside int
	// Dial opens a further connection to the same peer and greets it; only at the dialling
	// end. nil: the session has one connection.
	Dial func(ctx context.Context) (net.Conn, error)
	// Budget bounds unread bytes together with other sessions; nil: the session has its own.
	Budget *Budget
	// Tally, if not nil, also counts unread bytes: those of all sessions of an agent.
	Tally *atomic.Int64
	// Lost, if not nil, is called for each connection that a live session loses. It runs
	// in a goroutine that also serves other connections: Lost must not block.
	Lost func(Loss)
}

// Loss is the loss of a connection. A session that loses the last one ends.
type Loss struct {
	Cause  Cause
	Remain int   // connections that the session still has
	Why    error // for people
}

// Cause is why a connection was lost.
type Cause string

// The causes. A protocol violation, detected by either end, ends all connections and is
// reported once.
const (
	CauseLeft      Cause = "left"      // in order: it was not needed any more
	CauseSilent    Cause = "silent"    // no byte arrived, nothing sent was answered
	CauseBroken    Cause = "broken"    // it failed, or the peer closed it
	CauseViolation Cause = "violation" // of the protocol of the mux
)

// Causes lists them all.
func Causes() []Cause { return []Cause{CauseLeft, CauseSilent, CauseBroken, CauseViolation} }

// Client makes the dialling end of a session (the agent's) over conn. Its wire
// format is docs/reference/mux.md.
func Client(conn net.Conn, o Options) (Session, error) { return newMux(conn, o, true) }

// Server makes the accepting end (the hub's).
func Server(conn net.Conn, o Options) (Session, error) { return newMux(conn, o, false) }

// ResetError is what a reader or writer gets after the peer's Reset.
type ResetError struct{ Code uint32 }

// ResetCode is the peer's code.
func (e *ResetError) ResetCode() uint32 { return e.Code }

func (e *ResetError) Error() string {
	return fmt.Sprintf("the peer reset the stream (code %d)", e.Code)
}
