// SPDX-License-Identifier: Apache-2.0

package datagram_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// What is appended is split again, wherever the stream is cut, and nothing else is taken for it.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("abc"), []byte{}, byte(1))
	f.Fuzz(func(t *testing.T, one, two []byte, cut byte) {
		text, err := datagram.Append(nil, one)
		if err == nil {
			text, err = datagram.Append(text, two)
		}
		if err != nil {
			return
		}
		split := func(text []byte) (got [][]byte, err error) {
			var s datagram.Splitter
			for err == nil && len(text) > 0 {
				n := min(int(cut)+1, len(text))
				err = s.Split(text[:n], func(d []byte) error { got = append(got, bytes.Clone(d)); return nil })
				text = text[n:]
			}
			return got, err
		}
		got, err := split(text)
		if err != nil || len(got) != 2 || !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
			t.Fatalf("%q, %v", got, err)
		}
		got, _ = split(one) // anything
		var again []byte
		for _, d := range got {
			again, _ = datagram.Append(again, d)
		}
		if !bytes.HasPrefix(one, again) {
			t.Fatalf("%q became %q", one, got)
		}
	})
}

func TestBounds(t *testing.T) {
	if _, err := datagram.Append(nil, make([]byte, datagram.Most+1)); err == nil {
		t.Error("a datagram that no UDP has is written")
	}
	var s datagram.Splitter
	if err := s.Split([]byte{0xff, 0xff}, func([]byte) error { t.Error("emitted"); return nil }); err == nil {
		t.Error("a datagram that no UDP has is read")
	}
}

// echo answers each datagram with itself.
func echo(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, datagram.Most)
		for {
			n, from, err := c.ReadFromUDP(buf)
			if err != nil {
				return
			}
			c.WriteToUDP(buf[:n], from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c
}

func dial(t *testing.T, to net.Addr) *datagram.Conn {
	t.Helper()
	socket, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	c := datagram.NewConn(socket)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(runtest.Patience))
	return c
}

// Datagrams of every size keep their bounds and their bytes, both ways and whatever room their reader has.
func TestConn(t *testing.T) {
	c := dial(t, echo(t).LocalAddr())
	for _, n := range []int{0, 1, 512, 1400, 9000, 65_507, 3} {
		want, _ := datagram.Append(nil, bytes.Repeat([]byte{byte(n)}, n))
		for _, part := range [][]byte{want[:1], want[1:]} {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(want))
		for at := 0; at < len(got); {
			n, err := c.Read(got[at:min(at+1000, len(got))])
			if err != nil {
				t.Fatal(err)
			}
			at += n
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d: other bytes came back", n)
		}
	}
	done := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 9)); done <- err }()
	c.CloseWrite()
	if err := <-done; err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// A port that is unreachable is a fault, whoever hears of it first.
func TestNobodyIsThere(t *testing.T) {
	to := echo(t)
	at := to.LocalAddr()
	to.Close()
	c := dial(t, at)
	one, _ := datagram.Append(nil, []byte("x"))
	c.Write(one)
	_, err := c.Read(make([]byte, 9))
	if !fault.Has(err, fault.CodeDialRefused) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	socket, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	w := datagram.NewConn(socket)
	runtest.Eventually(t, "its writer hears of it", func() bool {
		_, err := w.Write(one)
		return fault.Has(err, fault.CodeDialRefused)
	})
}
