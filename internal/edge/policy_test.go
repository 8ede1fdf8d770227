// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// behindBalancer are ports that take the client's address from a PROXY header of this machine.
const behindBalancer = "listeners:\n- {name: tls, listen: '127.0.0.1:0', protocol: tls, proxyProtocol: {from: [127.0.0.1]}}\n" +
	"- {name: vpn, listen: '127.0.0.1:0', protocol: connect, proxyProtocol: {from: [127.0.0.1]}}\n"

// come connects as from a source, to a server name or, if it is one, to a destination, and reports whether it got in.
func (f *front) come(source, to string) bool {
	f.t.Helper()
	family, local := "TCP4", "192.0.2.1"
	if strings.Contains(source, ":") {
		family, local = "TCP6", "2001:db8::1"
	}
	head := "PROXY " + family + " " + source + " " + local + " 4711 443\r\n"
	if !strings.Contains(to, "|") && !strings.Contains(to, "--") {
		c := dial(f.t, f.tls)
		io.WriteString(c, head)
		return tls.Client(c, &tls.Config{ServerName: to, InsecureSkipVerify: true}).Handshake() == nil
	}
	c := dial(f.t, f.connect)
	io.WriteString(c, head+"CONNECT a:1 HTTP/1.0\r\nX-Gardener-Destination: "+to+"\r\n\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") && !strings.HasPrefix(line, "HTTP/1.1 403") {
		f.t.Fatalf("%s from %s: %q, %v", to, source, line, err)
	}
	return strings.HasPrefix(line, "HTTP/1.1 200")
}

// A protected cluster is closed by default on every way that rules name, by each of its names, in both families; a
// cluster whose name begins alike is another one.
func TestPolicyOnEveryWay(t *testing.T) {
	f := start(t, `  - {name: office, clusters: [foo], flows: [api, vpn, proxy, ingress], sources: [203.0.113.0/24, "2001:db8:1::/48"], allow: ['*']}
  - {name: laptop, clusters: [foo], flows: ['*'], sources: [203.0.113.7, "2001:db8:1::7"], deny: ['*']}
  - {name: seeds, group: platform, flows: [api, vpn, proxy, ingress], sources: [10.250.0.0/16], allow: ['*']}
  - {name: other, clusters: [foo-bar], flows: [api], sources: [198.51.100.0/24], allow: ['*']}
  - {name: dials, clusters: [free], allow: ['*']}
`, behindBalancer)
	secured, plain := secure(t), echo(t, nil)
	to := map[string]map[string][]string{}
	for _, name := range []string{"foo", "foo-bar", "free"} {
		ns := "shoot--p--" + name
		to[name] = map[string][]string{
			"api":     {"api." + name + ".example.org", "alt." + name + ".example.org", "x.wild." + name + ".example.org"},
			"ingress": {"www." + name + ".example.org"},
			"vpn":     {"outbound|1194||vpn-seed-server." + ns + ".svc.cluster.local", "outbound|1194||vpn-seed-server-1." + ns + ".svc.cluster.local"},
			"proxy":   {"outbound|443||kube-apiserver." + ns + ".svc.cluster.local", ns + "--kube-apiserver-socket"},
		}
		ways := ""
		for flow, names := range to[name] {
			field, up := "names", secured
			if flow == "vpn" || flow == "proxy" {
				field, up = "destinations", plain
			}
			list := strings.ReplaceAll(strings.Join(names, "', '"), "x.wild.", "*.wild.")
			ways += "  - {flow: " + flow + ", " + field + ": ['" + list + "'], upstreams: ['" + up + "']}\n"
		}
		f.tenant(name, ways)
	}
	const all = "api ingress vpn proxy"
	for _, c := range []struct{ cluster, source, in string }{
		{"foo", "203.0.113.9", all},
		{"foo", "::ffff:203.0.113.9", all},
		{"foo", "2001:db8:1::9", all},
		{"foo", "10.250.1.2", all}, // the platform
		{"foo", "203.0.113.7", ""},
		{"foo", "::ffff:203.0.113.7", ""},
		{"foo", "2001:db8:1::7", ""},
		{"foo", "198.51.100.9", ""},
		{"foo", "2001:db8:2::9", ""},
		{"foo-bar", "198.51.100.9", all},
		{"foo-bar", "10.250.1.2", all},
		{"foo-bar", "203.0.113.9", "ingress vpn proxy"}, // protected in one flow alone
		{"foo-bar", "2001:db8:1::9", "ingress vpn proxy"},
		{"free", "203.0.113.7", all}, // a rule about dials protects nothing here
	} {
		for flow, names := range to[c.cluster] {
			for _, name := range names {
				if got, want := f.come(c.source, name), strings.Contains(c.in, flow); got != want {
					t.Errorf("%s/%s as %s from %s: let in %v, want %v", c.cluster, flow, name, c.source, got, want)
				}
			}
		}
	}
	for _, r := range f.audited() {
		if r.Count == 0 && r.Code == "policy_denied" && (r.Verdict != audit.Deny || r.Policy == "" || r.Egress == "" || r.Cluster == "") {
			t.Errorf("%+v", r)
		}
	}
}

