// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\n"

func TestConfig(t *testing.T) {
	c, err := ParseConfig("x.yaml", []byte(head+`listen: 127.0.0.1:1
tls: {certFile: /a, keyFile: /b}
store: {etcd: {endpoints: ["https://e:2379"], username: u, passwordFile: /p}}
limits: {members: 10, bytes: 1MiB}
rates: {perSecond: 1}
trustedProxies: [10.0.0.0/8, "fd00::1", "::ffff:192.0.2.1"]
settle: 1m
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS != TLSFiles || c.Etcd == nil || c.Etcd.Prefix != "/tombolo/discovery" || c.limits.Members != 10 || c.limits.Bytes != 1<<20 ||
		c.limits.Clusters != discoveryClusters || c.rates != (Rates{1, discoveryBurst}) || c.Settle != time.Minute || len(c.proxies) != 3 {
		t.Errorf("%+v", c)
	}
	if got := c.proxies[2].String(); got != "192.0.2.1/32" {
		t.Errorf("the proxy is %s", got)
	}
	if c.limits.BytesPerAddress != 1<<20 || c.limits.ClustersPerAddress != discoveryClusters/8 { // of a small whole all of it
		t.Errorf("the share is %d bytes and %d clusters", c.limits.BytesPerAddress, c.limits.ClustersPerAddress)
	}
	d := DefaultConfig()
	if d.limits.BytesPerAddress != discoveryBytes/8 {
		t.Errorf("the share is %d bytes", d.limits.BytesPerAddress)
	}
	if d.TLS != TLSSelf || d.Listen != ":8446" || d.limits.Bytes != discoveryBytes || len(d.Hosts) == 0 || len(d.proxies) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestMistakesInTheConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"listen: 8446\n":                                              "x.yaml:3:9: listen: text is expected",
		"listen: x\n":                                                 "x.yaml:3:9: listen: \"x\" is not",
		"admin: {listen: \":99999\"}\n":                               "admin.listen",
		"tls: {self: true, none: true}\n":                             "tls: one of",
		"tls: {none: true, certFile: /a, keyFile: /b}\n":              "tls: one of",
		"tls: {certFile: /a}\n":                                       "tls: certFile and keyFile belong together",
		"tls: {certFile: a, keyFile: /b}\n":                           "tls.certFile: \"a\" is not absolute",
		"tls: {none: true, hosts: [a]}\n":                             "tls.hosts",
		"tls: {hosts: [\"a b\"]}\n":                                   "tls.hosts[0]",
		"store: {memory: {}, etcd: {endpoints: [\"x\"]}}\n":           "store: one of",
		"store: {etcd: {}}\n":                                         "store.etcd.endpoints: is missing",
		"store: {etcd: {endpoints: [\"tcp://x\"]}}\n":                 "store.etcd.endpoints[0]",
		"store: {etcd: {endpoints: [\"https://u:p@x\"]}}\n":           "store.etcd.endpoints[0]: it is no URL",
		"store: {etcd: {username: u}}\n":                              "username and passwordFile",
		"store: {memory: {snapshotInterval: 1ms}}\n":                  "store.memory.snapshotInterval",
		"limits: {members: 0}\n":                                      "limits.members: 0 is not within 1",
		"limits: {endpoints: 1025}\n":                                 "limits.endpoints",
		"limits: {bytes: 2GiB}\n":                                     "limits.bytes",
		"limits: {bytes: 1025MiB}\n":                                  "limits.bytes: 1025MiB is more than 1GiB",
		"redirect: elsewhere\n":                                       "redirect: \"elsewhere\" is no host and port",
		"redirect: \"https://elsewhere:443\"\n":                       "redirect",
		"redirect: \"elsewhere:0\"\n":                                 "redirect",
		"redirect: \":443\"\n":                                        "redirect",
		"limits: {clustersPerAddress: 0}\n":                           "limits.clustersPerAddress: 0 is not within 1",
		"rates: {burst: -1}\n":                                        "rates.burst",
		"trustedProxies: [10.0.0.1/8]\n":                              "trustedProxies[0]",
		"trustedProxies: [10.0.0.1, 0.0.0.0/0]\n":                     "x.yaml:3:28: trustedProxies[1]: \"0.0.0.0/0\" is everybody",
		"trustedProxies: [\"::/0\"]\n":                                "trustedProxies[0]: \"::/0\" is everybody",
		"trustedProxies: [10.0.0.1, everybody]\n":                     "x.yaml:3:28: trustedProxies[1]",
		"trustedProxies: [\"fe80::1%eth0\"]\n":                        "trustedProxies[0]",
		"trustedProxies: [" + strings.Repeat("1.1.1.1,", 257) + "]\n": "there are 257",
		"settle: 31m\n":                                               "settle: 31m0s is not more than 0s and at most 30m0s",
		"settle: -1s\n":                                               "settle: -1s is not more than 0s and at most 30m0s",
		"settle: 0s\n":                                                "is no time",
		"drainTimeout: 2h\n":                                          "drainTimeout",
		"log: {level: all}\n":                                         "log.level",
		"log: {format: xml}\n":                                        "log.format",
		"secret: x\n":                                                 "x.yaml:3:1: secret: unknown key",
		"kind: HubConfig\n":                                           "the key stands twice",
	} {
		_, err := ParseConfig("x.yaml", []byte(head+text))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%q: the password is shown", text)
		}
	}
}

// TestTheMostBytes: what the page says can be configured.
func TestTheMostBytes(t *testing.T) {
	c, err := ParseConfig("x", []byte(head+"limits: {bytes: 1GiB}\nredirect: \"[2001:db8::1]:443\"\n"))
	if err != nil || c.limits.Bytes != 1<<30 || c.redirect != "[2001:db8::1]:443" {
		t.Errorf("%d bytes, redirect %q, %v", c.limits.Bytes, c.redirect, err)
	}
}

func TestWhatNeedsARestart(t *testing.T) {
	base := func() Config { c, _ := ParseConfig("x", []byte(head)); return c }
	for field, edit := range map[string]func(*Config){
		"stateDir": func(c *Config) { c.StateDir = "x" }, "runDir": func(c *Config) { c.RunDir = "x" }, "listen": func(c *Config) { c.Listen = "x" },
		"admin": func(c *Config) { c.Pprof = true }, "log": func(c *Config) { c.Log.Level = "x" }, "tls": func(c *Config) { c.TLS = TLSNone },
		"store": func(c *Config) { c.Etcd = &EtcdConfig{} }, "settle": func(c *Config) { c.Settle = 1 }, "drainTimeout": func(c *Config) { c.Drain = 1 },
		"stun": func(c *Config) { c.STUN.Listen = "none" },
		"": func(c *Config) {
			c.limits.Members, c.rates.Burst, c.certFile, c.proxies = 1, 1, "/x", networks(t, "10.0.0.1")
			c.redirect = "elsewhere:443"
		},
	} {
		next := base()
		edit(&next)
		if got := strings.Join(fixedChanges(base(), next), ","); got != field {
			t.Errorf("%s: %q needs a restart", field, got)
		}
	}
}

// TestTheGuidesBalancer: behind one address everything fits that fits into the service.
func TestTheGuidesBalancer(t *testing.T) {
	guide, err := os.ReadFile("../../docs/howto/discovery.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(guide), head+"rates:")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("the guide has no such file")
	}
	c, err := ParseConfig("guide.yaml", []byte(head+"rates:"+text))
	if err != nil {
		t.Fatal(err)
	}
	l := c.limits
	if l.ConnectionsPerAddress != l.Connections || l.WatchesPerAddress < l.Connections || l.ClustersPerAddress != l.Clusters ||
		l.BytesPerAddress != l.Bytes || c.rates.PerSecond <= discoveryRate || c.rates.Burst <= discoveryBurst {
		t.Errorf("%+v, %+v", l, c.rates)
	}
}
