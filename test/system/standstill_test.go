// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

const standstillChild = "TOMBOLO_STANDSTILL"

// TestStandstill: the machine stands still for longer than a link may be silent, as
// one does that has no memory, no disk or no processor left. Hub and agent are alive,
// and so is what lies between them: no stream ends for it, busy or quiet, on one
// connection or on several.
func TestStandstill(t *testing.T) {
	t.Parallel()
	if os.Getenv(standstillChild) != "" {
		return // this is the child
	}
	child := exec.Command(os.Args[0], "-test.run=^TestStandstillChild$", "-test.v", "-test.timeout=2m")
	child.Env = append(os.Environ(), standstillChild+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewReader(io.TeeReader(out, &said))
	for round := range 2 {
		if !await(lines, fmt.Sprintf("moving %d\n", round)) {
			break
		}
		child.Process.Signal(syscall.SIGSTOP)
		time.Sleep(limit.DeadLive + time.Second) // what it is about
		child.Process.Signal(syscall.SIGCONT)
		io.WriteString(in, "go on\n")
	}
	io.Copy(io.Discard, lines)
	if err := child.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
}

func await(lines *bufio.Reader, want string) bool {
	for {
		line, err := lines.ReadString('\n')
		if err != nil || strings.HasSuffix(line, want) {
			return err == nil
		}
	}
}

// TestStandstillChild is what stands still.
func TestStandstillChild(t *testing.T) {
	if os.Getenv(standstillChild) == "" {
		return // it is a part of TestStandstill
	}
	h, _ := pair(t, hubSpec{}, agentSpec{})
	target := flowing(t)
	path := h.socket("c1", "konnectivity")
	var moves []*move
	for range 3 {
		conn, err := dialKonnectivity(t, t.Context(), path, target)
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, newMove(conn))
	}
	quiet, err := dialConnect(t.Context(), h.socket("c1", "connect"), target)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	asked := bufio.NewReader(os.Stdin)
	for round := range 2 {
		for _, m := range moves {
			before := m.least()
			runtest.Eventually(t, "bytes move", func() bool { return m.least() > before+256<<10 || m.failed() != nil })
		}
		fmt.Printf("moving %d\n", round)
		if _, err := asked.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range moves {
		if err := m.end(); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if _, err := quiet.Write(block()[:1]); err != nil {
		t.Errorf("the quiet stream: %v", err)
	}
	quiet.SetReadDeadline(time.Now().Add(runtest.Patience))
	if _, err := io.ReadFull(quiet, make([]byte, 1)); err != nil {
		t.Errorf("the quiet stream: %v", err)
	}
}

// block is what is sent over and over: noise that is known at both ends. Its length is
// prime, so that a piece that is lost or comes twice is seen.
func block() []byte {
	b := make([]byte, 65_537)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// flowing is a target that sends blocks without end once its caller has spoken (see
// limit.Settle), and closes if what it reads are others.
func flowing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				first := make([]byte, 1)
				if _, err := io.ReadFull(conn, first); err != nil || first[0] != block()[0] {
					conn.Close()
					return
				}
				go send(conn, block())
				io.Copy(io.Discard, &checked{from: conn, want: block(), read: 1, bad: conn.Close})
			}()
		}
	}()
	return ln.Addr().String()
}

// send sends blocks until the connection ends.
func send(to io.Writer, block []byte) (err error) {
	for err == nil {
		_, err = to.Write(block)
	}
	return err
}

// checked reads blocks and calls bad at the first byte that is another.
type checked struct {
	from io.Reader
	want []byte
	read int
	bad  func() error
}

func (c *checked) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	for _, x := range b[:n] {
		if x != c.want[c.read%len(c.want)] {
			return 0, errors.Join(fmt.Errorf("byte %d is another than was sent", c.read), c.bad())
		}
		c.read++
	}
	return n, err
}

// move is a stream that is read and written without end.
type move struct {
	conn       net.Conn
	down, up   atomic.Int64
	done       sync.WaitGroup
	ending     atomic.Bool
	mu         sync.Mutex
	firstError error
}

func newMove(conn net.Conn) *move {
	m := &move{conn: conn}
	m.done.Go(func() {
		_, err := io.Copy(tally{&m.down}, &checked{from: conn, want: block(), bad: func() error { return nil }})
		m.fail(fmt.Errorf("down: %w", orEnd(err)))
	})
	m.done.Go(func() { m.fail(fmt.Errorf("up: %w", send(io.MultiWriter(conn, tally{&m.up}), block()))) })
	return m
}

func orEnd(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

func (m *move) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.firstError == nil && !m.ending.Load() {
		m.firstError = err
	}
}

func (m *move) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstError
}

// least is what has moved in the slower direction.
func (m *move) least() int64 { return min(m.down.Load(), m.up.Load()) }

// end closes the stream, and says how it failed before.
func (m *move) end() error {
	m.ending.Store(true)
	m.conn.Close()
	m.done.Wait()
	return m.failed()
}

type tally struct{ n *atomic.Int64 }

func (c tally) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
