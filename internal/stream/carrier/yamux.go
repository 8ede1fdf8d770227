// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The agent is the yamux client (odd stream ids), the hub its server.

type yamuxMaker func(net.Conn, *yamux.Config, func() (yamux.MemoryManager, error)) (*yamux.Session, error)

// settings: liveness is ours (pings on the control stream count any received
// byte), so the library's keepalive is off. Windows start at 256 KiB and grow
// with the path to 16 MiB, per stream only, while at most half of the budget is unread.
func settings(incoming uint32) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.MaxIncomingStreams = incoming
	c.InitialStreamWindowSize = 256 << 10
	c.MaxStreamWindowSize = 16 << 20
	c.MaxMessageSize = 32 << 10
	c.ConnectionWriteTimeout = limit.DeadIdle
	c.LogOutput = io.Discard
	return c
}

type yamuxSession struct {
	s        *yamux.Session
	conn     *meter
	take     func(Stream) // instead of accepted, if not nil
	accepted chan *yamux.Stream
	pools    *chunkPools // of copies
	unread   *yamuxLedger
}

// newYamux makes an end whose own streams are numbered from first.
func newYamux(conn net.Conn, o Options, mk yamuxMaker, first uint32) (Session, error) {
	if o.Budget == nil {
		o.Budget = NewBudget(limit.ClusterUnread)
	}
	m := &meter{Conn: conn, begin: time.Now(), unread: newYamuxLedger(o, first)}
	s, err := mk(m, settings(uint32(o.Incoming)), yamuxGrowth{o.Budget}.manager)
	if err != nil {
		return nil, err
	}
	y := &yamuxSession{s: s, conn: m, take: o.Accept, accepted: make(chan *yamux.Stream), pools: &o.Budget.pools, unread: m.unread}
	go y.accept()
	return y, nil
}

// accept takes streams from the library, whose own accept knows no context. It
// ends with the session.
func (y *yamuxSession) accept() {
	defer close(y.accepted)
	defer y.unread.end()
	for {
		s, err := y.s.AcceptStream()
		if err != nil {
			return
		}
		if y.unread.budget.Full() {
			y.stream(s).Reset(ResetRefused)
			continue
		}
		if y.take != nil {
			y.take(y.stream(s))
			continue
		}
		select {
		case y.accepted <- s:
		case <-y.s.CloseChan():
			return
		}
	}
}

func (y *yamuxSession) OpenStream(ctx context.Context, first []byte) (Stream, error) {
	if err := ctx.Err(); err != nil { // the library would leak the stream
		return nil, err
	}
	s, err := y.s.OpenStream(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, yamux.ErrRemoteGoAway) {
			return nil, fault.New(fault.CodeDraining, "the peer takes no new streams")
		}
		return nil, lost(err)
	}
	st := y.stream(s)
	if len(first) > 0 {
		stop := context.AfterFunc(ctx, func() { s.SetWriteDeadline(time.Unix(1, 0)) })
		_, err := s.Write(first)
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			st.Reset(0)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, streamError(err)
		}
	}
	return st, nil
}

