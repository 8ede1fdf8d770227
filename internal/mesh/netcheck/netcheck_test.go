// SPDX-License-Identifier: Apache-2.0

package netcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// network is a NAT with servers behind it, each with a second port 3479.
type network struct {
	handle func(netip.AddrPort, []byte)
	mapped func(to netip.AddrPort) netip.AddrPort // not valid: nothing gets out
	strict bool                                   // only from endpoints that were written to
	alone  bool                                   // servers have one port and say so
	mute   bool                                   // servers know nothing of other ports, and do not answer
	lie    bool                                   // they see us at an address that cannot be
	loop   bool                                   // hairpin
	lose   int                                    // the first so many packets
	sent   map[netip.AddrPort]bool
}

func (n *network) send(to netip.AddrPort, data []byte) error {
	if n.lose > 0 {
		n.lose--
		return nil
	}
	from := n.mapped(to)
	if !from.IsValid() {
		return nil
	}
	n.sent[to] = true
	if to.Addr() == from.Addr() {
		if n.loop {
			n.handle(from, data)
		}
		return nil
	}
	m, err := nat.Parse(data)
	if err != nil {
		return err
	}
	other := netip.AddrPortFrom(to.Addr(), 3479)
	by := to
	switch {
	case n.mute && m.Change:
		return nil
	case n.lie:
		from = at("0.0.0.0:1")
	case m.ChangePort && n.alone:
		n.handle(to, nat.Refusal(nat.Message{ID: m.ID, Unknown: []uint16{3}}))
		return nil
	case m.ChangePort:
		by = other
	}
	if n.alone {
		other = netip.AddrPort{}
	}
	if !n.strict || n.sent[by] {
		n.handle(by, nat.Answer(m, from, other))
	}
	return nil
}

// Send and Close make it the socket beside the one that is checked.
func (n *network) Send(to netip.AddrPort, data []byte) error { return n.send(to, data) }
func (n *network) Close() error                              { return nil }

// beside is the same NAT for another socket.
func (n *network) beside(_ context.Context, handle func(netip.AddrPort, []byte)) (Beside, error) {
	other := *n
	other.handle, other.sent = handle, map[netip.AddrPort]bool{}
	other.mapped = func(to netip.AddrPort) netip.AddrPort {
		at := n.mapped(to)
		return netip.AddrPortFrom(at.Addr(), at.Port()+1000)
	}
	return &other, nil
}

const home = "203.0.113.5:51820"

func one(netip.AddrPort) netip.AddrPort { return at(home) }

func each(to netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at(home).Addr(), to.Port()+uint16(to.Addr().As4()[3]))
}

func blocked(netip.AddrPort) netip.AddrPort { return netip.AddrPort{} }

func TestChecks(t *testing.T) {
	for name, c := range map[string]struct {
		n                  network
		udp, hairpin       nat.Tri
		mapping, filtering nat.Behaviour
		within             time.Duration
	}{
		"full cone":              {network{mapped: one, loop: true}, nat.Yes, nat.Yes, nat.EndpointIndependent, nat.AtMostAddress, 0},
		"without hairpin":        {network{mapped: one}, nat.Yes, nat.No, nat.EndpointIndependent, nat.AtMostAddress, filteringTime},
		"port-restricted":        {network{mapped: one, strict: true}, nat.Yes, nat.No, nat.EndpointIndependent, nat.AddressPortDependent, filteringTime},
		"symmetric":              {network{mapped: each, strict: true}, nat.Yes, nat.No, nat.AddressPortDependent, nat.AddressPortDependent, filteringTime},
		"servers with one port":  {network{mapped: one, alone: true, loop: true}, nat.Yes, nat.Yes, nat.EndpointIndependent, nat.NotKnown, 0},
		"servers of others":      {network{mapped: one, mute: true, loop: true}, nat.Yes, nat.Yes, nat.EndpointIndependent, nat.NotKnown, mappingTime},
		"packets are lost":       {network{mapped: one, strict: true, loop: true, lose: 5}, nat.Yes, nat.Yes, nat.EndpointIndependent, nat.AddressPortDependent, mappingTime + filteringTime},
		"UDP is blocked":         {network{mapped: blocked}, nat.No, nat.Unknown, nat.NotKnown, nat.NotKnown, mappingTime},
		"servers that tell lies": {network{mapped: one, lie: true}, nat.No, nat.Unknown, nat.NotKnown, nat.NotKnown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := c.n
				n.sent = map[netip.AddrPort]bool{}
				for _, when := range []string{"at first", "again"} { // the NAT remembers where the socket wrote to
					check := New(Options{
						Send: n.send, Sockets: []netip.AddrPort{at("0.0.0.0:51820")}, Own: []netip.Addr{at("10.0.0.2:1").Addr()}, Beside: n.beside,
						Servers: []nat.Server{{Name: "a", Addr: at("198.51.100.1:3478")}, {Name: "b", Addr: at("198.51.100.2:3478")}},
					})
					n.handle = check.Handle
					begin := time.Now()
					r := check.Run(t.Context())
					if r.UDP != c.udp || r.Hairpin != c.hairpin || r.IPv4.Mapping != c.mapping || r.IPv4.Filtering != c.filtering {
						t.Errorf("%s: UDP %s, hairpin %s, mapping %s, filtering %s\n%s", when, r.UDP, r.Hairpin, r.IPv4.Mapping, r.IPv4.Filtering, r.Text())
					}
					if d := time.Since(begin); d > c.within { // of the bubble: exact
						t.Errorf("%s: took %v, want %v", when, d, c.within)
					}
				}
			})
		})
	}
}

