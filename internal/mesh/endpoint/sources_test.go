// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

// TestNames: of both families, again every few minutes, kept while the resolver is away,
// tried again soon, and given up with their server.
func TestNames(t *testing.T) {
	bubble(t, func(w *world) {
		list := []Server{{"hub", "hub.example:3478"}, {"bad", "nowhere.example:3478"}, {"junk", "nothing"}}
		w.p.Servers = func() []Server { w.mu.Lock(); defer w.mu.Unlock(); return list }
		w.addrs = append(w.addrs, link("eth0", "2001:db8:5::5/64"))
		const own6 = "own [2001:db8:5::5]:51820"
		w.names["hub.example"] = []netip.Addr{ip("198.51.100.1"), ip("2001:db8::1")}
		w.sees = func(s netip.AddrPort) netip.AddrPort {
			if s.Addr().Is4() {
				return at("203.0.113.5:1024")
			}
			return at("[2001:db8:5::6]:51820")
		}
		lookups := func(name string) int { w.mu.Lock(); defer w.mu.Unlock(); return w.lookups[name] }
		why := func(name string) string {
			for _, s := range w.e.Status().Servers {
				if s.Name == name && s.Why != "" {
					return s.Why
				}
			}
			return ""
		}
		w.run(func() {
			after(time.Second)
			w.want(own6, ownAt, "mapped 203.0.113.5:1024", "mapped [2001:db8:5::6]:51820")
			if why("bad") != "no such host" || why("junk") != "it is not HOST:PORT" || why("hub") != "" {
				t.Errorf("%+v", w.e.Status().Servers)
			}
			after(10 * time.Minute)
			if n := lookups("nowhere.example"); n < 10 || n > 60 { // with a backoff up to a minute
				t.Errorf("a name that fails was tried %d times in ten minutes", n)
			}
			w.set(func() { list = list[:1] })
			after(endpointLook)
			before := lookups("hub.example")
			after(time.Hour)
			if n := lookups("hub.example") - before; n != int(time.Hour/endpointResolve) {
				t.Errorf("resolved %d times in an hour", n)
			}
			w.set(func() { delete(w.names, "hub.example") }) // the resolver is away
			after(time.Hour)
			w.want(own6, ownAt, "mapped 203.0.113.5:1024", "mapped [2001:db8:5::6]:51820")
			if why("hub") != "no such host" {
				t.Errorf("%+v", w.e.Status().Servers)
			}
			w.set(func() { w.names["hub.example"] = []netip.Addr{ip("198.51.100.9")} })
			after(3 * endpointBackoff)
			w.want(own6, ownAt, "mapped 203.0.113.5:1024")
			if n := w.requestsTo("198.51.100.9:3478"); n == 0 || why("hub") != "" {
				t.Errorf("the new address was asked %d times: %+v", n, w.e.Status().Servers)
			}
			w.set(func() { list = []Server{{"literal", one}} })
			w.e.Refresh()
			after(100 * time.Millisecond)
			if w.requestsTo(one) == 0 || len(w.e.Status().Servers) != 1 {
				t.Errorf("%+v", w.e.Status().Servers)
			}
			w.set(func() { list = nil })
			w.e.Refresh()
			after(endpointApart)
			w.want(own6, ownAt)
		})
	})
}

// TestServersThatTellNothing: of a family that this machine has no address of, of this
// machine itself, and those within the network only where there is no other.
func TestServersThatTellNothing(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers = func() []Server {
			return []Server{{"self", own + ":3478"}, {"lan", "192.168.1.9:3478"}, {"six", "[2001:db8::1]:3478"}, {"a", one}, {"b", two}}
		}
		w.sees = always("203.0.113.5:1024")
		w.run(func() {
			after(time.Minute)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			for _, s := range []string{own + ":3478", "192.168.1.9:3478", "[2001:db8::1]:3478"} {
				if n := w.requestsTo(s); n != 0 {
					t.Errorf("%s was asked %d times", s, n)
				}
			}
			s := w.e.Status().Servers
			why := map[string]string{}
			for _, a := range s {
				why[a.Name] = a.Why
			}
			if len(s) != 5 || why["self"] != "of this machine: it sees no NAT" || why["six"] != "this machine has no address of its IP version" || why["lan"] != "" || s[0].Name != "a" {
				t.Errorf("%+v", s)
			}
			w.set(func() { w.addrs = append(w.addrs, link("eth0", "2001:db8:5::5/64")) })
			w.tell <- struct{}{}
			after(100 * time.Millisecond)
			if w.requestsTo("[2001:db8::1]:3478") == 0 {
				t.Error("the machine has IPv6 now")
			}
		})
	})
}

