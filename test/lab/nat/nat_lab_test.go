// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nat_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// inside is set in a process of this test that checks the network where it stands.
const inside = "TOMBOLO_TEST_NETCHECK"

// onlyUPnP is set where the router is not to be asked by NAT-PMP.
const onlyUPnP = "TOMBOLO_TEST_UPNP"

func TestMain(m *testing.M) {
	for env, play := range map[string]func(string) error{inside: check, asNode: beNode, alone: checkAlone} {
		if text := os.Getenv(env); text != "" {
			if err := play(text); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	// A check mostly waits for answers that must not come.
	if err := flag.Set("test.parallel", "4"); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(labtest.Main(m))
}

// check is what a node does: all that it learns comes from its own kernel and network.
func check(servers string) error {
	all, err := machine.Addresses()
	if err != nil {
		return err
	}
	own, _ := nat.Own(all, nat.Choice{})
	var seed [32]byte
	rand.Read(seed[:])
	var c *netcheck.Check
	ready := make(chan struct{})
	s, err := netcheck.Open(context.Background(), lab.NodePort, func(from netip.AddrPort, b []byte) {
		<-ready
		c.Handle(from, b)
	})
	if err != nil {
		return err
	}
	o := netcheck.Options{Send: s.Send, Sockets: s.Local(), Own: own, Seed: seed, Beside: netcheck.OpenBeside}
	for _, at := range strings.Split(servers, ",") {
		o.Servers = append(o.Servers, nat.Server{Name: "lab", Addr: netip.MustParseAddrPort(at)})
	}
	ways := portmap.Mappers()
	if os.Getenv(onlyUPnP) != "" {
		ways = []portmap.Mapper{portmap.UPnP{}}
	}
	if gw, mine, err := machine.Gateway(); err == nil {
		o.Router = func(ctx context.Context) nat.PortMapping {
			return portmap.Check(ctx, ways, portmap.Router{Gateway: gw, Own: mine}, lab.NodePort)
		}
	}
	c = netcheck.New(o)
	close(ready)
	var reports []nat.Report
	for range 2 { // the NAT remembers where the socket wrote to
		reports = append(reports, c.Run(context.Background()))
	}
	out, err := json.Marshal(reports)
	os.Stdout.Write(out)
	return errors.Join(err, s.Close())
}

// facts are what a test looks at in a report.
type facts struct {
	UDP, MappingVariesByDestination, Hairpin nat.Tri
	IPv4, IPv6                               nat.Family
	CGNAT                                    struct{ Suspected nat.Tri }
	PortMapping                              *struct {
		Method   string
		External string
		Tried    []nat.Tried
	}
}

// stunServers starts our STUN servers: two ports on the hub, one on the other server.
func stunServers(t *testing.T, g *lab.Grid) (all []string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	group := run.NewGroup(ctx)
	open := func(h *lab.Host, c stunserver.Config) {
		var m *stunserver.Server
		if err := h.Do(func() (err error) {
			m, err = stunserver.Open(ctx, c, telemetry.NewSTUN(prometheus.NewRegistry()))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		group.Go("STUN server", m.Run)
	}
	open(g.Hub, stunserver.Config{Listen: ":8446", Second: ":8447"})
	open(g.Other, stunserver.Config{Listen: ":8446"})
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	for _, a := range []string{lab.HubAddr, lab.OtherAddr, lab.HubAddr6, lab.OtherAddr6} {
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr(a), 8446).String())
	}
	return all
}

// netcheckAt checks the network twice over one socket, and gives what the first check says: the
// second one must not know it otherwise.
func netcheckAt(t *testing.T, g *lab.Grid, servers []string, env ...string) facts {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), inside+"="+strings.Join(servers, ","))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := g.A.Host.Run(ctx, cmd); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var all []facts
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %s", err, out.String())
	}
	t.Logf("%s", out.String())
	one, two := all[0], all[1]
	for _, f := range []*nat.Family{&one.IPv4, &one.IPv6, &two.IPv4, &two.IPv6} {
		slices.SortFunc(f.Mapped, netip.AddrPort.Compare)
	}
	if one.UDP != two.UDP || one.MappingVariesByDestination != two.MappingVariesByDestination || one.Hairpin != two.Hairpin ||
		!reflect.DeepEqual(one.IPv4, two.IPv4) || !reflect.DeepEqual(one.IPv6, two.IPv6) {
		t.Errorf("the second check says otherwise: %+v, at first %+v", two, one)
	}
	return one
}

