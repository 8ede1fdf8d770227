// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// sky is a world of STUN servers around one watch. Time goes as Wake says.
type sky struct {
	t      *testing.T
	w      *Watch
	now    time.Time
	last   Decision
	sees   func(server netip.AddrPort) netip.AddrPort // not valid: no answer
	asked  map[netip.AddrPort][]time.Time
	bound  []Rebinding
	change int
}

func newSky(t *testing.T, sees func(netip.AddrPort) netip.AddrPort, servers ...string) *sky {
	s := &sky{t: t, w: NewWatch([32]byte{3}), now: time.Unix(5000, 0), sees: sees, asked: map[netip.AddrPort][]time.Time{}}
	var list []Server
	for i, a := range servers {
		list = append(list, Server{fmt.Sprint("s", i), at(a)})
	}
	s.event(Event{Servers: list})
	return s
}

// event gives the watch an event, and the answers to what it sends.
func (s *sky) event(e Event) {
	queue := []Event{e}
	for len(queue) > 0 {
		s.last = s.w.Next(queue[0], s.now)
		queue = queue[1:]
		s.bound = append(s.bound, s.last.Rebound...)
		if s.last.Changed {
			s.change++
		}
		if s.last.Err != nil {
			s.t.Fatal(s.last.Err)
		}
		for _, p := range s.last.Send {
			s.asked[p.To] = append(s.asked[p.To], s.now)
			if mapped := s.sees(p.To); mapped.IsValid() {
				m, err := Parse(p.Data)
				if err != nil {
					s.t.Fatal(err)
				}
				queue = append(queue, Event{From: p.To, Packet: Answer(m, mapped, netip.AddrPort{})})
			}
		}
	}
}

func (s *sky) run(d time.Duration) {
	end := s.now.Add(d)
	for n := 0; ; n++ {
		if s.last.Wake.IsZero() || s.last.Wake.After(end) {
			s.now = end
			return
		}
		if s.last.Wake.Before(s.now) || n > 10_000 {
			s.t.Fatalf("wakes at %v, now is %v", s.last.Wake, s.now)
		}
		s.now = s.last.Wake
		s.event(Event{})
	}
}

func (s *sky) mapped() []string {
	var out []string
	for _, m := range s.last.Mapped {
		out = append(out, m.Addr.String())
	}
	return out
}

func always(s string) func(netip.AddrPort) netip.AddrPort {
	return func(netip.AddrPort) netip.AddrPort { return at(s) }
}

func none(netip.AddrPort) netip.AddrPort { return netip.AddrPort{} }

const (
	one, two, three = "198.51.100.1:3478", "198.51.100.2:3478", "198.51.100.3:3478"
	home            = "203.0.113.5:51820"
)

func TestAWatchKeepsAMappingFresh(t *testing.T) {
	s := newSky(t, always(home), one, two, three)
	if !slices.Equal(s.mapped(), []string{home}) || s.change != 1 {
		t.Fatalf("mapped %v after %d changes", s.mapped(), s.change)
	}
	s.run(10 * time.Minute)
	for _, server := range []string{one, two} {
		times := s.asked[at(server)]
		for i := 1; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < limit.STUNKeep || d > limit.STUNKeepLate {
				t.Fatalf("%s was asked after %v", server, d)
			}
		}
		if len(times) < 24 {
			t.Errorf("%s was asked %d times", server, len(times))
		}
	}
	if len(s.asked[at(three)]) != 0 || s.change != 1 || len(s.bound) != 0 {
		t.Errorf("a third server was asked %d times; %d changes, %v", len(s.asked[at(three)]), s.change, s.bound)
	}
	no := false
	s.event(Event{Needed: &no})
	s.run(30 * time.Second)
	before := len(s.asked[at(one)])
	s.run(time.Hour)
	if n := len(s.asked[at(one)]) - before; n < 11 || n > 13 {
		t.Errorf("asked %d times in an hour in which nobody needs it", n)
	}
	yes := true
	before = len(s.asked[at(one)])
	s.event(Event{Needed: &yes})
	if len(s.asked[at(one)]) != before+1 {
		t.Error("not asked at once when it is needed again")
	}
}

