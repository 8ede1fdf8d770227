// SPDX-License-Identifier: Apache-2.0

package meshconf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

const join = "tombolo://abcdefgh.abcdefghijklmnopqrstuvwxyz234567@hub.example.com:8443/c1/GNPVHdfYLmQCPKX4_LFdYO1Di25X8UB5NoTg7INOVp8"

// load reads a file as a node that runs the mesh does.
func load(text string, file func(string) (string, error)) (meshconf.Config, error) {
	var raw v1alpha1.MeshConfig
	d := conf.Decode("mesh.yaml", []byte(text), &raw)
	if d.Unread() {
		return meshconf.Config{}, d.Err()
	}
	c, err := meshconf.Read(raw, file, d.Add)
	return c, errors.Join(d.Err(), err)
}

func noFile(name string) (string, error) { return "", fmt.Errorf("%s is read", name) }

func whole() string {
	return `mesh:
  port: 0
  link: wg-mesh.1
  mtu: 1380
  overlay4: 100.64.0.0/16
  marks: {own: 0x100, mesh: 512, mask: 0xf00}
  table: 200
  rule: 1000
  filter: my_mesh
  bypass: true
  keep: true
  accept: [10.0.0.0/8, "fd00::/8", 0.0.0.0/0]
  exclude: [10.1.0.0/16]
  masquerade: [10.2.0.0/16]
  closedFor: 36h
  shared: true
  policies: [/etc/tombolo/policy.yaml]
  lazyAbove: 0
  engine: kernel
  ipsec: {cipher: chacha20-poly1305, port: 4501, only: true, esp: auto}
  offloads: {udpGSO: false, tunGRO: false}
  portMapping: false
  stun: ["stun.example.com:3478", "[2001:db8::1]:3478"]
  without: ["docker*", "eth?"]
  join: "` + join + `"
  hubs: ["hub.example.com:8443"]
  proxy: http://proxy:3128
`
}

