// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Between two TCP connections bulk moves inside the kernel (splice(2)), by way of a
// pipe that is held only while bytes flow:
//
//	wait without a buffer ──► read one ──it was filled──► pump: socket ─► pipe ─► socket
//	      ▲                     │                           │
//	      └─────────────────────┴───────── nothing there ───┘
//
// A filled buffer says that there is more; smaller messages take one read and one
// write, which is cheaper than two splices.

const (
	pipeSize  = 256 << 10 // bytes; the kernel may refuse, and then has 64 KiB
	sparePipe = 64        // pipes that are kept for the next
)

// pipes are spare ones. What a process holds at rest is bounded, however many were in use.
type pipes struct {
	first   int                                   // the lowest descriptor of the reserve, which no pipe may use
	splice  func(from, to, most int) (int, error) // spliceOnce, but for tests
	refused atomic.Bool                           // the kernel, or a sandbox, knows no splice(2)

	mu   sync.Mutex
	free []*pipe
}

// pipe is empty whenever it is spare.
type pipe struct{ r, w int }

// get is nil where there are no descriptors left but those of the reserve: a peer that does not
// read keeps its pipe, and buffers do as well. The kernel gives the lowest free ones (open(2)).
func (s *pipes) get() *pipe {
	if s.refused.Load() {
		return nil
	}
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return p
	}
	s.mu.Unlock()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	p := &pipe{fds[0], fds[1]}
	if max(p.r, p.w) >= s.first {
		p.close()
		return nil
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize) // a smaller one does
	return p
}

func (s *pipes) put(p *pipe) {
	s.mu.Lock()
	if len(s.free) < sparePipe {
		s.free = append(s.free, p)
		p = nil
	}
	s.mu.Unlock()
	if p != nil {
		p.close()
	}
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// tcpPair are both sides if the kernel can move bytes from src to dst.
func tcpPair(dst io.Writer, src io.Reader) (to, from *promptConn, ok bool) {
	to, ok1 := dst.(*promptConn)
	from, ok2 := src.(*promptConn)
	if !ok1 || !ok2 {
		return nil, nil, false
	}
	_, ok1 = to.Conn.(*net.TCPConn)
	_, ok2 = from.Conn.(*net.TCPConn)
	return to, from, ok1 && ok2
}

// through is loop between two TCP connections.
func (s *Splicer) through(dst, src *promptConn, moved func(int)) (srcErr, dstErr error) {
	h := &held{pool: &s.large}
	take, give := h.take, h.give
	defer give()
	var m *mover // made for the first bulk
	for {
		n, err := src.ReadWhenReady(take, give)
		full := false
		if n > 0 {
			if _, dstErr := dst.Write((*h.buf)[:n]); dstErr != nil {
				return err, dstErr
			}
			full = n == len(*h.buf)
			give()
			moved(n)
		}
		if err == nil && full {
			if m == nil {
				m = newMover(dst, src, &s.pipes)
			}
			err, dstErr = m.pump(moved)
		}
		if err != nil || dstErr != nil {
			return err, dstErr
		}
	}
}

// mover moves from one socket to another by way of a pipe.
type mover struct {
	dst, src    *promptConn
	pipes       *pipes
	fill, drain func(fd uintptr) bool

	// Of the call under way.
	p   *pipe
	n   int // to be drained at most; moved
	err error
}

func newMover(dst, src *promptConn, from *pipes) *mover {
	m := &mover{dst: dst, src: src, pipes: from}
	m.fill, m.drain = m.fillOnce, m.drainOnce
	return m
}

// pump moves what is there until there is nothing more.
func (m *mover) pump(moved func(int)) (srcErr, dstErr error) {
	if m.p = m.pipes.get(); m.p == nil {
		return nil, nil
	}
	for {
		n, err := m.in()
		if n == 0 {
			m.pipes.put(m.p)
			return err, nil
		}
		for n > 0 {
			k, err := m.out(n)
			if err != nil {
				m.p.close() // with what is left in it
				return nil, err
			}
			n -= k
			moved(k)
		}
	}
}

// in moves what is there into the empty pipe; 0 without an error: there is nothing. Its
// errors are those of Read.
func (m *mover) in() (int, error) {
	err := m.src.raw.Read(m.fill)
	switch {
	case err != nil: // closed, or a deadline
		return 0, readError(m.src.Conn, err)
	case m.err == syscall.EAGAIN:
		return 0, nil
	case unsupported(m.err): // nothing has moved: the buffers go on
		m.pipes.refused.Store(true)
		return 0, nil
	case m.err != nil:
		return 0, readError(m.src.Conn, os.NewSyscallError("splice", m.err))
	case m.n == 0:
		return 0, io.EOF
	}
	return m.n, nil
}

// out moves at most n bytes out of the pipe, and waits until some can.
func (m *mover) out(n int) (int, error) {
	m.n = n
	err := m.dst.raw.Write(m.drain)
	switch {
	case err != nil:
		return 0, opError("write", m.dst.Conn, err)
	case m.err != nil:
		return 0, opError("write", m.dst.Conn, os.NewSyscallError("splice", m.err))
	}
	return m.n, nil
}

func (m *mover) fillOnce(fd uintptr) bool {
	m.n, m.err = m.pipes.splice(int(fd), m.p.w, pipeSize)
	return true
}

func (m *mover) drainOnce(fd uintptr) bool {
	n, err := m.pipes.splice(m.p.r, int(fd), m.n)
	if err == syscall.EAGAIN {
		return false
	}
	m.n, m.err = n, err
	return true
}

// unsupported says that this system will never splice: an old or foreign kernel, or seccomp.
func unsupported(err error) bool {
	return err == syscall.ENOSYS || err == syscall.EPERM || err == syscall.EINVAL
}

func spliceOnce(from, to, most int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err != unix.EINTR {
			return int(n), err
		}
	}
}