func (y *yamuxSession) AcceptStream(ctx context.Context) (Stream, error) {
	select {
	case s, ok := <-y.accepted:
		if !ok || y.s.IsClosed() { // both were ready
			return nil, fault.New(fault.CodeSessionLost, "the session has ended")
		}
		return y.stream(s), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close closes the connection first: a peer that no longer reads must not
// delay the end by the time that a farewell takes to write.
func (y *yamuxSession) Close() error {
	err := y.conn.Close()
	return errors.Join(err, y.s.Close())
}

func (y *yamuxSession) GoAway() { y.s.GoAway() }

func (y *yamuxSession) Attach(net.Conn) error {
	return fault.New(fault.CodeLimit, "a yamux session has one connection")
}

func (y *yamuxSession) Info() Info {
	return Info{Kind: Yamux, Connections: 1, Streams: y.s.NumStreams(), Unread: int(y.unread.unread())}
}

func (y *yamuxSession) Done() <-chan struct{} { return y.s.CloseChan() }

func (y *yamuxSession) RemoteAddr() net.Addr { return y.conn.RemoteAddr() }

func (y *yamuxSession) Traffic() Traffic {
	return Traffic{y.conn.in.Load(), y.conn.out.Load(), y.conn.begin.Add(time.Duration(y.conn.last.Load()))}
}

type yamuxStream struct {
	*yamux.Stream
	pools  *chunkPools
	unread *yamuxAccount

	mu    sync.Mutex
	ended bool // by us, in both directions; no deadline is set any more
}

func (y *yamuxSession) stream(s *yamux.Stream) *yamuxStream {
	return &yamuxStream{Stream: s, pools: y.pools, unread: y.unread.take(s.StreamID())}
}

// Read hides the library's habit of giving bytes and the failure to grow the
// window in one answer: that failure may be io.EOF when the session ended, and
// would pass for the end of the stream. The next Read says what happened.
func (s *yamuxStream) Read(b []byte) (int, error) {
	if s.over() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Read(b)
	if n > 0 || err == nil || err == io.EOF {
		if n > 0 {
			s.unread.read(n)
			err = nil
		}
		return n, err
	}
	if err != yamux.ErrTimeout && !s.over() { // the peer or the session has ended it: what came can be read no more
		s.unread.drop()
	}
	return n, s.failed(err)
}

func (s *yamuxStream) Write(b []byte) (int, error) {
	if s.over() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Write(b)
	return n, s.failed(err)
}

// failed says of what Reset woke that the stream is closed, and not that its time
// is up.
func (s *yamuxStream) failed(err error) error {
	if err == yamux.ErrTimeout && s.over() {
		return net.ErrClosed
	}
	return streamError(err)
}

func (s *yamuxStream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *yamuxStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return copyChunks(s.pools, s, src, moved)
}

func (s *yamuxStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	err, dstErr = copyChunks(s.pools, dst, s, moved)
	return dstErr, err
}

// copyChunks is a plain copy that tells the failure of one side from the other's.
// A patient source is read without a buffer being held while it is silent. Any
// other is waited for with a small one, and with a large one as long as it gives
// more than that would take.
func copyChunks(pools *chunkPools, dst io.Writer, src io.Reader, moved func(int)) (srcErr, dstErr error) {
	var c *chunk
	give := func() { pools.put(c); c = nil }
	take := func() []byte { c = pools.get(limit.CopyBuffer); return c.b }
	patient, isPatient := src.(Patient)
	for size := limit.WaitBuffer; ; {
		var n int
		if isPatient {
			n, srcErr = patient.ReadWhenReady(take, give)
		} else {
			c = pools.get(size)
			n, srcErr = src.Read(c.b)
			if size = limit.CopyBuffer; n < limit.WaitBuffer {
				size = limit.WaitBuffer
			}
		}
		if n > 0 {
			if n, dstErr = dst.Write(c.b[:n]); n > 0 && moved != nil {
				moved(n)
			}
		}
		if c != nil {
			give()
		}
		if srcErr != nil || dstErr != nil {
			return srcErr, dstErr
		}
	}
}

func (s *yamuxStream) CloseWrite() error {
	if s.over() {
		return net.ErrClosed
	}
	err := s.Stream.CloseWrite() // may wait for a place in the queue, and until then the library keeps what comes
	s.unread.closed()
	return streamError(err)
}

// Close ends our direction in order and then resets the rest: the library's own
// Close would leave a peer that still writes waiting for a window for ever.
func (s *yamuxStream) Close() error {
	s.end(func() {
		s.Stream.CloseWrite()
		s.Stream.ResetWithError(0)
	})
	return nil
}

// Reset implements Stream.
func (s *yamuxStream) Reset(code uint32) error {
	s.end(func() { s.Stream.ResetWithError(code) })
	return nil
}

// end wakes who reads or writes, and waits for nothing: the library would wait for
// a place in its queue, and a peer that does not read gives none. Who ends streams
// of many sessions must not wait for one of them. tell has the frames on their way
// when there is room, or ends with the session: a goroutine for each stream at most,
// and until then the library keeps what the stream holds.
func (s *yamuxStream) end(tell func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.Stream.SetDeadline(time.Unix(1, 0))
	go func() {
		tell()
		s.unread.drop()
	}()
}

func (s *yamuxStream) SetDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetDeadline)
}

func (s *yamuxStream) SetReadDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetReadDeadline)
}

func (s *yamuxStream) SetWriteDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetWriteDeadline)
}

func (s *yamuxStream) until(t time.Time, set func(time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // those of Reset stay
		return nil
	}
	return set(t)
}

// streamError translates the library's errors; none of them is or wraps io.EOF.
func streamError(err error) error {
	var reset *yamux.StreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reset) && reset.Remote:
		return &ResetError{reset.ErrorCode}
	case reset != nil, err == yamux.ErrStreamClosed:
		return net.ErrClosed
	case err == yamux.ErrTimeout:
		return os.ErrDeadlineExceeded
	}
	return lost(err)
}

// lost codes the end of the session. It cuts the chain of causes on purpose:
// io.EOF of the connection is not io.EOF of a stream.
func lost(err error) error {
	return fault.New(fault.CodeSessionLost, "the session has ended").Whyf("%v", err)
}

// meter counts what a connection carries and remembers when it last heard of the peer.
type meter struct {
	net.Conn
	in, out, last atomic.Int64
	unread        *yamuxLedger
	begin         time.Time // last counts from here by the monotonic clock, which no one sets
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if n > 0 {
		m.in.Add(int64(n))
		m.last.Store(int64(time.Since(m.begin)))
		if wrong := m.unread.received(b[:n]); wrong != nil {
			return 0, wrong
		}
	}
	return n, err
}

func (m *meter) Write(b []byte) (int, error) {
	m.unread.sent(b)
	n, err := m.Conn.Write(b)
	m.out.Add(int64(n))
	return n, err
}