// TestASlowNameDelaysNoOther: an address is asked while a name is being resolved.
func TestASlowNameDelaysNoOther(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers = func() []Server { return []Server{{"slow", "slow.example:1"}, {"a", one}} }
		w.p.Resolver, w.sees = silent{}, always("203.0.113.5:1024")
		w.run(func() {
			after(time.Second)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			after(endpointName)
			if s := w.e.Status().Servers; len(s) != 2 || !strings.Contains(s[1].Why, "deadline") {
				t.Errorf("%+v", s)
			}
		})
	})
}

// silent is a resolver that does not answer.
type silent struct{}

func (silent) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAKernelThatFails: it is shown and tried again, and what was missed is found.
func TestAKernelThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.sees = servers, always("203.0.113.5:1024")
		w.kernel, w.watching = errors.New("no netlink"), errors.New("no watch")
		w.run(func() {
			after(10 * time.Second)
			w.want("mapped 203.0.113.5:1024")
			if p := w.e.Status().Problems; len(p) != 1 || p[0].What != whatAddresses || p[0].Why != "no watch" || p[0].Since.IsZero() {
				t.Errorf("%+v", p)
			}
			w.set(func() { w.watching = nil })
			after(2 * endpointBackoff)
			if p := w.e.Status().Problems; len(p) != 1 || p[0].Why != "no netlink" {
				t.Errorf("%+v", p)
			}
			w.set(func() { w.kernel = nil })
			after(2 * endpointBackoff)
			w.want(ownAt, "mapped 203.0.113.5:1024")
			if p := w.e.Status().Problems; len(p) != 0 || w.tally().moved != 1 {
				t.Errorf("%+v, moved %d", p, w.tally().moved)
			}
		})
	})
}

// TestASocketThatCannotSend: nothing but counts, and it goes on.
func TestASocketThatCannotSend(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.sees, w.unsent = servers, always("203.0.113.5:1024"), true
		w.run(func() {
			after(time.Minute)
			w.want(ownAt)
			if w.failures("unsent") == 0 || w.e.Status().Servers[0].Failing.IsZero() {
				t.Errorf("%d unsent, %+v", w.failures("unsent"), w.e.Status().Servers)
			}
			w.set(func() { w.unsent = false })
			after(limit.STUNAgain + endpointApart)
			w.want(ownAt, "mapped 203.0.113.5:1024")
		})
	})
}

// TestARouterThatRefuses: why is shown, it is asked again, and nothing is unmapped.
func TestARouterThatRefuses(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.PortMapping = true
		w.run(func() {
			after(time.Second)
			if p := w.e.Status().PortMapping; !p.Wanted || p.Method != "" || len(p.Tried) != 1 || p.Tried[0].Why != "the router refuses" || p.Asked.IsZero() || !p.Until.IsZero() {
				t.Errorf("%+v", p)
			}
			w.set(func() { w.lease = portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour} })
			after(limit.GatewayAgain)
			w.want(ownAt, "portmap 203.0.113.5:51820")
			w.set(func() { w.lease = portmap.Lease{} })
			after(limit.GatewayLook + time.Second)
			w.want(ownAt)
		})
		if n := w.tally(); n.unmaps != 0 || figure(w.p.Metrics.PortMapping) != 0 {
			t.Errorf("unmapped %d times", n.unmaps)
		}
	})
	bubble(t, func(w *world) {
		w.run(func() {
			after(time.Hour)
			if p := w.e.Status().PortMapping; p.Wanted || w.tally().maps != 0 {
				t.Errorf("it is not wanted, and the router was asked %d times: %+v", w.tally().maps, p)
			}
		})
	})
}