// A policy with mistakes changes nothing, neither for new connections nor for live ones; the next
// good one counts.
func TestABadPolicyKeepsTheLastGoodOne(t *testing.T) {
	const good = "  - {name: a, clusters: [c1], flows: [api], sources: [203.0.113.9], allow: ['*']}\n"
	const name = "api.c1.example.org"
	f := start(t, good, behindBalancer)
	f.tenant("c1", "  - {flow: api, names: ["+name+"], upstreams: ['"+secure(t)+"']}\n")
	raw := dial(t, f.tls)
	io.WriteString(raw, "PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n")
	live := tls.Client(raw, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	refused := func(want bool) {
		t.Helper()
		runtest.Eventually(t, "the policy is refused, or not any more", func() bool { return (f.Status().Policy.Refusal != nil) == want })
		if ping(t, live, "still"); f.come("203.0.113.8", name) || !f.come("203.0.113.9", name) {
			t.Error("another policy is in force")
		}
	}
	refused(false)
	f.write("  - {name: a, clusters: [c1], flows: [api], sources: [203.0.113.9/8], deny: ['*']}\n")
	refused(true)
	f.write(strings.Replace(good, "allow", "deny", 1))
	if _, err := live.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel that the policy refuses is still there")
	}
}

// Who is protected is not known without the policy: the edge opens no port.
func TestWithoutItsPolicyNobodyIsServed(t *testing.T) {
	for name, c := range map[string]struct{ text, policy, want string }{
		"missing":           {"", "p.yaml", "p.yaml"},
		"with mistakes":     {"rules: 1\n", "p.yaml", "p.yaml"},
		"not in its folder": {"", "", "there is no policy in "},
		"bad in its folder": {"rules: 1\n", "", "p.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.text != "" {
				if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			at := ln.Addr().String()
			ln.Close()
			cfg, err := edge.ParseConfig("edge.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\nhealthListen: 127.0.0.1:0\n"+
				"runDir: "+dir+"/run\ntenants: ["+dir+"]\npolicies: ["+dir+"/"+c.policy+"]\nlisteners: [{name: tls, listen: '"+at+"', protocol: tls}]\n"))
			if err != nil {
				t.Fatal(err)
			}
			e := edge.New(cfg, edge.Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
			if err := e.Run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			if c, err := net.Dial("tcp", at); err == nil {
				c.Close()
				t.Error("the port is open")
			}
		})
	}
}

// A source and a cluster have as many places as the configuration gives them; whoever leaves makes room.
func TestLimits(t *testing.T) {
	f := start(t, "", behindBalancer+"limits: {perSource: 3, perCluster: 2}\n")
	at := echo(t, nil)
	for _, c := range []string{"c1", "c2", "c3"} {
		f.tenant(c, "  - {flow: vpn, destinations: ['"+strings.Replace(vpn, "c1", c, 1)+"'], upstreams: ['"+at+"']}\n")
	}
	open := func(source, cluster string) (*net.TCPConn, string) {
		c := dial(t, f.connect)
		io.WriteString(c, "PROXY TCP6 "+source+" 2001:db8::1 4711 443\r\nCONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+
			strings.Replace(vpn, "c1", cluster, 1)+"\r\n\r\n")
		b := make([]byte, 100)
		n, _ := c.Read(b)
		return c, string(b[:n])
	}
	var live []*net.TCPConn
	for i, x := range []struct{ source, cluster, want string }{
		{"2001:db8:0:1::1", "c1", "200"},
		{"2001:db8:0:2::1", "c1", "200"},
		{"2001:db8:0:3::1", "c1", "429"}, // the cluster has two
		{"2001:db8:0:1::2", "c2", "200"},
		{"2001:db8:0:1::3", "c2", "200"},
		{"2001:db8:0:1::4", "c3", "429"}, // its /64 has three
	} {
		c, answer := open(x.source, x.cluster)
		if !strings.HasPrefix(answer, "HTTP/1.1 "+x.want) {
			t.Fatalf("%d: %q, want %s", i, answer, x.want)
		}
		if x.want == "200" {
			live = append(live, c)
		}
	}
	live[0].Close()
	runtest.Eventually(t, "its places are free", func() bool {
		c, answer := open("2001:db8:0:1::5", "c1")
		defer c.Close()
		return strings.HasPrefix(answer, "HTTP/1.1 200")
	})
	for _, c := range live[1:] {
		ping(t, c, "still")
	}
}

