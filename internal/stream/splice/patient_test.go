// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// act is one thing that happens to a link while it is read. It returns what was
// sent, and leaves the end of reading to the last step.
type act struct {
	name string
	do   func(t *testing.T, l link, p *tap, rng *rand.Rand) (sent []byte)
}

func acts() []act {
	say := func(t *testing.T, l link, p *tap, rng *rand.Rand, sent []byte) []byte {
		for range 30 {
			chunk := data(rng.Uint64(), 8*(1+rng.IntN(1<<rng.IntN(13))))
			if _, err := l.far.Write(chunk); err != nil {
				t.Fatal(err)
			}
			if sent = append(sent, chunk...); rng.IntN(2) == 0 {
				p.until(len(sent))
			}
		}
		return sent
	}
	then := func(last func(l link)) func(*testing.T, link, *tap, *rand.Rand) []byte {
		return func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			sent := say(t, l, p, rng, nil)
			p.until(len(sent))
			last(l)
			return sent
		}
	}
	return []act{
		{"the peer ends", func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			sent := say(t, l, p, rng, nil)
			l.far.CloseWrite()
			return sent
		}},
		{"the peer ends a silent link", then(func(l link) { l.far.CloseWrite() })},
		{"the peer closes", then(func(l link) { l.far.Close() })},
		{"the peer breaks off", then(func(l link) { l.abort() })},
		{"closed while waiting", then(func(l link) { l.near.Close() })},
		{"reset while waiting", then(func(l link) { l.conn.Reset(1) })},
		{"a deadline while waiting", then(func(l link) { l.near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) })},
		{"a deadline in the past", then(func(l link) { l.near.SetReadDeadline(time.Unix(1, 0)) })},
		{"the deadline is put off", func(t *testing.T, l link, p *tap, rng *rand.Rand) []byte {
			l.near.SetReadDeadline(time.Now().Add(bound))
			sent := say(t, l, p, rng, nil)
			l.near.SetReadDeadline(time.Time{})
			sent = say(t, l, p, rng, sent)
			l.far.CloseWrite()
			return sent
		}},
	}
}

// TestReadWhenReady: it gives the bytes and the errors of Read, whatever happens
// and whenever; while nothing comes no buffer is out.
func TestReadWhenReady(t *testing.T) {
	for name, connect := range links() {
		for i, a := range acts() {
			t.Run(name+"/"+a.name, func(t *testing.T) {
				oracle := perform(t, connect(t), a, false, uint64(i))
				if got := perform(t, connect(t), a, true, uint64(i)); got != oracle {
					t.Errorf("ended with\n%s\nwhere Read ends with\n%s", got, oracle)
				}
			})
		}
	}
}

func perform(t *testing.T, l link, a act, patient bool, seed uint64) string {
	t.Helper()
	p := newTap(t, l.conn, patient)
	if l.dribble != nil {
		l.dribble.rng = rand.New(rand.NewPCG(seed, 1))
		n := 0
		l.dribble.pause = func() { // half a record lies there
			if n++; n%4 == 0 && patient {
				p.until(0)
			}
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- p.all(seed) }()
	sent := a.do(t, l, p, rand.New(rand.NewPCG(seed, 2)))
	err := <-ended
	if !bytes.Equal(p.got, sent) {
		t.Errorf("%d bytes were read, %d sent", len(p.got), len(sent))
	}
	return describe(err, l.near)
}

// TestReadWhenReadyGoesOn: after a deadline, also one within a TLS record, reading
// goes on where it was.
func TestReadWhenReadyGoesOn(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			p := newTap(t, l.conn, true)
			msg := data(5, 4_000)
			step := func() {
				l.near.SetReadDeadline(time.Unix(1, 0))
				for {
					err := p.read(1_000)
					if err == nil {
						continue
					}
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Fatal(err)
					}
					break
				}
				l.near.SetReadDeadline(time.Time{})
			}
			step()
			if l.dribble != nil {
				l.dribble.rng, l.dribble.pause = rand.New(rand.NewPCG(1, 1)), step
			}
			for range 3 {
				if _, err := l.far.Write(msg); err != nil {
					t.Fatal(err)
				}
				step()
			}
			l.far.CloseWrite()
			if err := p.all(1); err != io.EOF || !bytes.Equal(p.got, bytes.Repeat(msg, 3)) {
				t.Errorf("%d bytes of %d were read, then %v", len(p.got), 3*len(msg), err)
			}
		})
	}
}

