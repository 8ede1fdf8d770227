// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func echo(t *testing.T, conn io.ReadWriter, n int) {
	t.Helper()
	sent := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range sent {
		sent[i] = byte(rng.Uint32())
	}
	wrote := make(chan error, 1)
	go func() {
		var err error
		for rest := sent; len(rest) > 0 && err == nil; rest = rest[min(len(rest), 16<<10):] {
			_, err = conn.Write(rest[:min(len(rest), 16<<10)])
		}
		wrote <- err
	}()
	got := make([]byte, n)
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the echo differs: %v", err)
	}
	if err := soon(t, "write", wrote); err != nil {
		t.Error(err)
	}
}

func mustDial(t *testing.T, dial dialer, address string) net.Conn {
	t.Helper()
	conn, err := dial(t, within(t), address)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// shut closes a connection. The reference's Close fails where no answer comes within 10 s, and says "tunnel closed"
// when it is woken late after a good one.
func shut(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.Close(); err != nil && err.Error() != "tunnel closed" {
		t.Errorf("close: %v", err)
	}
}

func TestEcho(t *testing.T) {
	clients(t, func(t *testing.T, _ *rig, dial dialer) {
		conn := mustDial(t, dial, "echo:1")
		echo(t, conn, 1)
		echo(t, conn, 300_000)
		shut(t, conn)
	})
}

// TestLarge: many megabytes each way at once, by hash.
func TestLarge(t *testing.T) {
	const size = 24 << 20
	clients(t, func(t *testing.T, r *rig, dial dialer) {
		conn := mustDial(t, dial, "target:1")
		target := r.target()
		type sum struct {
			hash [sha256.Size]byte
			n    int64
			err  error
		}
		send := func(w io.Writer, seed uint64) <-chan sum {
			out := make(chan sum, 1)
			go func() {
				hash, rng := sha256.New(), rand.NewChaCha8([32]byte{byte(seed)})
				n, err := io.CopyN(io.MultiWriter(hash, w), rng, size)
				out <- sum{[sha256.Size]byte(hash.Sum(nil)), n, err}
			}()
			return out
		}
		receive := func(r io.Reader) <-chan sum {
			out := make(chan sum, 1)
			go func() {
				hash := sha256.New()
				n, err := io.CopyN(hash, struct{ io.Reader }{r}, size)
				out <- sum{[sha256.Size]byte(hash.Sum(nil)), n, err}
			}()
			return out
		}
		up, down := send(conn, 1), send(target, 2)
		upGot, downGot := receive(target), receive(conn)
		if a, b := soon(t, "up", up), soon(t, "up", upGot); a != b {
			t.Errorf("up: sent %d (%v), received %d (%v)", a.n, a.err, b.n, b.err)
		}
		if a, b := soon(t, "down", down), soon(t, "down", downGot); a != b {
			t.Errorf("down: sent %d (%v), received %d (%v)", a.n, a.err, b.n, b.err)
		}
		conn.Close()
		target.Close()
	})
}

func TestDialError(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"refused:1", "dial_refused: the target refused: nothing listens on 10.0.0.1:1; start it"},
		{"resolver:1", "internal: unexpected failure: dial tcp: lookup a b.example on 10.0.0.10:53: no such host"},
		{"", "dial_dns: unknown target "},
	} {
		t.Run(c.address, func(t *testing.T) {
			clients(t, func(t *testing.T, _ *rig, dial dialer) {
				if _, err := dial(t, within(t), c.address); err == nil || err.Error() != c.want {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if conn, err := dial(t, within(t), "echo:1"); err != nil {
					t.Errorf("the next dial: %v", err)
				} else {
					echo(t, conn, 10)
					conn.Close()
				}
			})
		})
	}
}

// TestDialCancel: a caller that gives up ends the dial behind it.
func TestDialCancel(t *testing.T) {
	clients(t, func(t *testing.T, r *rig, dial dialer) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := dial(t, ctx, "never:1"); failed <- err }()
		behind := soon(t, "dial", r.dialing)
		cancel()
		soon(t, "the dial behind ends", behind.Done())
		if err := soon(t, "dial error", failed); err == nil || !strings.Contains(err.Error(), "context") {
			t.Errorf("got %v", err)
		}
	})
}

