// SPDX-License-Identifier: Apache-2.0

package vpn_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/vpn"
)

const (
	goodServer = "apiVersion: tombolo.dev/v1alpha1\nkind: VPNServerConfig\ncluster: c1\nidentity: {bundle: /x.pem}\n" +
		"ranges: [{range: 10.244.0.0/16}]\n"
	goodClient = "apiVersion: tombolo.dev/v1alpha1\nkind: VPNClientConfig\ncluster: c1\nidentity: {bundle: /x.pem}\n" +
		"ranges: [{range: 10.244.0.0/16}]\nservers: [{address: 'vpn.example.com:1194'}]\n"
)

// Each line is a mistake, and words of what is said about it: its place, and both ranges if there are two.
func TestServerConfig(t *testing.T) {
	for name, test := range map[string]struct{ replace, with, want string }{
		"nothing wrong":       {"", "", ""},
		"mapped":              {"{range: 10.244.0.0/16}", "{range: 10.244.0.0/16, as: 240.1.0.0/16}", ""},
		"files":               {"{bundle: /x.pem}", "{certificate: /c, key: /k, ca: /a}\nclients: [vpn-shoot-client]", ""},
		"no cluster":          {"cluster: c1\n", "", "cluster"},
		"no identity":         {"identity: {bundle: /x.pem}\n", "", "bundle is missing"},
		"two identities":      {"{bundle: /x.pem}", "{bundle: /x.pem, key: /k}", "excludes"},
		"files, no clients":   {"{bundle: /x.pem}", "{certificate: /c, key: /k, ca: /a}", "clients: there is none"},
		"no range":            {"ranges: [{range: 10.244.0.0/16}]\n", "", "there is no range"},
		"the old transfer":    {"10.244.0.0/16", "192.168.123.0/24", "192.168.123.0/24, ranges[0], and 192.168.123.0/24, the transfer network"},
		"in the transfer":     {"10.244.0.0/16", "192.168.0.0/16", "192.168.0.0/16, ranges[0], and 192.168.123.0/24, the transfer network"},
		"two ranges":          {"{range: 10.244.0.0/16}", "{range: 10.244.0.0/16}, {range: 10.244.8.0/24}", "10.244.0.0/16, ranges[0], and 10.244.8.0/24, ranges[1]"},
		"mapped onto another": {"{range: 10.244.0.0/16}", "{range: 10.244.0.0/16}, {range: 10.8.0.0/24, as: 10.244.8.0/24}", "10.244.8.0/24, ranges[1] (10.8.0.0/24)"},
		"the seed's":          {"ranges:", "localRanges: [10.244.7.0/24]\nranges:", "10.244.7.0/24, a range of this side"},
		"of nobody":           {"10.244.0.0/16", "240.1.0.0/16", "240.1.0.0/16, ranges[0], is in 240.0.0.0/4"},
		"smaller":             {"{range: 10.244.0.0/16}", "{range: 10.244.0.0/16, as: 240.1.0.0/24}", "smaller"},
		"both keys":           {"ranges:", "tlsAuth: /a\ntlsCrypt: /b\nranges:", "tlsCrypt"},
		"an mtu":              {"ranges:", "mtu: 1000\nranges:", "mtu: 1000 is not between 1280"},
		"a protocol":          {"ranges:", "protocol: sctp\nranges:", "neither tcp nor udp"},
		"a transfer":          {"ranges:", "transfer: [10.0.0.0/30]\nranges:", "transfer[0]"},
		"two transfers":       {"ranges:", "transfer: [10.0.0.0/24, 10.1.0.0/24]\nranges:", "second one of its family"},
		"no transfer":         {"ranges:", "transfer: []\nranges:", "transfer: there is none"},
		"a link":              {"ranges:", "link: much-too-long-a-name\nranges:", "link"},
		"a table":             {"ranges:", "table: 254\nranges:", "table"},
		"a port":              {"ranges:", "listen: vpn.example.com:1194\nranges:", "listen"},
		"half a pair":         {"ranges:", "connect: {key: /k}\nranges:", "go together"},
		"a kind":              {"VPNServerConfig", "VPNClientConfig", "kind"},
	} {
		_, err := vpn.ParseServerConfig("x.yaml", []byte(strings.Replace(goodServer, test.replace, test.with, 1)))
		told(t, name, err, test.want)
	}
}

