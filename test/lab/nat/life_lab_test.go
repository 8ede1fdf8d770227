// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nat_test

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func gridOf(t *testing.T, name string) *lab.Grid {
	t.Helper()
	k, ok := lab.KindOf(name)
	open, _ := lab.KindOf("open")
	if !ok {
		t.Fatal("there is no such kind")
	}
	g, err := lab.NewGrid(labtest.New(t, "nat"), lab.Pair{A: k, B: open})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestChangesOfAddressesAreTold: an address that comes, and one that goes.
func TestChangesOfAddressesAreTold(t *testing.T) {
	g := gridOf(t, "port-restricted")
	told := make(chan struct{}, 64)
	ctx, stop := context.WithCancel(t.Context())
	group := run.NewGroup(ctx)
	group.Go("watch", func(ctx context.Context) error {
		return g.A.Host.Do(func() error {
			told <- struct{}{} // it begins
			return machine.Watch(ctx, func() { told <- struct{}{} })
		})
	})
	<-told
	has := func() (has bool) {
		if err := g.A.Host.Do(func() error {
			all, err := machine.Addresses()
			for _, a := range all {
				has = has || a.Prefix.Addr() == netip.MustParseAddr("10.77.0.1")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return has
	}
	patience := time.After(30 * time.Second)
	for _, verb := range []string{"add", "del"} {
		// Again until it is told: the watch may have begun after the first change.
		for heard := false; !heard; {
			if err := g.A.Host.Run(ctx, exec.Command("ip", "address", "replace", "10.77.0.1/24", "dev", "lo")); err != nil {
				t.Fatal(err)
			}
			if verb == "del" {
				if err := g.A.Host.Run(ctx, exec.Command("ip", "address", "del", "10.77.0.1/24", "dev", "lo")); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-told:
				heard = true
			case <-time.After(time.Second):
			case <-patience:
				t.Fatalf("%s is not told", verb)
			}
		}
		if has() != (verb == "add") {
			t.Errorf("after %s: listed %v", verb, has())
		}
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestALostMappingIsNoticed: the router forgets, its address changes, and the watch
// sees the new endpoint by the next request.
func TestALostMappingIsNoticed(t *testing.T) {
	g := gridOf(t, "port-restricted")
	conn, err := g.A.Host.ListenUDP("udp4", ":51820")
	if err != nil {
		t.Fatal(err)
	}
	w := nat.NewWatch([32]byte{1})
	var last nat.Decision
	var skew time.Duration // of the watch's clock: the test does not wait for the interval
	event := func(e nat.Event) {
		last = w.Next(e, time.Now().Add(skew))
		for _, p := range last.Send {
			if _, err := conn.WriteToUDPAddrPort(p.Data, p.To); err != nil {
				t.Fatal(err)
			}
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		b := make([]byte, 1500)
		for end := time.Now().Add(30 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("%s: not in 30 s; %+v", what, last)
			}
			conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, from, err := conn.ReadFromUDPAddrPort(b); err == nil {
				event(nat.Event{From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), Packet: b[:n]})
			} else {
				event(nat.Event{})
			}
		}
	}
	seen := func(a netip.Addr) func() bool {
		return func() bool { return len(last.Mapped) == 1 && last.Mapped[0].Addr.Addr() == a }
	}
	event(nat.Event{Servers: []nat.Server{{Name: "hub", Addr: g.STUN4[0]}, {Name: "other", Addr: g.STUN4[2]}}})
	until("the first endpoint", seen(g.A.Public4))
	fresh, err := g.A.Renumber()
	if err != nil {
		t.Fatal(err)
	}
	skew = limit.STUNKeepLate
	until("the endpoint after the change", seen(fresh))
}
