// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

const (
	one, two, three = "198.51.100.1:3478", "198.51.100.2:3478", "198.51.100.3:3478"
	ownAt           = "own " + own + ":51820"
)

// servers are three of IPv4.
func servers() []Server { return []Server{{"a", one}, {"b", two}, {"c", three}} }

func always(s string) func(netip.AddrPort) netip.AddrPort {
	return func(netip.AddrPort) netip.AddrPort { return at(s) }
}

func bubble(t *testing.T, play func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { play(newWorld(t)) })
}

// TestAllKinds: the list has what is known from the beginning, then what is found out;
// what comes together is told once; confirmations are no change; at the end the router's
// mapping is taken away.
func TestAllKinds(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.Static, w.p.PortMapping = servers, []netip.AddrPort{at("203.0.113.9:443")}, true
		w.sees, w.lease = always("203.0.113.5:1024"), portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour}
		w.run(func() {
			if got := w.e.List(); !slices.Equal(got, []member.Endpoint{{Addr: at("203.0.113.9:443"), Kind: member.KindStatic}, {Addr: at(own + ":51820"), Kind: member.KindOwn}}) {
				t.Errorf("before Run: %v", got)
			}
			after(time.Second)
			w.want("static 203.0.113.9:443", ownAt, "mapped 203.0.113.5:1024", "portmap 203.0.113.5:51820")
			if got := w.e.List(); len(got) != 4 || got[2].Kind != member.KindMapped || got[3].Kind != member.KindMapped {
				t.Errorf("told others %v", got)
			}
			if got := w.e.Addresses(); !slices.Equal(got, []netip.Addr{ip(own)}) {
				t.Errorf("addresses %v", got)
			}
			after(time.Hour)
			if w.tally().changed != 1 || w.tally().moved != 0 {
				t.Errorf("changed %d times, moved %d times", w.tally().changed, w.tally().moved)
			}
			// Two servers each 20 to 25 s, and the router each limit.GatewayLook.
			if n := w.requests(); n < 2*3600/25 || n > 2*3600/20+8 || w.requestsTo(three) != 0 {
				t.Errorf("%d requests, of the third server %d", n, w.requestsTo(three))
			}
			if w.tally().maps != 1+int(time.Hour/limit.GatewayLook) {
				t.Errorf("the router was asked %d times", w.tally().maps)
			}
			if s := w.e.Status(); s.PortMapping.Method != "nat-pmp" || !s.PortMapping.Until.After(time.Now()) || s.PortMapping.External != at("203.0.113.5:51820") || s.Varies ||
				len(s.Servers) != 3 || !s.Servers[0].Used || s.Servers[0].RTT != 0.01 || s.Servers[2].Used || s.Port != 51820 {
				t.Errorf("%+v", s)
			}
			m := w.p.Metrics
			if figure(m.PortMapping) != 1 || figure(m.Requests) != figure(m.Answers) || int(figure(m.Answers)) != w.requests() {
				t.Error("the metrics do not say so")
			}
		})
		if w.tally().unmaps != 1 || figure(w.p.Metrics.PortMapping) != 0 {
			t.Errorf("unmapped %d times", w.tally().unmaps)
		}
	})
}

// TestASymmetricNATIsTold: its ports are of no use, but its address is: peers whose filter
// goes by addresses open it by a packet there.
func TestASymmetricNATIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers = servers
		w.sees = func(s netip.AddrPort) netip.AddrPort {
			return netip.AddrPortFrom(ip("203.0.113.5"), 1000+s.Port()+uint16(s.Addr().As4()[3]))
		}
		w.run(func() {
			after(time.Hour)
			w.want(ownAt, "mapped 203.0.113.5:4479", "mapped 203.0.113.5:4480")
			if !w.e.Status().Varies || w.tally().changed != 1 {
				t.Errorf("changed %d times", w.tally().changed)
			}
		})
	})
}