func TestAServerThatIsSilentIsReplaced(t *testing.T) {
	s := newSky(t, func(a netip.AddrPort) netip.AddrPort {
		if a == at(one) {
			return netip.AddrPort{}
		}
		return at(home)
	}, one, two, three)
	s.run(3400 * time.Millisecond)
	if times := s.asked[at(one)]; len(times) != 3 || times[1].Sub(times[0]) != limit.STUNWait || times[2].Sub(times[1]) != 2*limit.STUNWait {
		t.Fatalf("asked at %v", times)
	}
	if len(s.asked[at(three)]) != 0 {
		t.Fatal("the third was asked before the first had its time")
	}
	s.run(200 * time.Millisecond)
	if len(s.asked[at(three)]) != 1 || !slices.Equal(s.mapped(), []string{home}) {
		t.Errorf("the third was asked %d times; mapped %v", len(s.asked[at(three)]), s.mapped())
	}
	states := s.w.Servers()
	if states[0].Used || states[0].Failing.IsZero() || !states[1].Used || !states[2].Used {
		t.Errorf("%+v", states)
	}
}

func TestNoticesAnotherMapping(t *testing.T) {
	s := newSky(t, always(home), one, two)
	s.run(time.Minute)
	s.sees = always("203.0.113.5:60000") // the router was switched off and on
	before := s.now
	s.run(limit.STUNKeepLate)
	if len(s.bound) != 2 || s.bound[0].From != at(home) || s.bound[0].To != at("203.0.113.5:60000") || !slices.Equal(s.mapped(), []string{"203.0.113.5:60000"}) {
		t.Fatalf("%v, mapped %v", s.bound, s.mapped())
	}
	a, b := s.asked[at(one)], s.asked[at(two)]
	if first := min(a[len(a)-1].Sub(before), b[len(b)-1].Sub(before)); first > limit.STUNKeepLate {
		t.Errorf("noticed after %v", first)
	}
	// The second server was asked at once when the first said so.
	meet := slices.ContainsFunc(a, func(x time.Time) bool { return x.After(before) && slices.ContainsFunc(b, x.Equal) })
	if !meet {
		t.Error("the other server was not asked at once")
	}
}

// TestServersThatNeverAgreeMakeNoStorm: each answer is another one, and has the others asked.
func TestServersThatNeverAgreeMakeNoStorm(t *testing.T) {
	port := uint16(1)
	s := newSky(t, func(netip.AddrPort) netip.AddrPort {
		port++
		return netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), port)
	}, "192.0.2.1:1", "192.0.2.2:1")
	s.run(time.Minute)
	for server, times := range s.asked {
		if most := int(time.Minute/limit.STUNRecheck) + 2; len(times) > most {
			t.Errorf("%v was asked %d times in a minute, at most %d", server, len(times), most)
		}
	}
}

func TestAsksAtOnceAfterAChangeOfAddresses(t *testing.T) {
	s := newSky(t, always(home), one, two)
	s.run(5 * time.Second)
	s.sees = always("192.0.2.77:51820")
	s.event(Event{Changed: true})
	if !slices.Equal(s.mapped(), []string{"192.0.2.77:51820"}) || s.change < 2 {
		t.Errorf("mapped %v", s.mapped())
	}
}

func TestVaries(t *testing.T) {
	s := newSky(t, func(a netip.AddrPort) netip.AddrPort {
		if a.Addr().Is6() {
			return at("[2001:db8::5]:51820")
		}
		return netip.AddrPortFrom(at(home).Addr(), 1000+uint16(a.Addr().As4()[3]))
	}, one, two, "[2001:db8:9::1]:3478", "[2001:db8:9::2]:3478")
	if !s.w.Varies(true) || s.w.Varies(false) || len(s.mapped()) != 3 {
		t.Errorf("varies %v, %v; mapped %v", s.w.Varies(true), s.w.Varies(false), s.mapped())
	}
}

