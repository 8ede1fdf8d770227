// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestLose: each packet arrives or is counted, some of either.
func TestLose(t *testing.T) {
	l := labtest.New(t, "lose")
	a, err := l.Host("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Host("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Link(lab.End{Host: a, Name: "eth0", Addr: "10.0.0.1"}, lab.End{Host: b, Name: "eth0", Addr: "10.0.0.2"}); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*lab.Host{a, b} {
		if err := lab.SinglePackets(h, "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.SinglePackets(a, "eth1"); err == nil {
		t.Error("a link that does not exist was changed")
	}
	var to *net.UDPConn
	if err := b.Do(func() (err error) {
		to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := a.DialContext(t.Context(), "udp4", to.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	loss := lab.Lose(b, "eth0", 2)
	for _, c := range []struct {
		on   bool
		word string
	}{{false, "before"}, {true, "while"}, {false, "after"}} {
		toggle := loss.Off
		if c.on {
			toggle = loss.On
		}
		if err := toggle(); err != nil {
			t.Fatal(err)
		}
		before, err := loss.Packets()
		if err != nil {
			t.Fatal(err)
		}
		const sent = 60 // fits into the receiver's buffer
		for range sent {
			if _, err := from.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		heard := hear(t, to, from, c.word)
		after, err := loss.Packets()
		if err != nil {
			t.Fatal(err)
		}
		lost := int(after - before)
		if !c.on && (lost != 0 || heard != sent) {
			t.Errorf("%s: %d of %d arrived, %d were lost", c.word, heard, sent, lost)
		}
		if c.on && (heard == 0 || heard == sent || heard+lost < sent) {
			t.Errorf("%s: %d of %d arrived, %d were lost", c.word, heard, sent, lost)
		}
	}
}

// hear counts the packets of one byte until the last word: packets keep their
// order on a veth link. The word may be lost itself, so it is said until it is
// heard.
func hear(t *testing.T, to *net.UDPConn, from net.Conn, word string) (heard int) {
	t.Helper()
	packet := make([]byte, 16)
	for {
		if _, err := from.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		to.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			n, err := to.Read(packet)
			if err != nil {
				break // say it again
			}
			if string(packet[:n]) == word {
				return heard
			}
			if n == 1 {
				heard++
			}
		}
	}
}
