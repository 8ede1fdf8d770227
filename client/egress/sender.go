// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// sender is the body of a stream's request: net/http reads from it what is sent. It ends after CLOSE_REQ or DIAL_CLS,
// or when the stream has ended.
type sender struct {
	from      net.Conn // what the caller writes
	target    string
	random    int64
	opened    chan int64    // the id of the connection
	abandoned chan struct{} // closed when the dial is given up
	stopped   chan struct{} // closed by stop
	once      sync.Once

	// What is Read's own:
	asked bool
	last  bool // nothing comes behind rest
	id    int64
	frame []byte
	rest  []byte // of frame, not taken yet
	buf   []byte
}

func newSender(from net.Conn, target string, random int64) *sender {
	return &sender{from: from, target: target, random: random, opened: make(chan int64, 1),
		abandoned: make(chan struct{}), stopped: make(chan struct{})}
}

// stop ends the body without another packet; the caller's writes fail from then on.
func (s *sender) stop() {
	s.once.Do(func() {
		close(s.stopped)
		s.from.Close()
	})
}

// Close is called by net/http when it reads no more.
func (s *sender) Close() error {
	s.stop()
	return nil
}

// Read is called by net/http alone.
func (s *sender) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.last {
			return 0, io.EOF
		}
		s.frame = s.frame[:0]
		s.next()
		s.rest = s.frame
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next waits for what is to be sent.
func (s *sender) next() {
	if !s.asked {
		s.asked = true
		s.add(packet.Packet{Type: packet.DialRequest, Protocol: "tcp", Address: s.target, Random: s.random})
		return
	}
	if s.id == 0 && !s.wait() {
		s.last = true
		return
	}
	if s.buf == nil {
		s.buf = make([]byte, dataPacket)
	}
	n, err := s.from.Read(s.buf)
	if n > 0 {
		s.add(packet.Packet{Type: packet.Data, ConnectID: s.id, Payload: s.buf[:n]})
	}
	if err == io.EOF { // the caller has closed
		s.add(packet.Packet{Type: packet.CloseRequest, ConnectID: s.id})
	}
	s.last = err != nil
}

// wait waits for the id of the connection, and reports false if there will be none.
func (s *sender) wait() bool {
	select {
	case s.id = <-s.opened:
		return true
	case <-s.stopped:
		return false
	case <-s.abandoned:
	}
	select { // an answer that crossed the end of the dial is closed as a connection
	case s.id = <-s.opened:
		return true
	default:
		s.add(packet.Packet{Type: packet.CloseDial, Random: s.random})
		return false
	}
}

// add adds a packet as a message of gRPC.
func (s *sender) add(p packet.Packet) {
	at := len(s.frame)
	s.frame = p.Append(append(s.frame, 0, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(s.frame[at+1:], uint32(len(s.frame)-at-5))
}