// TestClientClose: Close is answered at once, and the target gets all of the data and an orderly end.
func TestClientClose(t *testing.T) {
	clients(t, func(t *testing.T, r *rig, dial dialer) {
		for _, size := range []int{0, 10, 200_000} {
			conn := mustDial(t, dial, "target:1")
			target := r.target()
			for rest := size; rest > 0; rest -= min(rest, 16<<10) {
				if _, err := conn.Write(make([]byte, min(rest, 16<<10))); err != nil {
					t.Fatal(err)
				}
			}
			shut(t, conn)
			// Only now does the target read, and it goes on for a while after the end.
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{target}); n != int64(size) || err != nil {
				t.Errorf("the target read %d bytes of %d, %v", n, size, err)
			}
			if _, err := target.Write([]byte("a late word")); err != nil {
				t.Errorf("the target's late word: %v", err)
			}
			target.Close()
		}
	})
}

// TestTalkativeTarget: one that goes on sending after its caller has closed is
// reset in the end.
func TestTalkativeTarget(t *testing.T) {
	r := newRig(t)
	conn := mustDial(t, r.single, "target:1")
	target := r.target()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := target.Write(make([]byte, 1000)); err != nil {
				ended <- err
				return
			}
		}
	}()
	if _, err := io.ReadFull(conn, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); io.Copy(io.Discard, conn) }()
	shut(t, conn)
	var reset *carrier.ResetError
	if err := soon(t, "the target's end", ended); !errors.As(err, &reset) {
		t.Errorf("the target writes %v, want a reset", err)
	}
	soon(t, "the reader's end", drained)
}

func TestTargetClose(t *testing.T) {
	clients(t, func(t *testing.T, r *rig, dial dialer) {
		conn := mustDial(t, dial, "target:1")
		target := r.target()
		wrote := make(chan error, 1)
		go func() {
			_, err := target.Write(make([]byte, 1<<20))
			wrote <- errors.Join(err, target.Close())
		}()
		if got, err := io.ReadAll(conn); err != nil || len(got) != 1<<20 {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if err := soon(t, "write", wrote); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}

// TestIsolation: on one gRPC connection, a caller that does not read and a target
// that does not read change nothing for others.
func TestIsolation(t *testing.T) {
	r := newRig(t)
	dial := r.reusable(t)
	live := mustDial(t, dial, "echo:1")

	deaf := mustDial(t, dial, "target:1") // its caller does not read
	flood := r.target()
	stuck := mustDial(t, dial, "target:1") // its target does not read
	mute := r.target()
	ended := make(chan struct{}, 2)
	pour := func(w io.Writer) {
		for block := make([]byte, 16<<10); ; {
			if _, err := w.Write(block); err != nil {
				ended <- struct{}{}
				return
			}
		}
	}
	go pour(flood)
	go pour(stuck)
	for range 3 {
		echo(t, live, 1<<20)
		conn := mustDial(t, dial, "echo:1")
		echo(t, conn, 100_000)
		shut(t, conn)
	}
	go io.Copy(io.Discard, deaf)
	deaf.Close()
	mute.Reset(1)
	soon(t, "the flood", ended)
	soon(t, "the stuck writer", ended)
	flood.Reset(1)
	stuck.Close()
	live.Close()
}

// TestNoLeak: a thousand connections leave neither goroutines nor descriptors.
func TestNoLeak(t *testing.T) {
	clients(t, func(t *testing.T, _ *rig, dial dialer) {
		dials := 1_000
		if strings.HasSuffix(t.Name(), "single-use") {
			dials = 200 // each with a connection of its own
		}
		once := func(i int) {
			if i%5 == 4 {
				if _, err := dial(t, within(t), "refused:1"); err == nil {
					t.Fatal("not refused")
				}
				return
			}
			conn := mustDial(t, dial, "echo:1")
			echo(t, conn, 100)
			conn.Close()
		}
		once(0)
		goroutines, files := runtime.NumGoroutine(), descriptors(t)
		for i := range dials {
			once(i)
		}
		for ctx := within(t); runtime.NumGoroutine() > goroutines || descriptors(t) > files; runtime.Gosched() {
			if ctx.Err() != nil {
				t.Fatalf("%d goroutines and %d descriptors before, %d and %d after", goroutines, files, runtime.NumGoroutine(), descriptors(t))
			}
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