// TestReadWhenReadyClosed: a connection that is closed already asks for no buffer.
func TestReadWhenReadyClosed(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.conn.Close()
			want := describe(newTap(t, l.conn, false).read(10), l.near)
			p := newTap(t, l.conn, true)
			if got := describe(p.read(10), l.near); got != want || p.silent {
				t.Errorf("%s where Read says %s; a buffer was taken: %v", got, want, p.silent)
			}
		})
	}
}

// TestReadWhenReadyNoRoom: like Read, it gives nothing into a buffer without room.
func TestReadWhenReadyNoRoom(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.far.Write([]byte("x"))
			p := newTap(t, l.conn, true)
			if err := p.read(0); err != nil || len(p.got) != 0 {
				t.Errorf("%q, %v", p.got, err)
			}
			if err := p.read(9); err != nil || string(p.got) != "x" {
				t.Errorf("%q, %v", p.got, err)
			}
		})
	}
}

// TestReadAfterReadWhenReady: Read waits as ever.
func TestReadAfterReadWhenReady(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			l.far.Write([]byte("x"))
			if err := newTap(t, l.conn, true).read(9); err != nil {
				t.Fatal(err)
			}
			l.near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := l.conn.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read of a silent connection gives %v", err)
			}
		})
	}
}

// TestBytesBeforeHalfAnAlert: up to TLS 1.2 crypto/tls looks for an alert behind
// the bytes that it has. If only half of one has come, the bytes do not wait for it.
func TestBytesBeforeHalfAnAlert(t *testing.T) {
	for name, connect := range links() {
		if !strings.HasPrefix(name, "tls") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			p := newTap(t, l.conn, true)
			d := l.dribble
			d.held = new(bytes.Buffer)
			l.far.Write([]byte("bytes"))
			l.far.CloseWrite()
			d.Conn.SetWriteDeadline(time.Now().Add(bound)) // TLS has ended it
			wire := d.held.Bytes()
			half := len(wire) - 10
			d.Conn.Write(wire[:half])
			if err := p.read(100); err != nil || string(p.got) != "bytes" {
				t.Errorf("%q, %v", p.got, err)
			}
			d.Conn.Write(wire[half:])
			if err := p.read(100); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

// TestNoAllocationPerWait: reading and waiting allocate nothing.
func TestNoAllocationPerWait(t *testing.T) {
	near, far := pairOn(t, "tcp", "127.0.0.1:0")
	p := splice.Net(near).(carrier.Patient)
	buf, one := make([]byte, 100), []byte("x")
	waits := make(chan struct{}, 1)
	take, give := func() []byte { return buf }, func() { waits <- struct{}{} }
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range ready {
			<-waits
			far.Write(one)
		}
	}()
	allocs := testing.AllocsPerRun(200, func() {
		ready <- struct{}{}
		if n, err := p.ReadWhenReady(take, give); n != 1 || err != nil {
			panic(fmt.Sprint(n, err))
		}
	})
	close(ready)
	<-done
	if allocs != 0 {
		t.Errorf("%v allocations for each byte that is waited for", allocs)
	}
}

// TestReadNow: it gives what has come, says when nothing has, and leaves the rest to Read.
func TestReadNow(t *testing.T) {
	for name, connect := range links() {
		t.Run(name, func(t *testing.T) {
			l := connect(t)
			now := l.conn.(interface{ ReadNow(b []byte) (int, error) })
			b := make([]byte, 2)
			nothing := func() {
				t.Helper()
				if n, err := now.ReadNow(b); n != 0 || err != nil {
					t.Fatalf("nothing has come: %d, %v", n, err)
				}
			}
			comes := func() (n int, err error) {
				for begin := time.Now(); n == 0 && err == nil && time.Since(begin) < bound; n, err = now.ReadNow(b) {
					<-time.After(time.Millisecond)
				}
				return n, err
			}
			nothing()
			if _, err := l.far.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
			if n, err := comes(); err != nil || string(b[:n]) != "ab" {
				t.Fatalf("%q, %v", b[:n], err)
			}
			if n, err := l.conn.Read(b); err != nil || string(b[:n]) != "c" {
				t.Fatalf("%q, %v", b[:n], err)
			}
			nothing()
			l.far.CloseWrite()
			if n, err := comes(); n != 0 || err != io.EOF {
				t.Errorf("at the end %d, %v", n, err)
			}
		})
	}
}