// TestNetcheck: over the same socket, while the watch goes on; the router's answer is
// what is kept, or asked for.
func TestNetcheck(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.p.PortMapping, w.sees = servers, true, always("203.0.113.5:1024")
		w.p.Relays = func() []netcheck.Relay {
			return []netcheck.Relay{{Name: "h1", Measure: func(context.Context) (time.Duration, error) { return 7 * time.Millisecond, nil }}}
		}
		w.run(func() {
			after(time.Second)
			check := func() nat.Report {
				begin := time.Now()
				r, err := w.e.Netcheck(w.t.Context())
				if err != nil || time.Since(begin) > limit.NetcheckTime {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
				return r
			}
			maps := w.tally().maps
			r := check()
			if r.UDP != nat.Yes || r.IPv4.NAT != nat.Yes || r.IPv4.Mapping != nat.EndpointIndependent || len(r.Servers) != 3 || len(r.Relays) != 1 ||
				r.Relays[0].Latency != 7*time.Millisecond || r.PortMapping == nil || r.PortMapping.Method != "" || w.tally().maps != maps+1 {
				t.Errorf("%s", r.Text())
			}
			w.set(func() { w.lease = portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour} })
			if r = check(); r.PortMapping.Method != "nat-pmp" || w.tally().maps != maps+2 {
				t.Errorf("%s", r.Text())
			}
			if r = check(); r.PortMapping.External != at("203.0.113.5:51820") || w.tally().maps != maps+2 || w.tally().unmaps != 0 {
				t.Errorf("%s", r.Text())
			}
			if n := w.failures("refused"); n != 0 {
				t.Errorf("answers to the check count as %d refused", n)
			}
			w.set(func() { w.sees = always("0.0.0.0:1") })
			if r = check(); r.UDP == nat.Yes {
				t.Errorf("%s", r.Text())
			}
			after(time.Minute)
			ctx, stop := context.WithCancel(w.t.Context())
			go func() { _, _ = w.e.Netcheck(w.t.Context()) }()
			synctest.Wait()
			stop() // a second one waits for the first
			if _, err := w.e.Netcheck(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			after(limit.NetcheckTime)
		})
	})
}

// TestCheckAlone: without servers nothing is known, but the router is asked; the mapping
// is taken away.
func TestCheckAlone(t *testing.T) {
	w := newWorld(t)
	w.lease = portmap.Lease{External: at("203.0.113.5:51820"), Lifetime: 2 * time.Hour}
	ways := &anyPort{world: w}
	r, err := Check(t.Context(), Standalone{Machine: w, Ways: []portmap.Mapper{ways}, Resolver: w, PortMapping: true, Servers: []Server{{"x", "nowhere.example:1"}, {"y", "junk"}}})
	if err != nil || r.UDP != nat.Unknown || r.PortMapping == nil || r.PortMapping.Method != "nat-pmp" || r.IPv4.Address != nat.Yes || ways.mapped == 0 || ways.mapped != ways.gone {
		t.Errorf("%v, %+v: %s", err, ways, r.Text())
	}
	w.kernel = errors.New("no netlink")
	if _, err := Check(t.Context(), Standalone{Machine: w}); err == nil {
		t.Error("the kernel's error is lost")
	}
}

// anyPort maps whatever port the socket has.
type anyPort struct {
	*world
	mapped, gone uint16
}

func (a *anyPort) Map(ctx context.Context, r portmap.Router, port uint16) (portmap.Lease, error) {
	a.mapped = port
	return a.world.Map(ctx, r, port)
}

func (a *anyPort) Unmap(_ context.Context, _ portmap.Router, port uint16) error {
	a.gone = port
	return nil
}

// TestStatusForPrograms: the names that programs read.
func TestStatusForPrograms(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.Servers, w.sees = servers, always("203.0.113.5:1024")
		w.addrs = append(w.addrs, link("docker0", "172.17.0.1/16"))
		w.run(func() {
			after(time.Second)
			b, err := json.Marshal(w.e.Status())
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				`"port":51820`, `"endpoints":[{"at":"192.168.1.2:51820","kind":"own"},{"at":"203.0.113.5:1024","kind":"mapped"}]`, `"rtt":0.01`,
				`"portMapping":{"wanted":false}`, `"refused":[`, `{"at":"172.17.0.1","interface":"docker0","why":"of an interface like docker*"}`,
			} {
				if !strings.Contains(string(b), want) {
					t.Errorf("%s is not in %s", want, b)
				}
			}
		})
	})
}

// TestNothingIsShared: what is given away can be changed.
func TestNothingIsShared(t *testing.T) {
	bubble(t, func(w *world) {
		w.run(func() {
			after(time.Second)
			w.e.Addresses()[0], w.e.List()[0].Addr, w.e.Status().Endpoints[0].At = ip("192.0.2.1"), at("192.0.2.1:1"), at("192.0.2.1:1")
			w.want(ownAt)
			if !slices.Equal(w.e.Addresses(), []netip.Addr{ip(own)}) || w.e.List()[0].Addr.Addr() != ip(own) {
				t.Error("a caller changed it")
			}
		})
	})
}