func TestAnOutageIsBridgedAndItsEndNoticed(t *testing.T) {
	s := newSky(t, always(home), one, two)
	s.run(time.Second)
	s.sees = none
	s.run(45 * time.Second)
	if !slices.Equal(s.mapped(), []string{home}) {
		t.Fatalf("mapped %v in a short outage", s.mapped())
	}
	s.run(30 * time.Second)
	if len(s.mapped()) != 0 {
		t.Fatalf("mapped %v, which nobody confirmed for %v", s.mapped(), limit.STUNHold)
	}
	s.run(10 * time.Minute)
	s.sees = always(home)
	s.run(limit.STUNKeepLate + 4*time.Second)
	if !slices.Equal(s.mapped(), []string{home}) {
		t.Errorf("mapped %v after the end of the outage", s.mapped())
	}
}

func TestAListOfServersIsTakenOver(t *testing.T) {
	s := newSky(t, always(home), one)
	s.run(time.Second)
	list := []Server{{"a", at(two)}, {"again", at(two)}, {"none", netip.AddrPort{}}, {"port", at("192.0.2.1:0")}, {"b", at(one)}}
	for i := range 30 {
		list = append(list, Server{"more", netip.AddrPortFrom(at(one).Addr(), 5000+uint16(i))})
	}
	s.event(Event{Servers: list})
	if len(s.asked[at(one)]) != 1 || len(s.asked[at(two)]) != 1 {
		t.Errorf("asked: %v", s.asked)
	}
	if n := len(s.w.Servers()); n != limit.STUNServers {
		t.Errorf("%d servers are kept", n)
	}
	s.event(Event{Servers: []Server{}})
	if !s.last.Wake.IsZero() || len(s.last.Mapped) != 0 || !s.last.Changed {
		t.Errorf("%+v", s.last)
	}
}

func TestAStrangersAnswerIsToldAndChangesNothing(t *testing.T) {
	w := NewWatch([32]byte{4})
	now := time.Unix(1, 0)
	d := w.Next(Event{Servers: []Server{{"s", at(one)}}}, now)
	m, _ := Parse(d.Send[0].Data)
	d = w.Next(Event{From: at("192.0.2.66:3478"), Packet: Answer(m, at("192.0.2.66:1"), netip.AddrPort{})}, now)
	if d.Err == nil || d.Changed || len(d.Mapped) != 0 || len(d.Send) != 0 || d.Wake.IsZero() {
		t.Errorf("%+v", d)
	}
}

// Only what has the id of an open request can be an answer; who looks need not read it all.
func TestWhatIsAwaited(t *testing.T) {
	c := NewClient([32]byte{1})
	request := c.Ask(netip.MustParseAddrPort("192.0.2.1:3478"), time.Unix(0, 0))
	m, err := Parse(request)
	if err != nil {
		t.Fatal(err)
	}
	answer := Answer(m, netip.MustParseAddrPort("203.0.113.1:1"), netip.AddrPort{})
	other := Answer(Message{ID: ID{1}}, netip.MustParseAddrPort("203.0.113.1:1"), netip.AddrPort{})
	for name, b := range map[string][]byte{"nothing": nil, "a byte": {1}, "half": answer[:19], "no STUN": append([]byte{0xff}, answer[1:]...), "another id": other} {
		if c.Awaits(b) {
			t.Errorf("%s is awaited", name)
		}
	}
	if !c.Awaits(answer) {
		t.Error("the answer is not")
	}
	if _, err := c.Take(netip.MustParseAddrPort("192.0.2.1:3478"), answer, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if c.Awaits(answer) {
		t.Error("the answer is awaited twice")
	}
}
