// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"encoding/binary"
	"net/http"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/status"
)

const (
	messageHead = 5
	writeMost   = 32<<10 + 512 // bytes of messages in one write
	writeBeside = 512          // what heads of frames and of a response, and answers, have beside them

	// windowLeast is what a window of the connection brings, which wakes all streams that wait for one. Clients of gRPC
	// give back a quarter of theirs or more at a time.
	windowLeast = 1 << 10
)

// send sends a message as the windows of the peer allow, or the head of the response alone.
func (s *Stream) send(message []byte, has bool) error {
	c := s.conn
	var before [messageHead]byte
	head := before[:0]
	if has {
		head = binary.BigEndian.AppendUint32(before[:1], uint32(len(message)))
	}
	for first := true; first || len(head)+len(message) > 0; first = false {
		n, err := c.reserve(s, min(len(head)+len(message), writeMost))
		if err != nil {
			return err
		}
		if err := c.out.begin(); err != nil {
			return err
		}
		buf := c.Pool.Get(n + writeBeside)
		b := s.head(c.out.prefix((*buf)[:0]))
		for n > 0 {
			piece := min(n, frameMost)
			b = appendFrame(b, frame{kind: http2.FrameData, length: piece, stream: s.id})
			n -= piece
			k := min(piece, len(head))
			b, head = append(b, head[:k]...), head[k:]
			b, message = append(b, message[:piece-k]...), message[piece-k:]
		}
		err = c.out.write(b)
		c.out.sent.Store(true)
		c.Pool.Put(buf)
		if err = c.out.end(err); err != nil {
			return err
		}
	}
	return nil
}

// finish sends the status, and has the peer stop sending, if it still does.
func (s *Stream) finish(err error, sends bool) {
	c := s.conn
	b, taken := s.farewell()
	c.mu.Lock()
	gone := s.gone
	if gone && taken > 0 { // of the connection's window: it goes to others
		c.quota += taken
		c.wakeStarvedLocked()
	}
	c.mu.Unlock()
	if gone || c.out.begin() != nil {
		return
	}
	fields := []byte{noTable}
	if !s.headed {
		fields = appendHead(nil, http.StatusOK)
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	fields = appendStatus(fields, st)
	for name, values := range s.trailer {
		for _, v := range values {
			fields = appendField(fields, name, v)
		}
	}
	b = appendHeaders(c.out.prefix(b), s.id, fields, true)
	if sends {
		b = appendReset(b, s.id, http2.ErrCodeNo)
	}
	c.out.sent.Store(true)
	c.out.end(c.out.write(b))
}

// farewell is the last message, to be written with the status, and so much of the windows was taken for it; or it is
// sent, if the peer's windows are too small.
func (s *Stream) farewell() (b []byte, taken int) {
	n := messageHead + len(s.last)
	if s.last == nil {
		return nil, 0
	}
	s.conn.mu.Lock()
	fits := s.stopped == nil && n <= frameMost && s.quota >= n && s.conn.quota >= n
	if fits {
		s.quota -= n
		s.conn.quota -= n
	}
	s.conn.mu.Unlock()
	if !fits {
		s.Send(s.last)
		return nil, 0
	}
	b = s.head(nil)
	b = appendFrame(b, frame{kind: http2.FrameData, length: n, stream: s.id})
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(len(s.last)))
	return append(b, s.last...), n
}

// reserve waits until the peer takes something of a stream, and returns how much of n.
func (c *conn) reserve(s *Stream, n int) (int, error) {
	for {
		c.mu.Lock()
		if err := s.stopped; err != nil || n == 0 {
			c.mu.Unlock()
			return 0, err
		}
		if k := min(n, s.quota, c.quota); k > 0 {
			s.quota -= k
			c.quota -= k
			c.mu.Unlock()
			return k, nil
		}
		if s.writable == nil {
			s.writable = make(chan struct{}, 1)
		}
		if s.quota > 0 && !s.starved {
			s.starved = true
			c.starved = append(c.starved, s)
		}
		c.mu.Unlock()
		<-s.writable
	}
}

func (c *conn) wakeLocked(s *Stream) {
	if s.writable != nil {
		signal(s.writable)
	}
}

func (c *conn) wakeStarvedLocked() {
	for _, s := range c.starved {
		s.starved = false
		c.wakeLocked(s)
	}
	c.starved = nil
}

// onWindow lets streams continue.
func (c *conn) onWindow(f frame, b []byte) error {
	if len(b) != 4 {
		return broken(http2.ErrCodeFrameSize, "a WINDOW_UPDATE that is none")
	}
	n := int(binary.BigEndian.Uint32(b) & windowMost)
	if f.stream > c.last || n == 0 && f.stream == 0 {
		return broken(http2.ErrCodeProtocol, "a WINDOW_UPDATE for nothing")
	}
	s := c.stream(f.stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.stream == 0:
		if n < windowLeast {
			if c.idle++; c.idle > idleMost {
				return broken(http2.ErrCodeEnhanceYourCalm, "too many windows that bring nothing")
			}
		}
		if c.quota += n; c.quota > windowMost {
			return broken(http2.ErrCodeFlowControl, "a window is too large")
		}
		c.wakeStarvedLocked()
	case s == nil:
		return nil
	case n == 0 || s.quota+n > windowMost:
		c.mu.Unlock()
		c.drop(s)
		err := c.refuse(s.id, http2.ErrCodeFlowControl)
		c.mu.Lock()
		return err
	default:
		s.quota += n
		c.wakeLocked(s)
	}
	return nil
}

// resize changes the windows of all streams; it reports false if one is too large.
func (c *conn) resize(first int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	change := first - c.first
	c.first = first
	for _, s := range c.streams {
		if s.quota += change; s.quota > windowMost {
			return false
		}
		c.wakeLocked(s)
	}
	return true
}
