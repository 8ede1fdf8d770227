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
	// CopyFrom sends what src gives until src ends: then srcErr is io.EOF or its
	// failure. err says why the stream takes no more. It does not close anything.
	// moved, if not nil, is called with each number of bytes as they move. A src
	// with ReadWhenReady is read without a buffer being held while it is silent.
	CopyFrom(src io.Reader, moved func(n int)) (srcErr, err error)
	// CopyTo writes what the peer sends to dst until the stream ends: then err is
	// io.EOF, or what Read would give. dstErr says why dst takes no more. A dst
	// with WriteNow may be written by who received the bytes.
	CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error)
}

// Patient is a source that asks for a buffer only when it has bytes. take gives
// a buffer of at least one byte; give takes it back when nothing came after all.
// The n bytes lie at the begin of the buffer taken last; with n == 0 none is out.
type Patient interface {
	ReadWhenReady(take func() []byte, give func()) (n int, err error)
}

// PromptWriter is a destination that can take bytes without waiting. WriteNow
// writes what fits at once: with n < len(b) and no error the rest would have to
// wait. It is not called while Write or another WriteNow is under way.
type PromptWriter interface {
	WriteNow(b []byte) (n int, err error)
}

// Session is one live link. All methods may be called from any goroutine.
type Session interface {
	// OpenStream opens a stream to the peer, without waiting for it. first, if
	// not empty, is the first of its bytes, and leaves together with the opening.
	// What is beyond the first window waits for the peer, as in Write, or for ctx,
	// whose end resets the stream.
	OpenStream(ctx context.Context, first []byte) (Stream, error)
	// AcceptStream waits for the peer's next stream.
	AcceptStream(ctx context.Context) (Stream, error)
	// GoAway tells the peer to open no more streams: its OpenStream fails with a
	// fault of code draining. Open streams go on.
	GoAway()
	// Attach adds a connection that the peer dialled for this session. A fault of
	// code limit_reached says that the session takes no more.
	Attach(conn net.Conn) error
	// Close ends the session and all of its streams, and waits until its goroutines
	// have ended. Accept, Dial and Lost must not call it.
	Close() error
	// Done is closed when the session has ended, from whatever cause.
	Done() <-chan struct{}
	// Traffic reports what the connections below have carried.
	Traffic() Traffic
	// Info describes the session, for status.
	Info() Info
	// RemoteAddr is the peer's transport address, for people.
	RemoteAddr() net.Addr
}

// Traffic is what the connections have carried, with the framing of the mux and
// without that of TLS.
type Traffic struct {
	Received, Sent int64     // bytes
	LastReceived   time.Time // when the newest byte came; the session's begin if none did
}

// Info describes a session.
type Info struct {
	Connections int // live ones
	Streams     int // live ones, of both sides
	Unread      int // bytes that came and were not read yet
}

// Options of a session.
type Options struct {
	// Incoming bounds the streams that the peer may have open towards us; more
	// are reset unseen.
	Incoming int
	// Accept, if not nil, is given each stream of the peer as it comes, instead of
	// AcceptStream: who expects one in a day needs no goroutine to wait for it. It
	// must not wait, and may be called before the session is returned.
	Accept func(Stream)
	// Connections bounds the connections of the session, 0 means 1.
	Connections int
	// Beside bounds the connections of which bulk keeps our cores busy while
	// something interactive happens on another; 0: all cores but one.
	Beside int
	// Dial opens one more connection to the same peer, greeting done; only at the
	// end that dials, nil if there shall be one connection.
	Dial func(ctx context.Context) (net.Conn, error)
	// Budget bounds unread bytes together with other sessions; nil: one of its own.
	Budget *Budget
	// Tally counts unread bytes as well, if it is set: those of an agent's sessions.
	Tally *atomic.Int64
	// Lost, if not nil, is told of each connection that a live session of our mux
	// loses. Nobody's bytes move on that connection any more, but its caller serves
	// others: Lost must not wait.
	Lost func(Loss)
}

// Loss is the loss of a connection. A session that loses the last one ends.
type Loss struct {
	Cause  Cause
	Remain int   // connections that the session has still
	Why    error // for people
}

// Cause is why a connection was lost, in one of few words.
type Cause string

// The causes. A violation, ours by the peer's word or the peer's by ours, takes
// all connections with it, and is told once.
const (
	CauseLeft      Cause = "left"      // in order: it was not needed any more
	CauseSilent    Cause = "silent"    // no byte came, no answer to what was sent
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
