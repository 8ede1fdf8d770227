// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// scratchSize bounds the payloads that are copied behind others of their stream
// instead of getting a chunk of their own.
const scratchSize = 2 << 10

// Read reads from the connection and remembers that the peer lives.
func (l *lane) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if n > 0 {
		l.in.Add(int64(n))
		l.last.Store(int64(l.s.now()))
	}
	return n, err
}

// serve reads frames until the connection ends.
func (l *lane) serve() {
	defer l.s.release()
	for {
		err := l.frame()
		if err != nil {
			if fault.Has(err, fault.CodeFrameInvalid) {
				l.s.broken(err, goAwayViolation)
				l.drain()
			}
			l.lose(err, false)
			return
		}
		if l.sock != nil && l.sock.pending() { // TLS answered by itself
			l.kick()
		}
	}
}

// drain reads until the connection ends, soon after its session. Until then this
// goroutine stays counted: whoever has the turn may still start one that counts.
func (l *lane) drain() {
	for l.skip(len(l.scratch)) == nil {
	}
}

func (l *lane) frame() error {
	if _, err := io.ReadFull(l, l.head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = errors.New("the connection ended within a frame")
		}
		return err
	}
	h, known, err := parseHeader(&l.head)
	if err != nil {
		return err
	}
	if !known {
		return l.skip(h.length)
	}
	if h.kind == frameData {
		st := l.s.find(h.id)
		if st == nil {
			return l.skip(h.length)
		}
		return st.receive(l, h.length)
	}
	p := l.payload[:min(h.length, shapes()[h.kind].least)]
	if _, err := io.ReadFull(l, p); err != nil {
		return err
	}
	if err := l.skip(h.length - len(p)); err != nil {
		return err
	}
	if h.id == 0 {
		return l.sessionFrame(h.kind, p)
	}
	if h.kind == frameOpen {
		return l.s.opened(l, h.id, binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:]))
	}
	st := l.s.find(h.id)
	if st == nil {
		return nil
	}
	return st.handle(l, h.kind, p)
}

func (l *lane) sessionFrame(kind byte, p []byte) error {
	switch kind {
	case frameWindow:
		l.s.assume(binary.BigEndian.Uint64(p))
	case framePing:
		l.mu.Lock()
		l.pong, l.due = [8]byte(p), true
		l.mu.Unlock()
		l.kick()
	case framePong:
		l.s.ponged(time.Duration(binary.BigEndian.Uint64(p)))
	case frameGoAway:
		return l.s.wentAway(binary.BigEndian.Uint32(p))
	case frameLeave:
		l.s.left(l)
	case frameConnections:
		l.s.asked(int(binary.BigEndian.Uint32(p)))
	}
	return nil
}

// skip reads and forgets n bytes.
func (l *lane) skip(n int) error {
	for n > 0 {
		got, err := l.Read(l.scratch[:min(n, len(l.scratch))])
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// retire closes a connection that both ends have left, behind what is under way.
func (l *lane) retire() {
	l.mu.Lock()
	l.ending = true
	idle := !l.turn && !l.somethingLocked()
	l.mu.Unlock()
	if idle {
		l.lose(net.ErrClosed, false)
	} else {
		l.kick()
	}
}
