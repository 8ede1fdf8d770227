// SPDX-License-Identifier: Apache-2.0

package openvpn_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

var update = flag.Bool("update", false, "write the golden files")

func common(link string) openvpn.Common {
	return openvpn.Common{Link: link, MTU: 1500, Protocol: openvpn.TCP, Management: "/run/x/management.sock",
		CA: "/run/x/ca.pem", Certificate: "/run/x/certificate.pem", Key: "/run/x/key.pem", User: "nobody", Group: "nogroup"}
}

func TestConfig(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("192.168.123.0/24"), netip.MustParsePrefix("fd8f:6d53:b97a:1::/96")
	server := openvpn.Server{Common: common("tombolo-vpn"), Listen: netip.MustParseAddrPort("[::]:1194"), IPv6: true,
		Transfer4: v4, Transfer6: v6, Clients: 8, Hosts: 1 << 17, Track: true}
	server.TLSAuth = "/run/x/tls.key"
	udp := server
	udp.Protocol, udp.IPv6, udp.Transfer6, udp.Track, udp.Hosts = openvpn.UDP, false, netip.Prefix{}, false, 3
	udp.Listen = netip.MustParseAddrPort("192.0.2.1:1195")
	udp.TLSAuth, udp.TLSCrypt, udp.User = "", "/run/x/tls.key", ""
	client := openvpn.Client{Common: common("tombolo-vpn0"), Remotes: []openvpn.Remote{{Host: "vpn.example.com", Port: 1194}},
		Proxy: &openvpn.Proxy{Host: "gateway.example.com", Port: 8132, Header: "Reversed-VPN",
			Value: "outbound|1194||vpn-seed-server.shoot--p--s.svc.cluster.local"}, ServerPrefix: "c1/"}
	client.TLSAuth = "/run/x/tls.key"
	direct := openvpn.Client{Common: common("tombolo-vpn0"), Remotes: []openvpn.Remote{{Host: "2001:db8::1", Port: 1194}}, ServerName: `odd "name"\`}
	direct.Protocol = openvpn.UDP
	several := openvpn.Client{Common: common("tombolo-vpn0"), ServerPrefix: "c1/", Remotes: []openvpn.Remote{
		{Host: "192.168.128.2", Port: 1194}, {Host: "192.168.128.1", Port: 1194}}}
	for name, text := range map[string]string{
		"client-several": several.Config(), "server": server.Config(), "server-udp": udp.Config(), "client": client.Config(), "client-udp": direct.Config(),
	} {
		path := filepath.Join("testdata", name+".conf")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != text {
			t.Errorf("%s differs from its golden file (-update writes it): %v\n%s", name, err, text)
		}
	}
}

func TestGrant(t *testing.T) {
	g := openvpn.Grant{Address4: netip.MustParseAddr("192.168.123.2"), Address6: netip.MustParseAddr("fd8f:6d53:b97a:1::2"),
		Transfer4: netip.MustParsePrefix("192.168.123.0/24"), Transfer6: netip.MustParsePrefix("fd8f:6d53:b97a:1::/96"), MTU: 1400,
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/14"), netip.MustParsePrefix("fd00:10::/64")}}
	want := "client-auth 3 7\nifconfig-push 192.168.123.2 255.255.255.0\n" +
		"ifconfig-ipv6-push fd8f:6d53:b97a:1::2/96 fd8f:6d53:b97a:1::1\niroute 10.244.0.0 255.252.0.0\n" +
		"iroute-ipv6 fd00:10::/64\npush \"tun-mtu 1400\"\nEND"
	if got := openvpn.Admit(openvpn.ClientEvent{Client: 3, Key: 7}, g); got != want {
		t.Errorf("%s", got)
	}
}

// The lines are those of OpenVPN 2.6.14 and 2.7.0, but for addresses and names.
func TestLines(t *testing.T) {
	for name, want := range map[string][]openvpn.Event{
		"server-2.6": {
			openvpn.Ready{}, openvpn.Hold{}, openvpn.Answer{OK: true, Text: "real-time log notification set to ON"},
			openvpn.Answer{OK: true, Text: "real-time state notification set to ON"},
			openvpn.State{Name: "WAIT"}, openvpn.State{Name: "CONNECTED", Detail: "SUCCESS", Address4: netip.MustParseAddr("192.168.123.1"),
				Address6: netip.MustParseAddr("fd8f:6d53:b97a:1::1")},
			openvpn.ClientEvent{What: "CONNECT", Client: 0, Key: 1, Env: map[string]string{
				"common_name": "client", "untrusted_ip": "192.0.2.7", "untrusted_port": "40112",
				"X509_0_subjectAltName": "URI:spiffe://tombolo.internal/cluster/c1/vpn-client/client", "n_clients": "0", "password": ""}},
			openvpn.Answer{OK: true, Text: "client-auth command succeeded"},
			openvpn.ClientEvent{What: "ESTABLISHED", Client: 0, Env: map[string]string{"common_name": "client"}},
			openvpn.Traffic{Client: 0, In: 4096, Out: 8192},
			openvpn.ClientEvent{What: "REAUTH", Client: 0, Key: 2, Env: map[string]string{"common_name": "client"}},
			openvpn.ClientEvent{What: "DISCONNECT", Client: 0, Env: map[string]string{"bytes_sent": "8192"}},
			openvpn.Log{Flags: "W", Text: "client/192.0.2.7:40112 a, warning"}, openvpn.Log{Flags: "F", Text: "all is lost"},
			openvpn.Answer{Text: "unknown command, enter 'help' for more options"},
		},
		"client-2.7": {
			openvpn.Ready{}, openvpn.Hold{}, openvpn.Remote{Host: "vpn.example.com", Port: 1194}, openvpn.State{Name: "CONNECTING"}, openvpn.State{Name: "WAIT"},
			openvpn.State{Name: "AUTH"}, openvpn.State{Name: "GET_CONFIG"}, openvpn.State{Name: "ASSIGN_IP", Address4: netip.MustParseAddr("192.168.123.2")},
			openvpn.State{Name: "CONNECTED", Detail: "SUCCESS", Address4: netip.MustParseAddr("192.168.123.2"),
				Address6: netip.MustParseAddr("fd8f:6d53:b97a:1::2"), Remote: netip.MustParseAddrPort("198.51.100.50:1194")},
			openvpn.Traffic{Client: -1, In: 3100, Out: 2900},
			openvpn.State{Name: "RECONNECTING", Detail: "connection-reset"}, openvpn.Hold{Wait: 2 * time.Second},
			openvpn.State{Name: "EXITING", Detail: "SIGTERM"},
		},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		var got []openvpn.Event
		r := &openvpn.Reader{}
		for line := range strings.Lines(string(text)) {
			if e := r.Line(strings.TrimRight(line, "\r\n")); e != nil {
				got = append(got, e)
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("%s: event %d of %d, want %d: %+v", name, i, len(got), len(want), got)
			}
		}
	}
}

func TestURI(t *testing.T) {
	for san, want := range map[string]string{
		"URI:spiffe://a/cluster/c1/vpn-client/x":               "spiffe://a/cluster/c1/vpn-client/x",
		"URI:spiffe://a/cluster/c1/vpn-client/x, DNS:y":        "",
		"DNS:y, URI:spiffe://a/cluster/c1/vpn-client/x":        "",
		"DNS:URI:spiffe://a/cluster/c1/vpn-client/x":           "",
		"URI:spiffe://a/x, URI:spiffe://a/cluster/c1/client/x": "",
		"": "",
	} {
		e := openvpn.ClientEvent{Env: map[string]string{"X509_0_subjectAltName": san}}
		if got := e.URI(); got != want {
			t.Errorf("%q: %q", san, got)
		}
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]struct {
		version string
		ok      bool
	}{
		"OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)]\n": {"2.6.14", true}, "OpenVPN 2.7_beta1 x86_64": {"2.7_beta1", true},
		"OpenVPN 2.5.1 x": {"2.5.1", false}, "OpenVPN 3.0 x": {"3.0", true}, "openssl": {"", false}, "OpenVPN x": {"", false}, "": {"", false},
	} {
		if version, ok := openvpn.Version(text); version != want.version || ok != want.ok {
			t.Errorf("%q: %q, %v", text, version, ok)
		}
	}
}

func TestStaticKey(t *testing.T) {
	var key [openvpn.StaticKey]byte
	for i := range key {
		key[i] = byte(i)
	}
	text := string(openvpn.WriteStaticKey(key))
	if err := openvpn.CheckStaticKey([]byte(text)); err != nil {
		t.Error(err)
	}
	for what, bad := range map[string]string{
		"empty": "", "cut": text[:len(text)/2], "digits are missing": strings.Replace(text, "00", "", 1),
		"no digit": strings.Replace(text, "00", "zz", 1), "another kind": strings.ReplaceAll(text, "V1", "V2"),
	} {
		err := openvpn.CheckStaticKey([]byte(bad))
		if err == nil || strings.Contains(err.Error(), "0405") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzLine: whatever comes, no event has more than its bounds, and the next line is read as ever.
func FuzzLine(f *testing.F) {
	f.Add(">CLIENT:CONNECT,0,1\n>CLIENT:ENV,a=b\n>CLIENT:ENV,END")
	f.Add(">STATE:1,CONNECTED,SUCCESS,10.0.0.1,,,,,fd00::1")
	f.Add(">BYTECOUNT_CLI:-2,1,2")
	f.Fuzz(func(t *testing.T, text string) {
		r := &openvpn.Reader{}
		for line := range strings.Lines(text) {
			if e, ok := r.Line(strings.TrimRight(line, "\r\n")).(openvpn.ClientEvent); ok && (len(e.Env) > 256 || e.Client < 0) {
				t.Fatalf("%d variables of client %d", len(e.Env), e.Client)
			}
		}
		if _, ok := r.Line(">HOLD:x").(openvpn.Hold); !ok {
			t.Fatal("a hold is not seen any more")
		}
	})
}