// TestKinds: what a check says of each kind of network is what the lab built.
func TestKinds(t *testing.T) {
	t.Parallel()
	const unknown = nat.NotKnown
	for name, want := range map[string]struct {
		udp, varies, cgnat nat.Tri
		mapping, filtering nat.Behaviour
		mapping6           nat.Behaviour
		method             string
	}{
		"open":            {nat.Yes, nat.No, nat.No, nat.None, nat.AtMostAddress, nat.None, ""},
		"firewalled":      {nat.Yes, nat.No, nat.No, nat.None, nat.AddressPortDependent, unknown, ""},
		"full-cone":       {nat.Yes, nat.No, nat.Unknown, nat.EndpointIndependent, nat.AtMostAddress, unknown, ""},
		"restricted":      {nat.Yes, nat.No, nat.Unknown, nat.EndpointIndependent, nat.AtMostAddress, unknown, ""},
		"port-restricted": {nat.Yes, nat.No, nat.Unknown, nat.EndpointIndependent, nat.AddressPortDependent, unknown, ""},
		"symmetric":       {nat.Yes, nat.Yes, nat.Unknown, nat.AddressPortDependent, nat.AddressPortDependent, unknown, ""},
		"cgnat":           {nat.Yes, nat.No, nat.Unknown, nat.EndpointIndependent, nat.AddressPortDependent, unknown, ""},
		"udp-blocked":     {nat.No, nat.Unknown, nat.Unknown, unknown, unknown, unknown, ""},
		"ipv6-only":       {nat.Yes, nat.No, nat.Unknown, unknown, unknown, nat.None, ""},
		"dual-symmetric":  {nat.Yes, nat.Yes, nat.Unknown, nat.AddressPortDependent, nat.AddressPortDependent, nat.None, ""},
		"port-mapped":     {nat.Yes, nat.Yes, nat.No, nat.AddressPortDependent, nat.AddressPortDependent, unknown, "nat-pmp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, ok := lab.KindOf(name)
			open, _ := lab.KindOf("open")
			if !ok {
				t.Fatal("there is no such kind")
			}
			g, err := lab.NewGrid(labtest.New(t, "nat"), lab.Pair{A: k, B: open})
			if err != nil {
				t.Fatal(err)
			}
			f := netcheckAt(t, g, stunServers(t, g))
			if f.UDP != want.udp || f.MappingVariesByDestination != want.varies || f.CGNAT.Suspected != want.cgnat || f.IPv4.Mapping != want.mapping ||
				f.IPv4.Filtering != want.filtering || f.IPv6.Mapping != want.mapping6 {
				t.Errorf("UDP %s, varies %s, CGNAT %s, mapping %s, filtering %s, mapping of IPv6 %s; want %+v", f.UDP, f.MappingVariesByDestination,
					f.CGNAT.Suspected, f.IPv4.Mapping, f.IPv4.Filtering, f.IPv6.Mapping, want)
			}
			method := ""
			if f.PortMapping != nil {
				method = f.PortMapping.Method
			}
			if method != want.method {
				t.Errorf("mapped by %q, want %q: %+v", method, want.method, f.PortMapping)
			}
			if f.IPv4.NAT == nat.Yes && !slices.ContainsFunc(f.IPv4.Mapped, func(m netip.AddrPort) bool { return m.Addr() == g.A.Public4 }) {
				t.Errorf("mapped as %v, the router is %v", f.IPv4.Mapped, g.A.Public4)
			}
		})
	}
}

// TestUPnP: where NAT-PMP is not asked, miniupnpd maps the port by UPnP, at the
// router's own address.
func TestUPnP(t *testing.T) {
	t.Parallel()
	g := gridOf(t, "port-mapped")
	f := netcheckAt(t, g, stunServers(t, g), onlyUPnP+"=1")
	want := netip.AddrPortFrom(g.A.Public4, lab.NodePort).String()
	if f.PortMapping == nil || f.PortMapping.Method != "upnp" || f.PortMapping.External != want || f.CGNAT.Suspected != nat.No {
		t.Errorf("%+v, want %s", f, want)
	}
}