// Whoever is refused, and stays to hear it, keeps nobody out: neither of the cluster nor of the edge.
func TestTheRefusedTakeNoPlaces(t *testing.T) {
	f := start(t, "  - {name: a, clusters: [c1], flows: [vpn], sources: ['2001:db8:0:1::/64'], allow: ['*']}\n",
		behindBalancer+"limits: {connections: 1, perCluster: 1}\n")
	way := func(c, at string) string {
		return "  - {flow: vpn, destinations: ['" + strings.Replace(vpn, "c1", c, 1) + "'], upstreams: ['" + at + "']}\n"
	}
	f.tenant("c1", way("c1", echo(t, nil)))
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	f.tenant("c2", way("c2", gone.Addr().String()))
	for _, x := range []struct{ source, cluster, want string }{
		{"2001:db8:0:2::1", "c1", "403"},
		{"2001:db8:0:2::1", "c2", "502"}, // the policy says nothing of it, and nobody is there
		{"2001:db8:0:1::1", "c1", "200"},
		{"2001:db8:0:1::1", "c1", "429"},
		{"2001:db8:0:2::1", "c1", "403"}, // even while there is no place
	} {
		c := dial(t, f.connect) // open until the test ends
		io.WriteString(c, "PROXY TCP6 "+x.source+" 2001:db8::1 4711 443\r\nCONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+
			strings.Replace(vpn, "c1", x.cluster, 1)+"\r\n\r\n")
		b := make([]byte, 100)
		if n, _ := c.Read(b); !strings.HasPrefix(string(b[:n]), "HTTP/1.1 "+x.want) {
			t.Errorf("%s to %s: %q, want %s", x.source, x.cluster, b[:n], x.want)
		}
	}
}

// The running edge explains by what is in force, and with the tenant.
func TestExplain(t *testing.T) {
	f := start(t, "  - {name: a, group: g, clusters: [c1], flows: [api], sources: [203.0.113.7], allow: ['api.example.org']}\n", "")
	way := func(c string) string {
		return "  - {flow: api, names: [api." + c + ".example.org], upstreams: ['192.0.2.1:1']}\n"
	}
	f.tenant("c1", way("c1"))
	f.tenant("c2", way("c2"))
	socket := admin.OverSocket(edge.AdminSocket(f.runDir))
	for query, want := range map[string]string{
		"cluster=c1&flow=api&from=203.0.113.7&name=API.example.org&port=443": "allowed a g denied rules of the policy",
		"cluster=c1&flow=api&from=::ffff:203.0.113.7&name=api.example.org":   "allowed a g denied rules of the policy",
		"cluster=c1&flow=api&from=203.0.113.7":                               "denied   denied rules of the policy",
		"cluster=c1&flow=api&from=203.0.113.8&name=api.example.org":          "denied   denied rules of the policy",
		"cluster=c2&flow=api&from=203.0.113.8":                               "allowed   allowed ",
		"cluster=c3&flow=api&from=203.0.113.8":                               "not_found",
		"cluster=c1&flow=dial&from=203.0.113.8":                              "request_malformed",
		"cluster=c1&flow=api&from=x":                                         "request_malformed",
		"cluster=c1&flow=api&from=203.0.113.8&name=a..b":                     "request_malformed",
		"cluster=c1&flow=api&from=203.0.113.8&port=x":                        "request_malformed",
	} {
		var x admin.EdgeExplanation
		err := socket.Call(t.Context(), "GET", "/v1/explain?"+query, nil, &x)
		got := x.Verdict + " " + x.Rule + " " + x.Group + " " + x.Default + " " + x.Protected
		if err != nil {
			got = string(fault.From(err).Code)
		} else if x.Version == "" || x.Why == "" {
			t.Errorf("%+v", x)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