func TestClientConfig(t *testing.T) {
	for name, test := range map[string]struct{ replace, with, want string }{
		"nothing wrong":   {"", "", ""},
		"routes alone":    {"ranges: [{range: 10.244.0.0/16}]", "routes: [10.0.0.0/16]", ""},
		"nothing at all":  {"ranges: [{range: 10.244.0.0/16}]\n", "", "nothing could be reached"},
		"no server":       {"servers: [{address: 'vpn.example.com:1194'}]\n", "", "servers: there is no server"},
		"no host":         {"vpn.example.com:1194", ":1194", "servers[0].address"},
		"udp and a proxy": {"'vpn.example.com:1194'}", "'vpn.example.com:1194', proxy: {address: 'p:1'}}]\nprotocol: udp\nx: [{}", "a proxy carries no udp"},
		"a header alone":  {"1194'}", "1194', proxy: {address: 'p:1', header: X}}", "servers[0].proxy.destination"},
		"one transfer":    {"1194'}", "1194'}, {address: 'b:1194'}", "192.168.123.0/24, the transfer network of servers[0], and 192.168.123.0/24, the transfer network of servers[1]"},
		"several routes":  {"ranges: [{range: 10.244.0.0/16}]", "routes: [10.0.0.0/16]\nservers: [{address: 'a:1'}, {address: 'b:1'}]", "servers"},
		"its own server":  {"ranges: [{range: 10.244.0.0/16}]\nservers: [{address: 'vpn.example.com:1194'}]", "routes: [10.0.0.0/16]\nservers: [{address: '10.0.3.4:1194'}]", "routes[0]: 10.0.0.0/16 contains 10.0.3.4"},
		"its own proxy":   {"ranges: [{range: 10.244.0.0/16}]\nservers: [{address: 'vpn.example.com:1194'}]", "routes: [10.0.0.0/16]\nservers: [{address: '10.0.3.4:1194', proxy: {address: '10.1.0.1:1'}}]", ""},
		"a link":          {"servers:", "link: fourteenletter\nservers:", "link"},
		"addresses":       {"address: 'vpn.example.com:1194'", "addresses: ['192.168.128.1:1194', '192.168.128.2:1194']", ""},
		"preferred":       {"servers: [{address: 'vpn.example.com:1194'", "prefer: 192.168.128.17\nservers: [{addresses: ['a:1', 'b:1']", ""},
		"no preference":   {"servers:", "prefer: c1\nservers:", "prefer: \"c1\" is no address"},
		"both":            {"1194'}", "1194', addresses: ['a:1']}", "servers[0].addresses: address and addresses exclude"},
		"one twice":       {"address: 'vpn.example.com:1194'", "addresses: ['a:1', 'a:1']", "servers[0].addresses[1]: \"a:1\" stands there twice"},
		"no host of two":  {"address: 'vpn.example.com:1194'", "addresses: ['a:1', ':1']", "servers[0].addresses[1]: \":1\" has no host"},
		"too many":        {"address: 'vpn.example.com:1194'", "addresses: ['a:1', 'a:2', 'a:3', 'a:4', 'a:5', 'a:6', 'a:7', 'a:8', 'a:9']", "there are 9, at most 8"},
		"by a proxy":      {"address: 'vpn.example.com:1194'", "addresses: ['a:1', 'b:1'], proxy: {address: 'p:1'}", "a proxy leads to one address"},
	} {
		_, err := vpn.ParseClientConfig("x.yaml", []byte(strings.Replace(goodClient, test.replace, test.with, 1)))
		told(t, name, err, test.want)
	}
}

func told(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(goodServer)
	f.Add(goodClient)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = vpn.ParseServerConfig("x", []byte(text))
		_, _ = vpn.ParseClientConfig("x", []byte(text))
	})
}