// TestTakesWhatHasCome: a process that stands still until its time is over has the answers that came meanwhile.
func TestTakesWhatHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mapped: one, loop: true, sent: map[netip.AddrPort]bool{}}
		o := Options{Sockets: []netip.AddrPort{at("0.0.0.0:51820")}, Own: []netip.Addr{at("10.0.0.2:1").Addr()}}
		for i := range limit.STUNServers {
			o.Servers = append(o.Servers, nat.Server{Addr: at(fmt.Sprintf("198.51.100.%d:3478", 1+i))})
		}
		check := New(o)
		n.handle = check.Handle
		first := true
		check.o.Send = func(to netip.AddrPort, data []byte) error {
			err := n.send(to, data)
			if first {
				time.Sleep(mappingTime + time.Millisecond)
			}
			first = false
			return err
		}
		for _, s := range check.Run(t.Context()).Servers {
			if s.Why != "" {
				t.Errorf("%v: %s", s.Server.Addr, s.Why)
			}
		}
	})
}

// TestIsBounded: whatever hangs, the report is there in time.
func TestIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) (time.Duration, error) { <-ctx.Done(); return 0, ctx.Err() }
		relays := []Relay{{"slow", hang}, {"near", func(context.Context) (time.Duration, error) { return time.Millisecond, nil }},
			{"away", func(context.Context) (time.Duration, error) { return 0, errors.New("connection refused") }}}
		for range 2 * netcheckRelays {
			relays = append(relays, Relay{"more", hang})
		}
		begin := time.Now()
		r := New(Options{
			Send: func(netip.AddrPort, []byte) error { return errors.New("network is unreachable") }, Relays: relays,
			Servers: []nat.Server{{Addr: at("198.51.100.1:3478")}},
			Router: func(ctx context.Context) nat.PortMapping {
				<-ctx.Done()
				return nat.PortMapping{Tried: []nat.Tried{{Method: "nat-pmp", Why: "no answer"}}}
			},
		}).Run(t.Context())
		if d := time.Since(begin); d > limit.NetcheckTime {
			t.Errorf("took %v", d)
		}
		if len(r.Relays) != netcheckRelays || r.Relays[0].Name != "near" || r.Relays[1].Why == "" || r.PortMapping == nil ||
			!strings.Contains(r.Servers[0].Why, "unreachable") {
			t.Errorf("%s", r.Text())
		}
	})
}

// TestOverRealSockets: against our own server, without NAT.
func TestOverRealSockets(t *testing.T) {
	m, err := stunserver.Open(t.Context(), stunserver.Config{Listen: "127.0.0.1:0", Second: "127.0.0.1:0"}, telemetry.NewSTUN(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	g := run.NewGroup(ctx)
	g.Go("STUN server", m.Run)
	var check *Check
	ready := make(chan struct{})
	s, err := Open(t.Context(), 0, func(from netip.AddrPort, b []byte) {
		<-ready
		check.Handle(from, b)
	})
	if err != nil {
		t.Fatal(err)
	}
	check = New(Options{
		Send: s.Send, Sockets: s.Local(), Own: []netip.Addr{at("127.0.0.1:1").Addr()}, Servers: []nat.Server{{Name: "own", Addr: at(m.Status().Listen[0])}},
		Relays: []Relay{{"hub", func(context.Context) (time.Duration, error) { return time.Millisecond, nil }}}, Beside: OpenBeside,
	})
	close(ready)
	r := check.Run(t.Context())
	if r.UDP != nat.Yes || r.IPv4.NAT != nat.No || r.IPv4.Mapping != nat.None || r.IPv4.Filtering != nat.AtMostAddress || r.Relays[0].Why != "" {
		t.Errorf("%s", r.Text())
	}
	stop()
	if err := errors.Join(s.Close(), g.Wait()); err != nil {
		t.Error(err)
	}
}

// FuzzHandle: whatever comes to the socket, the check goes on.
func FuzzHandle(f *testing.F) {
	f.Add([]byte("x"))
	f.Add(nat.Answer(nat.Message{}, at(home), netip.AddrPort{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(Options{Send: func(netip.AddrPort, []byte) error { return nil }, Servers: []nat.Server{{Addr: at("198.51.100.1:3478")}}})
		q := &question{server: c.o.Servers[0]}
		c.ask([]*question{q})
		c.take([]*question{q}, packet{q.server.Addr, b})
		if q.reply != nil {
			t.Fatal("an answer to a secret")
		}
	})
}
