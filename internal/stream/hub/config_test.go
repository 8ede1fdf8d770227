// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
)

// kind are the two lines at the top of every file here.
const kind = "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"

func TestAHubWithoutConfiguration(t *testing.T) {
	for name, parse := range map[string]func() (Config, error){
		"none":                        func() (Config, error) { return DefaultConfig(), nil },
		"an empty kind":               func() (Config, error) { return ParseConfig("f", []byte(kind)) },
		"a number that is left empty": func() (Config, error) { return ParseConfig("f", []byte(kind+"connections:\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parse()
			switch {
			case err != nil, c.StateDir != "/var/lib/tombolo/hub", c.RunDir != "/run/tombolo", c.TrustDomain != id.DefaultTrustDomain,
				c.Listen != ":8443", c.AdminListen != "127.0.0.1:8444", c.Pprof, c.Drain != limit.Drain,
				c.agentLife != limit.AgentCertificate, c.renewGrace != renewGrace, c.clientLife != limit.ClientCertificate,
				c.connections != limit.Connections,
				c.dialTimeout != limit.Dial, c.idleTimeout != limit.StreamIdle, c.sockets.Defaults != frontend.Defaults{UID: -1, GID: -1, Mode: 0o600}, len(c.sockets.Clusters) != 0:
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestAFullConfigurationOfAHub(t *testing.T) {
	c, err := ParseConfigWith("f", []byte(kind+`
stateDir: /s
runDir: /ignored
trustDomain: example.org
listen: 0.0.0.0:9443
advertise: [hub.example.org, "10.0.0.1:443", "fd00::1", "[fd00::2]:1"]
admin: {listen: "127.0.0.1:0", pprof: true}
log: {format: json, level: debug}
certificates: {agentLife: 1h, renewGrace: 2h, clientLife: 3h}
sockets: {owner: "0", group: root, mode: "0660"}
streams: {dialTimeout: 4s, idleTimeout: 5m}
connections: 2
drainTimeout: 6s
clusters:
- name: c1
  sockets:
  - {protocol: konnectivity}
  - {protocol: connect, path: /x//y/../c.sock, owner: "65532", mode: "0600"}
- name: c2
`), Overlay{RunDir: "/r"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Advertise, " "); got != "hub.example.org:9443 10.0.0.1:443 [fd00::1]:9443 [fd00::2]:1" {
		t.Errorf("advertise: %s", got)
	}
	if c.agentLife != time.Hour || c.renewGrace != 2*time.Hour || c.clientLife != 3*time.Hour || c.dialTimeout != 4*time.Second ||
		c.connections != 2 ||
		c.idleTimeout != 5*time.Minute || c.Drain != 6*time.Second || c.RunDir != "/r" || !c.Pprof || c.Log.Format != "json" {
		t.Errorf("%+v", c)
	}
	want := []frontend.Socket{
		{Protocol: ProtocolKonnectivity, Spec: frontend.SocketSpec{Path: "/r/clusters/c1/konnectivity.sock", Mode: 0o660, Egress: "cluster"}},
		{Protocol: ProtocolConnect, Spec: frontend.SocketSpec{Path: "/x/c.sock", Mode: 0o600, UID: 65532, Egress: "cluster"}},
	}
	if len(c.sockets.Clusters) != 2 || fmt.Sprint(c.sockets.Clusters[0].Sockets) != fmt.Sprint(want) {
		t.Errorf("clusters: %+v, want sockets %+v", c.sockets.Clusters, want)
	}
}

func TestProblemsOfAHubsConfiguration(t *testing.T) {
	long := "/" + strings.Repeat("x", limit.SocketPath-1)
	for name, c := range map[string]struct{ file, want string }{
		"another version":                   {"apiVersion: v1\nkind: HubConfig\n", `f:1:13: apiVersion: "tombolo.dev/v1alpha1" is expected`},
		"too many connections":              {kind + "connections: 5\n", `f:3:14: connections: 5 is not 1 to 4; leave it out for 4`},
		"an egress that is no name":         {kind + "clusters:\n- name: c1\n  sockets: [{protocol: connect, egress: \"a b\"}]\n", `f:5:41: clusters[0].sockets[0].egress: "a b" is no name of 1 to 63 of a-z, 0-9 and '-'`},
		"no connections":                    {kind + "connections: 0\n", `f:3:14: connections: 0 is not 1 to 4; leave it out for 4`},
		"fewer connections than none":       {kind + "connections: -1\n", `f:3:14: connections: -1 is not 1 to 4; leave it out for 4`},
		"connections in words":              {kind + "connections: two\n", `f:3:14: connections: a whole number is expected, not "two"`},
		"another kind":                      {"apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n", `f:2:7: kind: "HubConfig" is expected`},
		"no kind":                           {"apiVersion: tombolo.dev/v1alpha1\n", `f:1:1: kind: "HubConfig" is expected`},
		"a bad trust domain":                {kind + "trustDomain: Example\n", `f:3:14: trustDomain: trust domain label "Example"`},
		"a listen address without a port":   {kind + "listen: 0.0.0.0\n", `f:3:9: listen: "0.0.0.0" is not host:port or :port`},
		"a listen port that is too large":   {kind + "listen: :70000\n", `f:3:9: listen: ":70000" is not host:port or :port`},
		"a listen port by name":             {kind + "listen: :https\n", `f:3:9: listen: ":https" is not host:port or :port`},
		"a bad stun address":                {kind + "stun:\n  listen: x\n", `f:4:11: stun.listen: "x" is not host:port or :port`},
		"a bad admin address":               {kind + "admin:\n  listen: x\n", `f:4:11: admin.listen: "x" is not host:port or :port`},
		"a bad address to advertise":        {kind + "advertise:\n- ok:1\n- a b\n", `f:5:3: advertise[1]: "a b" is neither host nor host:port`},
		"a bad log format":                  {kind + "log: {format: xml}\n", `f:3:15: log.format: "xml" is neither text nor json`},
		"a bad log level":                   {kind + "log: {level: loud}\n", `f:3:14: log.level: "loud" is none of debug, info, warn, error`},
		"a negative life":                   {kind + "certificates: {agentLife: -1h}\n", `f:3:27: certificates.agentLife: -1h0m0s is negative`},
		"a negative drain":                  {kind + "drainTimeout: -1s\n", `f:3:15: drainTimeout: -1s is negative`},
		"an unknown user":                   {kind + "sockets: {owner: nobody-of-that-name}\n", `f:3:18: sockets.owner: user: unknown user nobody-of-that-name`},
		"an unknown group":                  {kind + "sockets: {group: nobody-of-that-name}\n", `f:3:18: sockets.group: group: unknown group nobody-of-that-name`},
		"a mode that is none":               {kind + "sockets: {mode: rw}\n", `f:3:17: sockets.mode: "rw" is no octal mode`},
		"a mode with more than permissions": {kind + "sockets: {mode: \"4755\"}\n", `f:3:17: sockets.mode: "4755" is no octal mode`},
		"a mode that shuts out its owner":   {kind + "sockets: {mode: \"0440\"}\n", `f:3:17: sockets.mode: "0440" is no octal mode`},
		"a bad cluster name":                {kind + "clusters:\n- name: C_1\n", `f:4:9: clusters[0].name: cluster name "C_1" has the character 'C'`},
		"a cluster without a name":          {kind + "clusters:\n- sockets: []\n", `f:4:3: clusters[0].name: cluster name is empty`},
		"a cluster twice":                   {kind + "clusters:\n- name: c1\n- name: c1\n", `f:5:9: clusters[1].name: cluster "c1" stands in clusters[0] already`},
		"an unknown protocol":               {kind + "clusters:\n- name: c1\n  sockets:\n  - protocol: grpc\n", `f:6:15: clusters[0].sockets[0].protocol: "grpc" is neither konnectivity nor connect`},
		"a relative path":                   {kind + "clusters:\n- name: c1\n  sockets:\n  - {protocol: connect, path: x.sock}\n", `f:6:31: clusters[0].sockets[0].path: "x.sock" is not absolute`},
		"a path that is too long":           {kind + "clusters:\n- name: c1\n  sockets:\n  - {protocol: connect, path: " + long + "}\n", `has 108 bytes, the kernel takes at most 107`},
		"a run directory that is too long":  {kind + "runDir: " + long + "\nclusters:\n- name: c1\n  sockets:\n  - protocol: connect\n", `f:7:5: clusters[0].sockets[0].path: `},
		"a path twice":                      {kind + "clusters:\n- name: c1\n  sockets: [{protocol: connect, path: /x}]\n- name: c2\n  sockets: [{protocol: connect, path: //x/}]\n", `f:7:39: clusters[1].sockets[0].path: "/x" is the path of clusters[0].sockets[0] already`},
		"a protocol twice":                  {kind + "clusters:\n- name: c1\n  sockets: [{protocol: connect}, {protocol: connect}]\n", `clusters[0].sockets[1].path: "/run/tombolo/clusters/c1/connect.sock" is the path of clusters[0].sockets[0] already`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig("f", []byte(c.file))
			if f := fault.From(err); f == nil || f.Code != fault.CodeConfig || !strings.Contains(f.Error(), c.want) || strings.Count(f.Why, "\n") != 1 {
				t.Errorf("%v\nwant one problem: %s", err, c.want)
			}
		})
	}
	t.Run("all at once, in the order of the file", func(t *testing.T) {
		_, err := ParseConfig("f", []byte(kind+"listen: x\nadmin: {listen: y}\nadvertise: ['']\nclusters: [{name: ''}]\nunknown: 1\n"))
		last := -1
		for _, line := range []string{"f:3:9", "f:4:17", "f:5:13", "f:6:19", "f:7:1"} {
			at := strings.Index(fmt.Sprint(err), line)
			if at <= last {
				t.Fatalf("%s is not in its place in\n%v", line, err)
			}
			last = at
		}
	})
}

func TestAdvertisedAddresses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a name":                        {"hub.example", "hub.example:8443"},
		"a name with a port":            {"hub.example:443", "hub.example:443"},
		"a name with an empty port":     {"hub.example:", "hub.example:8443"},
		"an address":                    {"10.0.0.1", "10.0.0.1:8443"},
		"an IPv6 address":               {"fd00::1", "[fd00::1]:8443"},
		"an IPv6 address in brackets":   {"[fd00::1]", "[fd00::1]:8443"},
		"an IPv6 address with a port":   {"[fd00::1]:443", "[fd00::1]:443"},
		"the port that listen will get": {"10.0.0.1:0", "10.0.0.1:0"},
		"nothing":                       {"", ""},
		"a port alone":                  {":443", ""},
		"a name with a space":           {"a b", ""},
		"a name with a comma":           {"a,b", ""},
		"a name with a slash":           {"a/b:443", ""},
		"a URL":                         {"https://hub.example", ""},
		"a name with a user":            {"x@hub.example", ""},
		"a name beyond ASCII":           {"hüb.example", ""},
		"a zone":                        {"fe80::1%eth0", ""},
		"half a bracket":                {"[fd00::1", ""},
		"a port that is too large":      {"hub.example:65536", ""},
		"a port by name":                {"hub.example:https", ""},
		"an odd form of an address":     {"127.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Advertised(c.text, ":8443")
			if got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := Advertised("a", "no port"); err == nil {
		t.Error("a listen address without a port gave one")
	}
}

func TestLabelsOfHostNames(t *testing.T) {
	for host, want := range map[string]string{
		"node-1": "node-1", "Node.Example.ORG": "node", "": "hub", ".": "hub", "---": "hub", "-a-": "a", "my_host": "myhost",
		"ünï": "n", strings.Repeat("a", 80): strings.Repeat("a", 63), strings.Repeat("a", 62) + "--b": strings.Repeat("a", 62),
	} {
		if got := labelOf(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
		if _, err := id.ParseAgent(labelOf(host)); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestAKeyWithNothingBehindItIsRefused: a template whose list came out empty must not
// turn the policy off, nor take the clusters away.
func TestAKeyWithNothingBehindItIsRefused(t *testing.T) {
	for _, key := range []string{"policies", "clusters", "advertise"} {
		_, err := ParseConfigWith("f", []byte(kind+"\n"+key+":\n"), Overlay{})
		if err == nil || !strings.Contains(err.Error(), key+": the list is empty: leave the key out, or write what is in it") {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := ParseConfigWith("f", []byte(kind+"\npolicies: []\n"), Overlay{}); err == nil || !strings.Contains(err.Error(), "the list is empty") {
		t.Errorf("a policy that is written as none: %v", err)
	}
}