// TestAServerThatDiesIsReplaced: and the list stays.
func TestAServerThatDiesIsReplaced(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers = servers
		dead := map[netip.AddrPort]bool{}
		w.sees = func(s netip.AddrPort) netip.AddrPort {
			if dead[s] {
				return netip.AddrPort{}
			}
			return at("203.0.113.5:1024")
		}
		w.run(func() {
			after(time.Second)
			w.set(func() { dead[at(one)] = true })
			after(limit.STUNKeepLate + 4*time.Second)
			s := w.e.Status()
			if s.Servers[0].Failing.IsZero() || s.Servers[0].Why == "" || !s.Servers[2].Used || s.Servers[2].Mapped != at("203.0.113.5:1024") {
				t.Errorf("%+v", s.Servers)
			}
			after(time.Hour)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			if w.tally().changed != 1 || w.failures("unanswered") != 1 {
				t.Errorf("changed %d times, %d unanswered", w.tally().changed, w.failures("unanswered"))
			}
			w.set(func() { dead[at(two)], dead[at(three)] = true, true })
			after(limit.STUNKeepLate + 4*time.Second + limit.STUNHold)
			w.want(ownAt) // nobody confirms it
			w.set(func() { clear(dead) })
			after(limit.STUNAgain)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			s = w.e.Status()
			if n := len(slices.DeleteFunc(slices.Clone(s.Servers), func(a Asked) bool { return !a.Failing.IsZero() })); n < 2 { // a third one is not needed
				t.Errorf("%+v", s.Servers)
			}
		})
	})
}

// TestARebindingIsTold: once, within the interval; and the router, which may have been
// restarted, is asked again.
func TestARebindingIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.PortMapping = servers, true
		w.sees, w.lease = always("203.0.113.5:1024"), portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour}
		w.run(func() {
			after(time.Minute)
			w.set(func() { w.sees, w.lease.External = always("203.0.113.77:1024"), at("203.0.113.77:51820") })
			after(limit.STUNKeepLate + limit.STUNRecheck + endpointSettle)
			w.want(ownAt, "mapped 203.0.113.77:1024", "portmap 203.0.113.77:51820")
			after(endpointApart)
			if w.tally().changed != 2 && w.tally().changed != 3 || w.tally().moved != 0 || figure(w.p.Metrics.Rebindings) != 2 || w.tally().maps < 2 || w.tally().maps > 3 {
				t.Errorf("changed %d times, moved %d, rebound %v, asked the router %d times", w.tally().changed, w.tally().moved, figure(w.p.Metrics.Rebindings), w.tally().maps)
			}
		})
	})
}

// TestALostWayAsksAtOnce: who lost a direct way is told of another mapping before the
// servers are asked in turn; many losses are one question.
func TestALostWayAsksAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.sees = servers, always("203.0.113.5:1024")
		w.run(func() {
			after(10 * time.Second)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			w.sees = always("203.0.113.5:2048")
			before := w.requests()
			for range 100 {
				w.e.Suspect()
			}
			after(time.Second)
			w.want(ownAt, "mapped 203.0.113.5:2048")
			if n := w.requests() - before; n == 0 || n > 4 {
				t.Errorf("%d requests", n)
			}
			if w.tally().moved != 0 {
				t.Error("this machine has not moved")
			}
			w.sees = always("203.0.113.5:4096")
			w.e.Suspect()
			after(2*endpointSuspect + endpointApart)
			w.want(ownAt, "mapped 203.0.113.5:4096")
		})
	})
}

// TestFlappingIsBounded: servers that see another endpoint each time, as a broken NAT or
// two that lie would have it.
func TestFlappingIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.PortMapping = servers, true
		w.lease = portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour}
		n := uint16(1000)
		w.sees = func(netip.AddrPort) netip.AddrPort { n++; return netip.AddrPortFrom(ip("203.0.113.5"), n) }
		w.run(func() {
			after(10 * time.Minute)
			if requests, most := w.requests(), 2*int(10*time.Minute/limit.STUNRecheck); requests > most {
				t.Errorf("%d requests in ten minutes, at most %d", requests, most)
			}
			if most := int(10*time.Minute/endpointApart) + 2; w.tally().changed > most || w.tally().maps > most {
				t.Errorf("changed %d times, the router was asked %d times in ten minutes, at most %d", w.tally().changed, w.tally().maps, most)
			}
		})
	})
}

