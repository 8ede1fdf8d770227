// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// upstream asks the DNS server of a cluster, over one stream for all questions. UDP on a stream and DNS over TCP (RFC
// 1035 section 4.2.2) look alike: each message stands behind its length.
type upstream struct {
	open  func(ctx context.Context) (net.Conn, error)
	group *run.Group    // of readers
	turn  chan struct{} // holds one token while nobody opens or writes

	mu    sync.Mutex
	conn  net.Conn // nil: there is none now
	waits map[uint16]chan []byte
	next  uint16
}

func newUpstream(g *run.Group, open func(context.Context) (net.Conn, error)) *upstream {
	u := &upstream{open: open, group: g, turn: make(chan struct{}, 1), waits: map[uint16]chan []byte{}}
	u.turn <- struct{}{}
	return u
}

// ask sends a question, and waits for the answer. Its id is the question's. A stream that was lost with an earlier
// question on it is opened anew, once.
func (u *upstream) ask(ctx context.Context, query []byte) ([]byte, error) {
	for again := true; ; again = false {
		answer, fresh, err := u.once(ctx, query)
		if err == nil || fresh || !again || run.Ended(ctx) != nil {
			return answer, err
		}
	}
}

// once is one try. It reports whether the stream was opened for it.
func (u *upstream) once(ctx context.Context, query []byte) (answer []byte, fresh bool, err error) {
	select {
	case <-u.turn:
	case <-ctx.Done():
		return nil, false, unanswered()
	}
	id, got, fresh, err := u.send(ctx, query)
	u.turn <- struct{}{}
	if err != nil {
		return nil, fresh, err
	}
	defer u.forget(id)
	select {
	case answer, ok := <-got:
		if !ok {
			return nil, fresh, fault.New(fault.CodeSessionLost, "the stream to the cluster's DNS server has ended")
		}
		copy(answer, query[:2])
		return answer, fresh, nil
	case <-ctx.Done():
		return nil, fresh, unanswered()
	}
}

func unanswered() error {
	return fault.New(fault.CodeDialTimeout, "the cluster's DNS server did not answer").
		Hint("check the address in dns.server, and that it is up")
}

// send sends a question with an id of our own. Its caller has the turn.
func (u *upstream) send(ctx context.Context, query []byte) (id uint16, got chan []byte, fresh bool, err error) {
	u.mu.Lock()
	conn := u.conn
	u.mu.Unlock()
	if conn == nil {
		fresh = true
		if conn, err = u.open(ctx); err != nil {
			return 0, nil, true, err
		}
		u.mu.Lock()
		u.conn = conn
		u.mu.Unlock()
		u.group.Do(func(ctx context.Context) { u.read(ctx, conn) })
	}
	got = make(chan []byte, 1)
	u.mu.Lock()
	if len(u.waits) >= questions {
		u.mu.Unlock()
		return 0, nil, fresh, fault.Newf(fault.CodeLimit, "%d questions wait for the cluster's DNS server", questions).
			Hint("check that it answers")
	}
	for u.waits[u.next] != nil { // fewer wait than there are ids
		u.next++
	}
	id = u.next
	u.next++
	u.waits[id] = got
	u.mu.Unlock()
	text, err := datagram.Append(nil, query)
	if err != nil {
		u.forget(id)
		return 0, nil, fresh, fault.New(fault.CodeRequest, "the question is too long").Because(err)
	}
	binary.BigEndian.PutUint16(text[2:], id)
	conn.SetWriteDeadline(time.Now().Add(nameWait))
	if _, err := conn.Write(text); err != nil {
		u.forget(id)
		u.lose(conn)
		return 0, nil, fresh, fault.New(fault.CodeSessionLost, "the cluster's DNS server cannot be asked").Because(err)
	}
	return id, got, fresh, nil
}

func (u *upstream) forget(id uint16) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waits, id)
}

// read gives answers to those who wait for them, until the stream ends.
func (u *upstream) read(ctx context.Context, conn net.Conn) {
	defer run.OnDone(ctx, func() { conn.Close() })()
	var split datagram.Splitter
	buf := make([]byte, 4<<10)
	for {
		n, err := conn.Read(buf)
		if err == nil {
			err = split.Split(buf[:n], func(d []byte) error { u.answered(d); return nil })
		}
		if err != nil {
			break
		}
	}
	u.lose(conn)
}

// lose forgets a stream, and tells those who wait for answers by it.
func (u *upstream) lose(conn net.Conn) {
	conn.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conn != conn {
		return
	}
	u.conn = nil
	for id, got := range u.waits {
		close(got)
		delete(u.waits, id)
	}
}

func (u *upstream) answered(d []byte) {
	if len(d) < 2 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	id := binary.BigEndian.Uint16(d)
	if got := u.waits[id]; got != nil {
		got <- append([]byte(nil), d...)
		delete(u.waits, id)
	}
}
