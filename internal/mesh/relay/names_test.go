// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
)

// greet welcomes the next connection, whichever hub it is to.
func (s *scene) greet() *tls.Conn {
	s.t.Helper()
	conn := <-s.conns
	if _, err := conn.Write(relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: limit.RelayDatagram})); err != nil {
		s.t.Fatal(err)
	}
	drainOf(conn)
	synctest.Wait()
	return conn
}

func (s *scene) wantNames(want ...string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.client.Names(); !slices.Equal(got, want) {
		s.t.Errorf("names %v, want %v", got, want)
	}
}

// TestTwoAddressesOfOneHub: one connection, the hub never sees the second; the other
// address takes over when the first is gone.
func TestTwoAddressesOfOneHub(t *testing.T) {
	play(t, []string{"a:1", "b:1"}, func(s *scene) {
		conn := s.greet()
		s.wantNames("h")
		st := s.client.Status()
		if len(st) != 1 || !st[0].Connected || len(st[0].Others) != 1 || st[0].Others[0] == st[0].Address || s.broken.Load() != 1 || len(s.conns) != 0 {
			t.Fatalf("%+v, %d handshakes broken off", st, s.broken.Load())
		}
		first := st[0].Address
		s.lead(first, "") // nothing is there any more
		conn.NetConn().Close()
		next := s.greet()
		if st := s.client.Status(); len(st) != 1 || !st[0].Connected || st[0].Address == first || st[0].Fault != nil {
			t.Errorf("%+v", st)
		}
		s.wantNames("h")
		if n := s.changes.Load(); n != 1 {
			t.Errorf("%d changes of names were told", n)
		}
		if s.client.Send("h", "p", make([]byte, 100)) != 1 {
			t.Error("not taken by the other address")
		}
		s.lead(first, "h2") // as a name of DNS may
		s.greet()
		s.wantNames(map[bool][]string{true: {"h2", "h"}, false: {"h", "h2"}}[first == "a:1"]...)
		next.NetConn().Close()
		drainOf(s.greet())
	})
}

// TestAnAddressIsLookedAtAgain: where it leads to another hub now, that is used, too.
func TestAnAddressIsLookedAtAgain(t *testing.T) {
	play(t, []string{"a:1", "b:1"}, func(s *scene) {
		go echo(<-s.conns)
		synctest.Wait()
		s.wantNames("h")
		other := map[string]string{"a:1": "b:1", "b:1": "a:1"}[s.client.Status()[0].Address]
		s.lead(other, "h2")
		time.Sleep(relay.RelayLook - time.Second)
		if len(s.conns) != 0 {
			t.Error("it was looked at all the time")
		}
		time.Sleep(2 * time.Second)
		go echo(<-s.conns)
		synctest.Wait()
		if got := s.client.Names(); len(got) != 2 || !slices.Contains(got, "h2") {
			t.Error(got)
		}
		time.Sleep(time.Second)
	})
}

// echo is a hub that welcomes and answers pings until the end.
func echo(conn *tls.Conn) {
	conn.Write(relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: limit.RelayDatagram}))
	pong(conn, 0)
}

// pong is a hub that answers each ping so late, until the end.
func pong(conn *tls.Conn, late time.Duration) {
	defer conn.NetConn().Close()
	var b []byte
	piece := make([]byte, 4096)
	for {
		n, err := conn.Read(piece)
		if b = append(b, piece[:n]...); err != nil {
			return
		}
		for {
			kind, body, rest, need, err := relayproto.Next(b)
			if need > 0 || err != nil {
				break
			}
			if id, err := relayproto.ParsePing(body); kind == relayproto.Ping && err == nil {
				time.Sleep(late)
				conn.Write(relayproto.AppendPing(nil, relayproto.Pong, id))
			}
			b = rest
		}
	}
}

// TestANameStaysOverABreak for so long, and no longer.
func TestANameStaysOverABreak(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		conn := s.greet()
		s.wantNames("h")
		s.lead("a:1", "")
		conn.NetConn().Close()
		synctest.Wait()
		if s.client.Status()[0].Connected {
			t.Fatal("it is connected")
		}
		time.Sleep(relay.RelayStable - time.Second)
		s.wantNames("h")
		if n := s.changes.Load(); n != 1 {
			t.Errorf("%d changes told", n)
		}
		if s.client.Send("h", "p", make([]byte, 9)) != 0 {
			t.Error("taken by a hub that is away")
		}
		time.Sleep(2 * time.Second)
		s.wantNames()
		if n := s.changes.Load(); n != 2 {
			t.Errorf("%d changes told", n)
		}
		if st := s.client.Status(); len(st) != 1 || st[0].Hub != "h" || !fault.Has(st[0].Fault, fault.CodeHubAway) {
			t.Errorf("%+v", st)
		}
		s.lead("a:1", "h")
		s.greet()
		s.wantNames("h")
	})
}

// TestABalancer leads to another hub with each connection: the old one serves until
// others know the new one.
func TestABalancer(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		old := <-s.conns
		go echo(old)
		s.wantNames("h")
		s.lead("a:1", "h2")
		s.client.Renew()
		next := <-s.conns
		go echo(next)
		s.wantNames("h2", "h")
		if s.client.Send("h", "p", make([]byte, 9)) != 1 || s.client.Send("h2", "p", make([]byte, 9)) != 1 {
			t.Error("not taken")
		}
		time.Sleep(relay.RelayStable + relay.RelayLeave + time.Second)
		s.wantNames("h2")
		if s.client.Send("h", "p", make([]byte, 9)) != 0 || len(s.client.Status()) != 1 {
			t.Errorf("the old one is used still: %+v", s.client.Status())
		}
		for i := range 40 { // names are bounded
			s.lead("a:1", fmt.Sprint("x", i))
			s.client.Renew()
			select {
			case conn := <-s.conns:
				go echo(conn)
			case <-time.After(time.Minute):
			}
			synctest.Wait()
			if n := len(s.client.Names()); n > limit.RelayHubs {
				t.Fatalf("%d names", n)
			}
		}
		time.Sleep(2 * relay.RelayStable)
		if n := len(s.client.Names()); n != 1 {
			t.Errorf("%d names in the end", n)
		}
	})
}

// TestOtherAddresses: those that are not wanted are left, with their names; the bound holds.
func TestOtherAddresses(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		s.lead("b:1", "h2")
		go echo(<-s.conns)
		s.wantNames("h")
		s.client.Use([]string{"b:1", "b:1"})
		go echo(<-s.conns)
		s.wantNames("h2")
		if st := s.client.Status(); len(st) != 1 || st[0].Hub != "h2" || len(st[0].Others) != 0 {
			t.Errorf("%+v", st)
		}
		s.client.Use(nil)
		s.wantNames()
		var many []string
		for i := range 2 * limit.RelayHubs {
			many = append(many, fmt.Sprintf("m%d:1", i))
			s.lead(many[i], "")
		}
		s.client.Use(many)
		synctest.Wait()
		if st := s.client.Status(); len(st) != limit.RelayHubs || st[0].Address != "m0:1" {
			t.Errorf("%d addresses: %+v", len(st), st)
		}
	})
}
