// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func networks(t testing.TB, texts ...string) (out []netip.Prefix) {
	t.Helper()
	for _, text := range texts {
		p, err := network(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestWhoCalls(t *testing.T) {
	const proxy, client = "10.0.0.1:5", "192.0.2.7:9"
	trusted := networks(t, "10.0.0.0/8", "fd00::/8")
	for name, c := range map[string]struct {
		peer   string
		real   []string
		chain  []string
		caller string
	}{
		"nobody between":                        {client, nil, nil, client},
		"a caller who says he is another":       {client, []string{"198.51.100.1"}, []string{"198.51.100.1"}, client},
		"a proxy that says nothing":             {proxy, nil, nil, proxy},
		"a chain of one":                        {proxy, nil, []string{"192.0.2.7"}, "192.0.2.7:0"},
		"a chain that the caller began":         {proxy, nil, []string{"198.51.100.1, 192.0.2.7"}, "192.0.2.7:0"},
		"a chain over two headers":              {proxy, nil, []string{"198.51.100.1", "192.0.2.7"}, "192.0.2.7:0"},
		"a chain of two proxies":                {proxy, nil, []string{"198.51.100.1,192.0.2.7 , 10.9.9.9"}, "192.0.2.7:0"},
		"a chain of proxies alone":              {proxy, nil, []string{"10.1.1.1, 10.9.9.9"}, proxy},
		"a chain with junk at its end":          {proxy, nil, []string{"192.0.2.7, unknown"}, proxy},
		"a chain with junk before the caller":   {proxy, nil, []string{"<script>, 192.0.2.7"}, "192.0.2.7:0"},
		"a chain that is empty":                 {proxy, nil, []string{""}, proxy},
		"a chain with a port":                   {proxy, nil, []string{"192.0.2.7:80"}, proxy},
		"a chain without an end":                {proxy, nil, []string{strings.Repeat("10.0.0.1,", 10_000)}, proxy},
		"a long chain of proxies":               {proxy, nil, []string{"192.0.2.7" + strings.Repeat(",10.0.0.1", 100)}, proxy},
		"an address of IPv6":                    {"[fd00::1]:5", nil, []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		"an IPv4 address within IPv6":           {proxy, nil, []string{"::ffff:192.0.2.7"}, "192.0.2.7:0"},
		"a proxy within IPv6":                   {proxy, nil, []string{"192.0.2.7, ::ffff:10.0.0.2"}, "192.0.2.7:0"},
		"a real address":                        {proxy, []string{" 192.0.2.7"}, nil, "192.0.2.7:0"},
		"two real addresses":                    {proxy, []string{"192.0.2.7", "198.51.100.1"}, nil, proxy},
		"a real address that is a proxy":        {proxy, []string{"10.0.0.9"}, nil, proxy},
		"a real address that is none":           {proxy, []string{"me"}, nil, proxy},
		"both, and they agree":                  {proxy, []string{"192.0.2.7"}, []string{"198.51.100.1, 192.0.2.7"}, "192.0.2.7:0"},
		"both, and they do not":                 {proxy, []string{"198.51.100.1"}, []string{"192.0.2.7"}, proxy},
		"a real address, and a chain of junk":   {proxy, []string{"192.0.2.7"}, []string{"junk"}, proxy},
		"a real address of an inner proxy only": {proxy, []string{"10.0.0.9"}, []string{"192.0.2.7, 10.0.0.9"}, "192.0.2.7:0"},
	} {
		got := realCaller(netip.MustParseAddrPort(c.peer), trusted, forwarded{realIP: c.real, chain: c.chain})
		if got.String() != c.caller {
			t.Errorf("%s: %v, want %s", name, got, c.caller)
		}
		if got := realCaller(netip.MustParseAddrPort(c.peer), nil, forwarded{realIP: c.real, chain: c.chain}); got.String() != c.peer {
			t.Errorf("%s: %v, although nobody is trusted", name, got)
		}
	}
}

func TestForwardedAddressesOnTheWire(t *testing.T) {
	trust := func(c *v1alpha1.DiscoveryConfig) { c.TrustedProxies = []string{"127.0.0.1"} }
	for name, c := range map[string]struct {
		edit func(*v1alpha1.DiscoveryConfig)
		want string
	}{"a stranger": {nil, "127.0.0.1"}, "a proxy": {trust, "192.0.2.7"}} {
		r := serve(t, c.edit)
		ctx := metadata.AppendToOutgoingContext(runtest.Within(t), "x-forwarded-for", "198.51.100.1, 192.0.2.7")
		hello, err := r.older().Hello(ctx, &sdr.HelloRequest{ClusterId: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := netip.AddrFromSlice(hello.ClientIp); got.String() != c.want {
			t.Errorf("%s: the address is %v, want %s", name, got, c.want)
		}
	}
}

// TestARateIsOfEachAddress, and a proxy's callers have one each.
func TestARateIsOfEachAddress(t *testing.T) {
	one := 1
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.TrustedProxies, c.Rates.PerSecond, c.Rates.Burst = []string{"127.0.0.1"}, &one, &one
	})
	c := r.older()
	as := func(a string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.Hello(metadata.AppendToOutgoingContext(ctx, "x-real-ip", a), &sdr.HelloRequest{ClusterId: "c"})
		return err
	}
	g := run.NewGroup(t.Context())
	refused := make(chan error, 10)
	for range 10 { // one now, one in a second, one in two, the others not
		g.Do(func(context.Context) {
			if err := as("192.0.2.1"); err != nil {
				refused <- err
			}
		})
	}
	if err := as("192.0.2.2"); err != nil {
		t.Errorf("another address is kept from calling: %v", err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := len(refused); n < 6 {
		t.Fatalf("%d of 10 calls are refused", n)
	}
	wantCode(t, <-refused, codes.ResourceExhausted, "192.0.2.1 makes more than 1 calls a second")
}

func TestASiteIsOneCaller(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := party(netip.MustParseAddr(a)); got.String() != want {
			t.Errorf("%s counts with %v, want %s", a, got, want)
		}
	}
}

// TestCallersAreBounded: a flood of addresses is forgotten, and neither pushes those out who hold
// something nor keeps anybody from calling, however many these are.
func TestCallersAreBounded(t *testing.T) {
	c := newCallers(3, Rates{15, 60})
	at := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, i, 2}) }
	known := func(quiet int, holding ...byte) {
		t.Helper()
		if c.quiet.Len() != quiet || len(c.known) != quiet+len(holding) {
			t.Errorf("%d callers are known, %d of them hold nothing", len(c.known), c.quiet.Len())
		}
		for _, i := range holding {
			if one := c.known[at(i)]; one == nil || one.place != nil {
				t.Errorf("%v is forgotten", at(i))
			}
		}
	}
	release, err := c.hold(at(1), holdWatch, 1, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.hold(at(1), holdWatch, 1, 1, 100); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a second watch: %v", err)
	}
	both, err := c.hold(at(1), holdConnection, 1, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := byte(2); i < 200; i++ {
		if err := c.turn(t.Context(), at(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	known(3, 1)
	if c.known[at(199)] == nil || c.known[at(197)] == nil {
		t.Errorf("the newest are forgotten: %v", c.known)
	}
	var releases []func()
	for i := byte(201); i < 206; i++ {
		release, err := c.hold(at(i), holdConnection, 1, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	if err := c.turn(t.Context(), at(3), 1); err != nil {
		t.Errorf("beside many that hold something: %v", err)
	}
	known(3, 1, 201, 202, 203, 204, 205)
	both()
	known(3, 1, 201, 202, 203, 204, 205)
	release()
	release() // twice is once
	known(3, 201, 202, 203, 204, 205)
	for _, release := range releases {
		release()
	}
	known(3)
}

// TestNetworksAreBounded: who rents a network has not the share of each address of it.
func TestNetworksAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		at        func(i int) string
		each, all int
		want      int // that are taken of 400, one from each address
	}{
		"an IPv4 /24":                       {func(i int) string { return fmt.Sprintf("192.0.2.%d", i%256) }, 20, 1000, 40},
		"many of IPv4":                      {func(i int) string { return fmt.Sprintf("192.%d.%d.1", i/200, i%200) }, 20, 1000, 400},
		"a quarter of all":                  {func(i int) string { return fmt.Sprintf("192.0.2.%d", i%256) }, 20, 120, 30},
		"never less than one address":       {func(i int) string { return fmt.Sprintf("192.0.2.%d", i%256) }, 20, 40, 20},
		"a site of IPv6":                    {func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i%256) }, 20, 1000, 20},
		"sites of a network":                {func(i int) string { return fmt.Sprintf("2001:db8:0:%x00::1", i%256) }, 20, 1000, 40},
		"networks":                          {func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }, 20, 1000, 400},
		"one address, as many as there are": {func(int) string { return "192.0.2.1" }, 500, 500, 400},
	} {
		for _, what := range []holding{holdConnection, holdWatch, holdWait} {
			callers := newCallers(1000, Rates{15, 60})
			var releases []func()
			for i := range 400 {
				release, err := callers.hold(netip.MustParseAddr(c.at(i)), what, 1, c.each, c.all)
				if err == nil {
					releases = append(releases, release)
				} else if !fault.Has(err, fault.CodeLimit) {
					t.Fatal(err)
				}
			}
			if len(releases) != c.want {
				t.Errorf("%s: %d of 400 are taken, want %d", name, len(releases), c.want)
			}
			for _, release := range releases {
				release()
				release()
			}
			if len(callers.nets) != 0 {
				t.Errorf("%s: %d networks are remembered", name, len(callers.nets))
			}
		}
	}
}
