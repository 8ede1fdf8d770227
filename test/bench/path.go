// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"syscall"

	"github.com/tombolo-io/tombolo/test/roles"
)

// A path stands between the two ends of a transport and makes a long or narrow
// way out of loopback: it delays what passes, or lets it pass at a rate, with a
// queue before the narrow place as a router has one. Its own work is in a process
// that is not counted. It splits TCP, so congestion control sees loopback: what
// is measured is windows and queues, not loss.

// pathSpec is what a path does, in each direction.
type pathSpec struct {
	Delay time.Duration `json:"delay"` // one way
	// Rate is bytes a second for all connections together; 0: no limit.
	Rate float64 `json:"rate"`
	// Queue is the bytes that wait for the narrow place: of each connection
	// where the router serves them in turns (Fair), of all together otherwise.
	Queue int  `json:"queue"`
	Fair  bool `json:"fair"`
}

// pathArgs start a path to an address.
type pathArgs struct {
	Spec     pathSpec `json:"spec"`
	ListenAt string   `json:"listenAt"`
	Target   string   `json:"target"`
}

const (
	// pathChunk is read at once where only delay is made.
	pathChunk = 64 << 10
	// packet is what the narrow place serves at once, small beside the queue.
	packet = 4 << 10
	// held bounds what one direction of a connection has on its way: above what
	// any transport here sends in 50 ms.
	held = 64 << 20
	// hidden is the receive buffer of a connection before a narrow place: bytes
	// that wait there wait outside of the queue.
	hidden = 64 << 10
)

// path is the role.
type path struct {
	traffic
	args     pathArgs
	ln       net.Listener
	out, in  *narrow // towards the target and back; nil without a rate
	chunks   sync.Pool
	chunkLen int
}

func (p *path) counters() *traffic { return &p.traffic }

func (p *path) do(op string, raw json.RawMessage) (any, error) {
	if op != opStart {
		return nil, roles.ErrUnknown
	}
	args, err := roles.Arguments[pathArgs](raw)
	if err != nil {
		return nil, err
	}
	if err := p.start(args); err != nil {
		return nil, err
	}
	return started{Address: p.ln.Addr().String()}, nil
}

func (p *path) start(args pathArgs) (err error) {
	p.args, p.chunkLen = args, pathChunk
	var lc net.ListenConfig
	if args.Spec.Rate > 0 {
		p.chunkLen = packet
		p.out, p.in = newNarrow(args.Spec), newNarrow(args.Spec)
		lc.Control = smallBuffer
	}
	p.chunks.New = func() any { b := make([]byte, p.chunkLen); return &b }
	if p.ln, err = lc.Listen(context.Background(), "tcp", net.JoinHostPort(args.ListenAt, "0")); err != nil {
		return err
	}
	go p.accept()
	return nil
}

func smallBuffer(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, hidden) })
	if err != nil {
		return err
	}
	return failed
}

func (p *path) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		go p.join(conn)
	}
}

func (p *path) join(near net.Conn) {
	d := net.Dialer{}
	if p.args.Spec.Rate > 0 {
		d.Control = smallBuffer
	}
	far, err := d.Dial("tcp", p.args.Target)
	if err != nil {
		near.Close()
		return
	}
	go p.forward(near, far, p.out)
	p.forward(far, near, p.in)
}

// chunk is bytes on their way. An empty one is the end of the direction.
type chunk struct {
	buf *[]byte
	n   int
	due time.Time
}

// forward carries one direction of a connection.
func (p *path) forward(from, to net.Conn, through *narrow) {
	line := newLine()
	go line.deliver(to, func(c chunk) { p.chunks.Put(c.buf) })
	var f *flow
	if through != nil {
		f = through.flow(line)
	}
	for {
		c := chunk{buf: p.chunks.Get().(*[]byte)}
		var err error
		c.n, err = from.Read(*c.buf)
		if c.n > 0 {
			p.pass(c, line, f)
		}
		if err == nil {
			continue
		}
		if err != io.EOF { // broken: the other side shall see it at once
			to.Close()
		}
		p.pass(chunk{buf: c.buf}, line, f)
		return
	}
}

func (p *path) pass(c chunk, line *line, f *flow) {
	if f != nil {
		f.push(c)
		return
	}
	c.due = time.Now().Add(p.args.Spec.Delay)
	line.push(c)
}

// line is one direction of a connection behind the narrow place: what is pushed
// leaves when it is due, in order.
type line struct {
	mu      sync.Mutex
	changed sync.Cond
	chunks  []chunk
	bytes   int
	broken  bool
}

func newLine() *line {
	l := &line{}
	l.changed.L = &l.mu
	return l
}

func (l *line) push(c chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > held && !l.broken {
		l.changed.Wait()
	}
	l.chunks = append(l.chunks, c)
	l.bytes += c.n
	l.changed.Broadcast()
}

func (l *line) pop() chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.chunks) == 0 {
		l.changed.Wait()
	}
	c := l.chunks[0]
	l.chunks = l.chunks[1:]
	l.bytes -= c.n
	l.changed.Broadcast()
	return c
}

// deliver writes what is due until the end of the direction. After a failure it
// throws away what comes.
func (l *line) deliver(to net.Conn, free func(chunk)) {
	for {
		c := l.pop()
		if wait := time.Until(c.due); wait > 0 {
			time.Sleep(wait)
		}
		if c.n == 0 {
			if t, ok := to.(*net.TCPConn); ok {
				t.CloseWrite()
			}
			free(c)
			return
		}
		if _, err := to.Write((*c.buf)[:c.n]); err != nil {
			to.Close()
			l.mu.Lock()
			l.broken = true
			l.changed.Broadcast()
			l.mu.Unlock()
		}
		free(c)
	}
}
