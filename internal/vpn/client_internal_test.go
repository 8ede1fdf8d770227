// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// TestASilentServerIsLeft: of a server with several addresses that asked each second, the next one is tried after some
// seconds of silence, once; one that may be another program is left to the keepalive of OpenVPN. Of names, too, that
// which was dialled is left.
func TestASilentServerIsLeft(t *testing.T) {
	const bundle, files = "{bundle: /x.pem}", "{certificate: /c, key: /k, ca: /a}"
	const several, one = "{addresses: ['192.168.128.1:1194', '192.168.128.2:1194']}", "{address: '192.168.128.1:1194'}"
	const names = "{addresses: ['e1.example:1194', 'e2.example:1194', '192.168.128.1:1194']}"
	for _, c := range []struct {
		what, identity, server string
		asks                   bool
		dialled, next          string // next: it is left
	}{
		{"it asked", bundle, several, true, "192.168.128.2", "192.168.128.1"},
		{"it never asked", bundle, several, false, "192.168.128.2", ""},
		{"of another CA", files, several, true, "192.168.128.2", ""},
		{"one address", bundle, one, true, "", ""},
		{"the first of three", bundle, names, true, "192.168.128.1", "e2.example"},
		{"the second, a name", bundle, names, true, "e2.example", "e1.example"},
		{"the last, a name", bundle, names, true, "e1.example", "192.168.128.1"},
	} {
		cfg, err := ParseClientConfig("x", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: VPNClientConfig\ncluster: c1\n"+
			"prefer: 192.168.128.17\nidentity: "+c.identity+"\nranges: [{range: 10.244.0.0/16}]\nservers: ["+c.server+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if r := cfg.Servers[0].remotes; len(r) == 2 && (r[0].Host != "192.168.128.2" || r[1].Host != "192.168.128.1") {
			t.Errorf("an odd address prefers %v", r)
		}
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		e := NewClient(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(),
			Now: func() time.Time { return now }}).ends[0]
		if c.dialled != "" {
			said := ""
			e.handle(openvpn.Remote{Host: c.dialled, Port: 1194}, func(s string) { said += s })
			if said != "remote ACCEPT" {
				t.Errorf("%s: it says %q", c.what, said)
			}
		}
		e.state, e.since, e.heard, e.by = openvpn.Connected, now, now, netip.MustParseAddrPort("192.168.128.2:1194")
		left := 0
		in := uint64(0)
		for second := range 30 {
			now = now.Add(time.Second)
			if c.asks && second < 10 {
				in += 100
				e.handle(openvpn.Traffic{Client: -1, In: in}, nil)
			}
			e.looked = now // the kernel is not looked at
			e.tick(nil)
			select {
			case <-e.process.again:
				left++
			default:
			}
			if within := second < 10+int(silentFor/time.Second); within && left > 0 {
				t.Fatalf("%s: left in second %d", c.what, second)
			}
		}
		if want := len(c.next); left != min(want, 1) {
			t.Errorf("%s: left %d times", c.what, left)
		}
		if first := e.remotes[0].Host; c.next != "" && first != c.next {
			t.Errorf("%s: %s is tried next", c.what, first)
		}
	}
}

// TestRoutesWithoutTheServer: what the tunnel dials is in no route into it, also by a name.
func TestRoutesWithoutTheServer(t *testing.T) {
	const onward = "/proc/none" // it comes as far as its socket
	const itself = "the route 10.0.0.0/16 contains 10.0.3.4, an address of "
	for server, want := range map[string]string{
		"{address: 'vpn.example:1194'}":                                                            itself + "vpn.example",
		"{address: 'other.example:1194'}":                                                          onward,
		"{address: 'lost.example:1194'}":                                                           onward,
		"{addresses: ['other.example:1194', 'vpn.example:1194']}":                                  itself + "vpn.example",
		"{address: 'vpn.example:1194', proxy: {address: 'other.example:8132', destination: 'x'}}":  onward,
		"{address: 'other.example:1194', proxy: {address: 'vpn.example:8132', destination: 'x'}}":  itself + "vpn.example",
		"{address: '192.0.2.1:1194', proxy: {address: 'both.example:8132', destination: 'x y z'}}": itself + "both.example",
	} {
		cert, key, ca := writeIdentity(t, t.TempDir())
		cfg, err := ParseClientConfig("x", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: VPNClientConfig\ncluster: c1\n"+
			"identity: {certificate: "+cert+", key: "+key+", ca: "+ca+"}\nroutes: [10.0.0.0/16]\n"+
			"runDir: /proc/none\nhealthListen: 127.0.0.1:0\nservers: ["+server+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		c := NewClient(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		c.host = host{
			version: func(context.Context, string) (string, error) { return "2.6.14", nil },
			around:  func([]string) []network.Part { return nil },
			lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
				inside, outside := netip.MustParseAddr("::ffff:10.0.3.4"), netip.MustParseAddr("192.0.2.7")
				all := map[string][]netip.Addr{"vpn.example": {inside}, "other.example": {outside}, "both.example": {outside, inside}}
				if len(all[host]) == 0 {
					return nil, errors.New("no such host")
				}
				return all[host], nil
			}}
		if err := c.Run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
}