// TestAnotherNetwork: an address, a default route; not a bridge of containers.
func TestAnotherNetwork(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.PortMapping = servers, true
		w.sees = always("203.0.113.5:1024")
		w.run(func() {
			after(time.Second)
			requests, asked := w.requests(), w.tally().maps
			for range 5 {
				w.set(func() { w.addrs = append(w.addrs, link("veth1234", "10.0.0.1/24")) })
				w.tell <- struct{}{}
				after(100 * time.Millisecond)
			}
			if w.tally().moved != 0 || w.tally().changed != 1 || w.requests() != requests || w.tally().maps != asked {
				t.Errorf("for a bridge: moved %d, changed %d, %d requests, router %d", w.tally().moved, w.tally().changed, w.requests()-requests, w.tally().maps-asked)
			}
			w.set(func() {
				w.addrs = []nat.Address{link("lo", "127.0.0.1/8"), link("eth0", "10.1.1.7/24")}
				w.sees = always("198.18.0.1:77")
			})
			w.tell <- struct{}{}
			after(10 * time.Millisecond)
			if w.tally().moved != 1 || w.requests() != requests+2 || w.tally().maps != asked+1 {
				t.Errorf("moved %d, %d requests, router %d", w.tally().moved, w.requests()-requests, w.tally().maps-asked)
			}
			after(endpointApart)
			w.want("own 10.1.1.7:51820", "mapped 198.18.0.1:77")
			w.set(func() { w.routes[0].Gateway = ip("10.1.1.254") })
			w.tell <- struct{}{}
			after(10 * time.Millisecond)
			if w.tally().moved != 2 || figure(w.p.Metrics.MachineChanges) != 2 {
				t.Errorf("moved %d", w.tally().moved)
			}
		})
	})
}

// TestASleepIsAChange: all is asked anew, and paths must prove themselves.
func TestASleepIsAChange(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.PortMapping = servers, true
		w.sees = always("203.0.113.5:1024")
		w.run(func() {
			after(time.Second)
			requests, asked := w.requests(), w.tally().maps
			w.sleep <- time.Hour
			after(10 * time.Millisecond)
			m := w.p.Metrics
			if w.tally().moved != 1 || w.tally().changed != 1 || w.requests() != requests+2 || w.tally().maps != asked+1 || figure(m.Sleeps) != 1 || figure(m.MachineChanges) != 0 {
				t.Errorf("moved %d, changed %d, %d requests, router %d", w.tally().moved, w.tally().changed, w.requests()-requests, w.tally().maps-asked)
			}
		})
	})
}

// TestHostileAnswers: nothing of them is told, and a flood waits for nobody.
func TestHostileAnswers(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers = func() []Server { return servers()[:1] }
		w.p.Overlay = func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("100.112.0.0/12")} }
		w.run(func() {
			m := nat.Message{ID: nat.ID{1, 2, 3}}
			w.e.STUN(at(one), nat.Answer(m, at("203.0.113.66:1"), netip.AddrPort{})) // not asked
			w.e.STUN(at(one), []byte("GET / HTTP/1.1\r\n\r\n"))
			w.e.STUN(at(one), nil)
			w.e.STUN(netip.AddrPort{}, make([]byte, 20))
			after(0)
			w.e.STUN(at(one), make([]byte, limit.STUNMessage+1))
			after(time.Second)
			w.want(ownAt)
			if n := w.failures("refused"); n < 4 {
				t.Errorf("%d refused", n)
			}
			for _, lie := range []string{"100.112.0.3:51820", "127.0.0.1:51820", "0.0.0.0:1", "[2001:db8::1]:51820", "224.0.0.1:9", "203.0.113.5:0"} {
				w.set(func() { w.sees = always(lie) })
				w.sleep <- time.Minute
				after(10 * time.Second)
				w.want(ownAt)
			}
			if w.tally().changed != 0 {
				t.Errorf("changed %d times", w.tally().changed)
			}
			dropped := w.failures("dropped")
			for range 10 * limit.TunnelSTUN { // none may wait, whether they are read meanwhile or not
				w.e.STUN(at(one), make([]byte, 20))
			}
			after(time.Second)
			if n := w.failures("dropped") - dropped; n > 9*limit.TunnelSTUN {
				t.Errorf("%d dropped", n)
			}
		})
		// Who does not run reads nothing: what the queue does not hold is dropped.
		before := w.failures("dropped")
		for range limit.TunnelSTUN + 5 {
			w.e.STUN(at(one), make([]byte, 20))
		}
		if n := w.failures("dropped") - before; n != 5 {
			t.Errorf("%d dropped", n)
		}
	})
}