func TestRead(t *testing.T) {
	got, err := load(whole(), noFile)
	if err != nil {
		t.Fatal(err)
	}
	to := &url.URL{Scheme: "https", Host: "hub.example.com:8443"}
	if via, err := got.Proxy.Choose(to); err != nil || via.String() != "http://proxy:3128" {
		t.Errorf("the proxy is %v, %v", via, err)
	}
	got.Proxy = meshconf.Config{}.Proxy
	p := netip.MustParsePrefix
	want := meshconf.Config{
		Port: 0, Keep: true, LazyAbove: 0, ClosedFor: 36 * time.Hour, Shared: true, Engine: meshconf.Kernel, ESP: meshconf.ESP{Cipher: meshconf.ChaCha, Port: 4501, Only: true}, Offloads: tunnel.Offloads{UDPGRO: true, TunTSO: true},
		Options: topology.Options{
			Link: "wg-mesh.1", MTU: 1380, Overlay4: p("100.64.0.0/16"), Marks: topology.Marks{Own: 0x100, Mesh: 0x200, Mask: 0xf00}, Table: 200, Rule: 1000,
			Filter: "my_mesh", Bypass: true, Accept: []netip.Prefix{p("10.0.0.0/8"), p("fd00::/8"), p("0.0.0.0/0")}, Exclude: []netip.Prefix{p("10.1.0.0/16")},
			Masquerade: []netip.Prefix{p("10.2.0.0/16")},
		},
		Policies: []string{"/etc/tombolo/policy.yaml"}, STUN: []string{"stun.example.com:3478", "[2001:db8::1]:3478"},
		Without: []string{"docker*", "eth?"}, Join: join, Hubs: []string{"hub.example.com:8443"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDefaults(t *testing.T) {
	for _, text := range []string{"cache: false\n", "mesh: {}\n", "mesh:\n"} {
		got, err := load(text, noFile)
		if err != nil {
			t.Fatal(err)
		}
		if got.Proxy.Choose == nil {
			t.Error("no proxy of the environment is asked")
		}
		got.Proxy = meshconf.Config{}.Proxy
		want := meshconf.Config{
			Port: 51820, Options: topology.Defaults(), LazyAbove: 50, ClosedFor: 7 * 24 * time.Hour, Engine: meshconf.Userspace, ESP: meshconf.ESP{Cipher: meshconf.AES, Port: 4500, InUDP: true}, Offloads: tunnel.AllOffloads(), PortMapping: true,
		}
		want.Options.Exclude, want.Options.Masquerade = []netip.Prefix{}, []netip.Prefix{}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(meshconf.Default(), want) {
			t.Errorf("%q: got  %+v\nwant %+v", text, got, want)
		}
	}
	got, err := load("mesh: {overlay4: none, accept: [], without: [], proxy: none}\n", noFile)
	if err != nil || got.Options.Overlay4.IsValid() || got.Options.Accept == nil || len(got.Options.Accept) > 0 || got.Without == nil || got.Proxy.Choose != nil {
		t.Errorf("what is written to be nothing: %+v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	many := func(n int, item string) string { return "[" + strings.Repeat(item+", ", n) + item + "]" }
	for _, c := range []struct{ field, value, want string }{
		{"port", "65536", "mesh.yaml:1:14: mesh.port: 65536 is not within 0 and 65535"},
		{"port", "-1", "mesh.port: -1"},
		{"link", "a-name-of-16-let", `mesh.link: "a-name-of-16-let" is no name of a link: 1 to 15`},
		{"link", `"a/b"`, `mesh.yaml:1:14: mesh.link: "a/b" is no name of a link: letters`},
		{"link", "..", "mesh.link: "},
		{"mtu", "1279", "mesh.yaml:1:13: mesh.mtu: 1279 is not within 1280"},
		{"mtu", "0", "mesh.mtu: 0 is not within"},
		{"overlay4", "100.64.0.1/16", "mesh.overlay4: 100.64.0.1/16 has bits beyond its length; 100.64.0.0/16 is meant?"},
		{"overlay4", `"fd00::/64"`, "mesh.overlay4: fd00::/64 is no IPv4 range"},
		{"overlay4", "x", `mesh.overlay4: "x" is no range`},
		{"marks", "{own: 0x20, mesh: 0x20}", "mesh.yaml:1:15: mesh.marks: 0x20 and 0x20 with mask 0x60"},
		{"marks", "{mask: 0x20}", "mesh.marks: "},
		{"marks", "{own: 0}", `mesh.yaml:1:21: mesh.marks.own: "0" is no mark`},
		{"marks", "{own: 020}", `"020" is no mark`},
		{"marks", "{own: 0x1ffffffff}", "is no mark"},
		{"table", "254", "mesh.table: 254 is no table"},
		{"table", "0", "mesh.table: 0 is no table"},
		{"rule", "32765", "mesh.yaml:1:14: mesh.rule: 32765 is not within 1"},
		{"filter", "1mesh", `mesh.filter: "1mesh" is no name of a table`},
		{"filter", "a-b", "mesh.filter: "},
		{"filter", strings.Repeat("a", limit.MeshFilter+1), "mesh.filter: "},
		{"accept", "[10.0.0.0/8, 224.0.0.0/4]", "mesh.yaml:1:29: mesh.accept[1]: 224.0.0.0/4 is multicast"},
		{"accept", "[10.0.0.1/8]", "mesh.accept[0]: 10.0.0.1/8 has bits"},
		{"accept", many(meshconf.MeshRanges, "10.0.0.0/8"), "mesh.accept: there are 257"},
		{"exclude", "[10.0.0.0]", `mesh.exclude[0]: "10.0.0.0" is no range`},
		{"exclude", `["::ffff:10.0.0.0/104"]`, "mesh.exclude[0]: "},
		{"policies", `["", a, a]`, "mesh.policies[0]: it is empty"},
		{"policies", `[b, a, a]`, `mesh.policies[2]: "a" stands at mesh.policies[1] too`},
		{"lazyAbove", "-1", "mesh.lazyAbove: -1 is not within 0 and 10000"},
		{"engine", "boringtun", `mesh.engine: "boringtun" is neither`},
		{"engine", "ipsek", "did you mean ipsec?"},
		{"ipsec", "{cipher: des}", `mesh.yaml:1:24: mesh.ipsec.cipher: "des" is neither aes-256-gcm nor chacha20-poly1305`},
		{"ipsec", "{esp: raw}", `mesh.ipsec.esp: "raw" is neither auto nor udp`},
		{"ipsec", "{esp: upd}", "did you mean udp?"},
		{"engine", "ipsec, link: fifteen-letters", "mesh.link: \"fifteen-letters\" is too long with mesh.engine ipsec"},
		{"engine", "ipsec, port: 4500", "mesh.port: 4500 is mesh.ipsec.port too"},
		{"ipsec", "{port: 0}", "mesh.yaml:1:22: mesh.ipsec.port: 0 is no port"},
		{"ipsec", "{port: 65536}", "mesh.ipsec.port: 65536 is not within"},
		{"ipsec", "{key: a}", "mesh.ipsec.key: unknown key"},
		{"offloads", "{udpGSO: 1}", "mesh.offloads.udpGSO: true or false"},
		{"offloads", "{gso: true}", "mesh.offloads.gso: unknown key"},
		{"stun", "[stun.example.com]", `mesh.yaml:1:15: mesh.stun[0]: "stun.example.com" is not host:port`},
		{"stun", many(meshconf.MeshServers, `"a:1"`), "mesh.stun: there are 17"},
		{"without", `["eth["]`, `mesh.without[0]: "eth[" is no pattern`},
		{"without", `[""]`, "mesh.without[0]: "},
		{"without", many(meshconf.MeshPatterns, "a"), "mesh.without: there are 65"},
		{"join", "nonsense", "mesh.yaml:1:14: mesh.join: it does not begin with"},
		{"join", `"@"`, "mesh.join: there is no file behind"},
		{"hubs", `["hub:0"]`, "mesh.hubs[0]: "},
		{"hubs", many(limit.RelayHubs, `"a:1"`), "mesh.hubs: there are 9"},
		{"proxy", "ftp://p", "mesh.proxy: http://host:port"},
		{"portMaping", "true", "mesh.portMaping: unknown key"},
	} {
		_, err := load("mesh: {"+c.field+": "+c.value+"}\n", noFile)
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s %s: %v, want %q", c.field, c.value, err, c.want)
		}
	}
}

// TestRangesOfThisNode: what can be known without the machine is told with its place.
func TestRangesOfThisNode(t *testing.T) {
	for _, c := range []struct{ announce, want string }{
		{"ranges: [10.0.0.0/8, 'fd00:1::/64']", ""},
		{"ranges: [0.0.0.0/0]", "announce.ranges[0]: 0.0.0.0/0 is the default route"},
		{"ranges: [10.0.0.0/8, '::/0']", "announce.ranges[1]: ::/0 is the default route"},
		{"ranges: [127.0.0.0/8]", "announce.ranges[0]: 127.0.0.0/8 is loopback"},
		{"ranges: [224.0.0.0/4]", "multicast"},
		{"ranges: [192.168.1.0/24], addresses: [192.168.1.7]", "announce.ranges[0]: 192.168.1.0/24 covers 192.168.1.7"},
		{"ranges: [10.0.0.0/8, 192.168.1.0/24], endpoints: ['192.168.1.7:51820']", "announce.ranges[1]: 192.168.1.0/24 covers 192.168.1.7"},
		{"ranges: [192.168.2.0/24], addresses: [192.168.1.7]", ""},
	} {
		_, err := load("announce: {"+c.announce+"}\n", noFile)
		if c.want == "" && err != nil || c.want != "" && (!fault.Has(err, fault.CodeConfig) || !strings.Contains(fmt.Sprint(err), c.want)) {
			t.Errorf("%s: %v, want %q", c.announce, err, c.want)
		}
	}
	if _, err := load("mesh: {closedFor: -1h}\n", noFile); !strings.Contains(fmt.Sprint(err), "mesh.closedFor") {
		t.Errorf("a time that is none: %v", err)
	}
}

// TestAllAtOnce: no mistake hides another one.
func TestAllAtOnce(t *testing.T) {
	_, err := load("announce: {publicKey: x, privateKeyFile: y}\nmesh: {port: -1, mtu: 1, table: 253, rule: 0, engine: x, accept: [x], marks: {own: 1, mesh: 1}, hubs: [x], join: x, proxy: x, proxyFile: y}\n", nil)
	for _, path := range []string{
		"announce.publicKey", "announce.privateKeyFile", "mesh.port", "mesh.mtu", "mesh.table", "mesh.rule", "mesh.engine", "mesh.accept[0]", "mesh.marks", "mesh.hubs[0]", "mesh.join", "mesh.proxyFile",
	} {
		if !strings.Contains(fmt.Sprint(err), " "+path+": ") {
			t.Errorf("%s is missing in %v", path, err)
		}
	}
}

// TestSecretsAreNotShown: neither the line nor a proxy's password stands in an error.
func TestSecretsAreNotShown(t *testing.T) {
	text := "mesh: {join: '" + strings.Replace(join, "/c1/", "/C1/", 1) + "', proxy: 'http://u:geheim@p/x'}\n"
	_, err := load(text, noFile)
	if s := fmt.Sprint(err); !strings.Contains(s, "mesh.join") || !strings.Contains(s, "mesh.proxy") || strings.Contains(s, "geheim") || strings.Contains(s, "abcdefgh.") {
		t.Error(s)
	}
}

// TestProxyFile: it is read where it is asked for, and its error is the file's.
func TestProxyFile(t *testing.T) {
	const text = "mesh: {proxyFile: /etc/proxy}\n"
	c, err := load(text, func(string) (string, error) { return "http://p:1\n", nil })
	if err != nil || c.Proxy.Choose == nil {
		t.Errorf("%v", err)
	}
	if _, err := load(text, noFile); err == nil || !strings.Contains(err.Error(), "/etc/proxy is read") {
		t.Errorf("%v", err)
	}
	if _, err := load(text, nil); err != nil {
		t.Errorf("on another machine: %v", err)
	}
	if _, err := load(text, func(string) (string, error) { return "geheim", nil }); !fault.Has(err, fault.CodeConfig) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
}

// TestCheck: one that runs no mesh may have a key beside the section, and reads no file.
func TestCheck(t *testing.T) {
	var raw v1alpha1.MeshConfig
	d := conf.Decode("mesh.yaml", []byte("announce: {publicKey: x}\nmesh: {proxyFile: /nowhere, port: 70000}\n"), &raw)
	if err := meshconf.Check(raw, d.Add); err != nil {
		t.Fatal(err)
	}
	if got := d.Problems(); len(got) != 1 || got[0].Path != "mesh.port" {
		t.Errorf("%v", got)
	}
}

// TestReload: each setting is either taken over or named, never neither or both.
func TestReload(t *testing.T) {
	fixed := []string{"port", "link", "mtu", "overlay4", "marks", "table", "rule", "filter", "keep", "engine", "ipsec", "offloads", "portMapping", "hubs", "proxy"}
	before := meshconf.Default()
	lines := strings.Split(strings.TrimPrefix(strings.TrimSpace(whole()), "mesh:\n"), "\n")
	if len(lines) != reflect.TypeFor[v1alpha1.MeshOptions]().NumField()-1 { // proxyFile stands for proxy
		t.Fatalf("%d fields are tried", len(lines))
	}
	for _, line := range lines {
		field, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		next, err := load("mesh:\n"+line+"\n", noFile)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if slices.Contains(fixed, field) {
			want = []string{"mesh." + field}
		}
		if got := before.Fixed(next); !slices.Equal(got, want) {
			t.Errorf("%s: needing a restart are %v", field, got)
		}
		taken := before.Take(next)
		taken.Proxy, next.Proxy, next.Join = before.Proxy, before.Proxy, before.Join
		if got, want := taken, map[bool]meshconf.Config{true: without(before), false: without(next)}[len(want) > 0]; !reflect.DeepEqual(without(got), want) {
			t.Errorf("%s: taken over is\n%+v, not\n%+v", field, got, want)
		}
	}
}

// without leaves out what cannot be compared.
func without(c meshconf.Config) meshconf.Config {
	c.Proxy = meshconf.Config{}.Proxy
	return c
}

// FuzzRead: what is taken is within the bounds, and the same when it is read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(whole()))
	f.Add([]byte("mesh: {proxy: none}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := load(string(data), nil)
		again, err2 := load(string(data), nil)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("read twice: %v and %v", err, err2)
		}
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if len(c.Fixed(again)) > 0 || !reflect.DeepEqual(without(c), without(again)) {
			t.Errorf("%+v and %+v", c, again)
		}
		if bad := c.Options.Check(); len(bad) > 0 || len(c.STUN) > meshconf.MeshServers || len(c.Options.Accept) > meshconf.MeshRanges || c.LazyAbove < 0 {
			t.Errorf("taken: %+v, %v", c, bad)
		}
	})
}
