// SPDX-License-Identifier: Apache-2.0

package splice_test

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
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// echoDatagrams answers each datagram with itself.
func echoDatagrams(t *testing.T) *net.UDPConn {
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

func dialDatagrams(t *testing.T, to net.Addr) splice.Conn {
	t.Helper()
	socket, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	socket.SetDeadline(time.Now().Add(runtest.Patience))
	c := splice.New().Datagrams(socket)
	return c
}

// Datagrams of every size keep their bounds and their bytes, both ways and whatever room their reader has.
func TestDatagrams(t *testing.T) {
	c := dialDatagrams(t, echoDatagrams(t).LocalAddr())
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
	to := echoDatagrams(t)
	at := to.LocalAddr()
	to.Close()
	c := dialDatagrams(t, at)
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
	w := splice.New().Datagrams(socket)
	runtest.Eventually(t, "its writer hears of it", func() bool {
		_, err := w.Write(one)
		return fault.Has(err, fault.CodeDialRefused)
	})
}