// TestTheNeed: nobody needs the mapping, and then somebody does.
func TestTheNeed(t *testing.T) {
	bubble(t, func(w *world) {
		needed := false
		w.p.Servers, w.sees = servers, always("203.0.113.5:1024")
		w.p.Needed = func() bool { w.mu.Lock(); defer w.mu.Unlock(); return needed }
		w.run(func() {
			after(time.Hour)
			if n, most := w.requests(), 2*int(time.Hour/limit.STUNSlow)+2; n > most {
				t.Errorf("%d requests in an hour, at most %d", n, most)
			}
			before := w.requests()
			w.set(func() { needed = true })
			after(endpointLook)
			if n := w.requests() - before; n != 2 && n != 4 {
				t.Errorf("%d requests", n)
			}
			after(time.Hour)
			if n := w.requests() - before; n < 2*3600/25 {
				t.Errorf("%d requests in an hour", n)
			}
		})
	})
}

// TestOtherInterfacesAreLeftOut: patterns that are others while it runs count, and are no
// change of the machine.
func TestOtherInterfacesAreLeftOut(t *testing.T) {
	bubble(t, func(w *world) {
		var without []string
		w.p.Without = func() []string { w.mu.Lock(); defer w.mu.Unlock(); return without }
		w.addrs = append(w.addrs, link("eth7", "192.168.7.5/24"))
		w.run(func() {
			after(time.Second)
			w.want(ownAt, "own 192.168.7.5:51820")
			w.set(func() { without = []string{"eth7"} })
			w.e.Refresh()
			after(endpointApart)
			w.want(ownAt)
			if w.tally().moved != 0 {
				t.Error("the machine has moved")
			}
		})
	})
}

// TestTheMeshIsLeftOut: what becomes a range of the mesh is told no more, and is no
// change of the machine.
func TestTheMeshIsLeftOut(t *testing.T) {
	bubble(t, func(w *world) {
		var overlay []netip.Prefix
		w.p.Overlay = func() []netip.Prefix { w.mu.Lock(); defer w.mu.Unlock(); return overlay }
		w.addrs = append(w.addrs, link("wg7", "100.112.0.5/32"))
		w.p.Servers = func() []Server { return []Server{{"a", one}, {"inside", "100.112.0.9:3478"}} }
		w.sees = always("203.0.113.5:1024")
		w.run(func() {
			after(time.Second)
			w.want(ownAt, "own 100.112.0.5:51820", "mapped 203.0.113.5:1024")
			w.set(func() { overlay = []netip.Prefix{netip.MustParsePrefix("100.112.0.0/12")} })
			w.e.Refresh()
			after(endpointApart)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			before := w.requestsTo("100.112.0.9:3478")
			after(10 * time.Minute)
			s := w.e.Status()
			if n := w.requestsTo("100.112.0.9:3478"); n != before || w.tally().moved != 0 {
				t.Errorf("asked %d times within the mesh, moved %d times", n-before, w.tally().moved)
			}
			if !slices.ContainsFunc(s.Refused, func(r Refusal) bool {
				return r.At == "100.112.0.5" && r.Interface == "wg7" && r.Why == "of the mesh itself"
			}) {
				t.Errorf("%+v", s.Refused)
			}
			if i := slices.IndexFunc(s.Servers, func(a Asked) bool { return a.Name == "inside" }); i < 0 || !strings.Contains(s.Servers[i].Why, "mesh") {
				t.Errorf("%+v", s.Servers)
			}
		})
	})
}
