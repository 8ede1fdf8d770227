// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestFlood counts what a cut costs, in both IP versions, and ends with its lab.
func TestFlood(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := lab.New("flood")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	g, err := lab.NewPlaces(l, kind(t, "dual-stack"))
	if err != nil {
		t.Fatal(err)
	}
	const port, word = 7007, "a word of a flood; "
	if err := g.Hub.Echo(port); err != nil {
		t.Fatal(err)
	}
	home := g.All[0]
	wire, err := home.Router.Capture("wan")
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{lab.HubAddr, lab.HubAddr6} {
		f, err := home.Host.Flood(netip.AddrPortFrom(netip.MustParseAddr(addr), port), word)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		came := func(since time.Time) {
			t.Helper()
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if at, there := f.FirstAfter(since); there {
					if at.Before(since) {
						t.Errorf("%s: an answer came before its packet", f)
					}
					return
				}
			}
			t.Fatalf("%s: nothing came back: %s", f, f.Lost(since))
		}
		came(begin)
		if err := home.Uplink.On(); err != nil {
			t.Fatal(err)
		}
		cut := time.Now()
		for f.Lost(cut).Sent < 5 {
			time.Sleep(time.Millisecond)
		}
		if _, there := f.FirstAfter(cut); there {
			t.Errorf("%s: a packet came back through a cut", f)
		}
		if err := home.Uplink.Off(); err != nil {
			t.Fatal(err)
		}
		came(time.Now())
		f.End()
		f.End()
		if got := f.Lost(cut); got.Rows != 1 || got.Lost < 5 || got.Sent <= got.Lost {
			t.Errorf("%s: %s; want one row of five or more, and some after it", f, got)
		}
		if n, err := wire.With([]byte(word)); err != nil || n == 0 {
			t.Errorf("%s: the wire has %d packets (%v)", f, n, err)
		}
	}
	conn, err := home.Host.DialContext(t.Context(), "tcp", lab.HubAddr+":7007")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, word); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != word {
		t.Errorf("by TCP %q came back (%v)", got, err)
	}
	// Neither a flood nor a stream needs to be ended before the lab is.
	if _, err := home.Host.Flood(netip.AddrPortFrom(netip.MustParseAddr(lab.HubAddr), port), word); err != nil {
		t.Fatal(err)
	}
	left, err := home.Host.DialContext(t.Context(), "tcp", lab.HubAddr+":7007")
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
}
