// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
)

// attack is what a client sends and what must come of it.
type attack struct {
	name string
	port string
	send string
	want string // the answer holds it; empty: there is none
	code string // of the record; empty: there is none
	is   string // the cluster, or the source, in the record
}

// The answers of TLS: a fatal alert (RFC 8446 section 6).
const (
	decodeError  = "\x15\x03\x01\x00\x02\x02\x32"
	unrecognized = "\x15\x03\x01\x00\x02\x02\x70"
	accessDenied = "\x15\x03\x01\x00\x02\x02\x31"
)

// hello is a ClientHello with a server name, if it is not empty, and more extensions.
func hello(name string, more ...[]byte) string {
	var all []byte
	if name != "" {
		b := binary.BigEndian.AppendUint16(nil, uint16(len(name)+3))
		b = binary.BigEndian.AppendUint16(append(b, 0), uint16(len(name)))
		all = append(all, extension(0, append(b, name...))...)
	}
	all = append(all, bytes.Join(more, nil)...)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	if len(all) > 0 {
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	}
	return record(append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...), 1<<14)
}

func extension(kind uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, kind)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

// record wraps a message in records of at most so many bytes.
func record(message []byte, most int) string {
	var out []byte
	for part := range slices.Chunk(message, most) {
		out = append(binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(len(part))), part...)
	}
	return string(out)
}

func destination(cluster string) string { return strings.Replace(vpn, "c1", cluster, 1) }

func ask(header, value string) string {
	return "CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\n" + header + ": " + value + "\r\n\r\n"
}

const v2 = "\r\n\r\n\x00\r\nQUIT\n"

var (
	ech   = extension(0xfe0d, append([]byte{0}, make([]byte, 60)...))
	foo   = hello("api.foo.example.org")
	whole = strings.Repeat("x", 70_000)
)

// tlsAttacks are about ClientHellos. foo lets everybody in, foo-bar nobody from here.
var tlsAttacks = []attack{
	{"a name", "tls", foo, "foo", "ok", "foo"},
	{"in upper case", "tls", hello("API.FOO.EXAMPLE.ORG"), "foo", "ok", "foo"},
	{"with a final dot", "tls", hello("api.foo.example.org."), "foo", "ok", "foo"},
	{"another name of it", "tls", hello("kubernetes.foo.internal"), "foo", "ok", "foo"},
	{"below a wildcard", "tls", hello("a.b.apps.foo.example.org"), "foo", "ok", "foo"},
	{"on its other port", "tls6", foo, "foo", "ok", "foo"},
	{"in pieces", "tls", record([]byte(foo[5:]), 16), "foo", "ok", "foo"},
	{"large key shares", "tls", hello("api.foo.example.org", extension(51, make([]byte, 8000))), "foo", "ok", "foo"},
	{"a longer name", "tls", hello("api.foo-bar.example.org"), accessDenied, "policy_denied", "foo-bar"},
	{"another of those", "tls", hello("kubernetes.foo-bar.internal"), accessDenied, "policy_denied", "foo-bar"},
	{"its wildcard", "tls", hello("x.apps.foo-bar.example.org"), accessDenied, "policy_denied", "foo-bar"},
	{"its other port", "tls6", hello("api.foo-bar.example.org"), accessDenied, "policy_denied", "foo-bar"},
	{"a wildcard itself", "tls", hello("apps.foo.example.org"), unrecognized, "name_unknown", ""},
	{"a shorter name", "tls", hello("api.fo.example.org"), unrecognized, "name_unknown", ""},
	{"a name behind", "tls", hello("api.foo.example.org.evil.example"), unrecognized, "name_unknown", ""},
	{"a name before", "tls", hello("xapi.foo.example.org"), unrecognized, "name_unknown", ""},
	{"half of it", "tls", hello("api.foo-ba.example.org"), unrecognized, "name_unknown", ""},
	{"an unknown name, encrypted", "tls", hello("front.example.net", ech), unrecognized, "name_unknown", ""},
	{"a known name, encrypted", "tls", hello("api.foo.example.org", ech), "foo", "ok", "foo"},
	{"no name", "tls", hello("", extension(51, nil)), unrecognized, "name_missing", ""},
	{"no extensions, as TLS 1.0", "tls", hello(""), unrecognized, "name_missing", ""},
	{"a space in it", "tls", hello("api.foo.example.org "), decodeError, "request_malformed", ""},
	{"a NUL in it", "tls", hello("api.foo.example.org\x00.evil.example"), decodeError, "request_malformed", ""},
	{"an address", "tls", hello("127.0.0.1"), decodeError, "request_malformed", ""},
	{"two names", "tls", hello("api.foo.example.org", extension(0, []byte{0, 4, 0, 0, 1, 'a'})), decodeError, "request_malformed", ""},
	{"bytes behind it", "tls", record(append([]byte(foo[5:]), 0), 1<<14), decodeError, "request_malformed", ""},
	{"too large", "tls", record(append([]byte{1, 1, 0, 0}, whole...), 1<<14), decodeError, "header_too_large", ""},
	{"too many pieces", "tls", record([]byte(foo[5:]), 1), decodeError, "request_malformed", ""},
	{"a ServerHello", "tls", record([]byte{2, 0, 0, 1, 0}, 1<<14), decodeError, "request_malformed", ""},
	{"an alert", "tls", "\x15\x03\x01\x00\x02\x02\x28", "", "not_tls", ""},
	{"SSLv2", "tls", "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 37), "", "not_tls", ""},
	{"HTTP", "tls", "GET / HTTP/1.1\r\nHost: api.foo.example.org\r\n\r\n", "", "not_tls", ""},
	{"CONNECT", "tls", ask("Reversed-VPN", destination("foo")), "", "not_tls", ""},
	{"half of one", "tls", foo[:40], decodeError, "request_malformed", ""},
	{"nothing", "tls", "", "", "", ""},
}

// connectAttacks are about the heads of requests. The edge believes the one header and no other.
var connectAttacks = []attack{
	{"Reversed-VPN", "vpn", ask("Reversed-VPN", destination("foo")), "200 Connection Established\r\n\r\nfoo", "ok", "foo"},
	{"X-Gardener-Destination", "vpn", ask("X-Gardener-Destination", destination("foo")), "\r\nfoo", "ok", "foo"},
	{"in other case", "vpn", ask("rEVERSED-vpn", destination("foo")), "\r\nfoo", "ok", "foo"},
	{"space around it", "vpn", ask("Reversed-VPN", " \t"+destination("foo")+"\t "), "\r\nfoo", "ok", "foo"},
	{"its API server", "vpn", ask("Reversed-VPN", "outbound|443||kube-apiserver.shoot--p--foo.svc.cluster.local"), "\r\nfoo", "ok", "foo"},
	{"its socket", "vpn", ask("X-Gardener-Destination", "shoot--p--foo--kube-apiserver-socket"), "\r\nfoo", "ok", "foo"},
	{"its other port", "vpn6", ask("Reversed-VPN", destination("foo")), "\r\nfoo", "ok", "foo"},
	{"another cluster as target", "vpn", "CONNECT api.foo-bar.example.org:443 HTTP/1.0\r\nReversed-VPN: " + destination("foo") + "\r\n\r\n", "\r\nfoo", "ok", "foo"},
	{"a longer name", "vpn", ask("Reversed-VPN", destination("foo-bar")), "403 Forbidden\r\nTombolo-Fault: policy_denied", "policy_denied", "foo-bar"},
	{"its API server, longer", "vpn", ask("Reversed-VPN", "outbound|443||kube-apiserver.shoot--p--foo-bar.svc.cluster.local"), "policy_denied", "policy_denied", "foo-bar"},
	{"its socket, longer", "vpn", ask("Reversed-VPN", "shoot--p--foo-bar--kube-apiserver-socket"), "policy_denied", "policy_denied", "foo-bar"},
	{"its other port, longer", "vpn6", ask("Reversed-VPN", destination("foo-bar")), "policy_denied", "policy_denied", "foo-bar"},
	{"a shorter name", "vpn", ask("Reversed-VPN", destination("fo")), "403 Forbidden\r\nTombolo-Fault: name_unknown", "name_unknown", ""},
	{"a replica that it has not", "vpn", ask("Reversed-VPN", strings.Replace(destination("foo"), "server.", "server-1.", 1)), "name_unknown", "name_unknown", ""},
	{"a value in upper case", "vpn", ask("Reversed-VPN", strings.ToUpper(destination("foo"))), "name_unknown", "name_unknown", ""},
	{"a value with more behind", "vpn", ask("Reversed-VPN", destination("foo")+".evil.example"), "name_unknown", "name_unknown", ""},
	{"two values in one", "vpn", ask("Reversed-VPN", destination("foo")+", "+destination("foo-bar")), "name_unknown", "name_unknown", ""},
	{"a host alone", "vpn", ask("Reversed-VPN", "vpn-seed-server.shoot--p--foo.svc.cluster.local:1194"), "name_unknown", "name_unknown", ""},
	{"twice", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nReversed-VPN: "+destination("foo")), "400 Bad Request\r\nTombolo-Fault: request_malformed", "request_malformed", ""},
	{"twice in other case", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nreversed-vpn: "+destination("foo-bar")), "request_malformed", "request_malformed", ""},
	{"one of each", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nX-Gardener-Destination: "+destination("foo-bar")), "request_malformed", "request_malformed", ""},
	{"an empty one", "vpn", ask("Reversed-VPN", ""), "request_malformed", "request_malformed", ""},
	{"a space before the colon", "vpn", ask("Reversed-VPN ", destination("foo")), "request_malformed", "request_malformed", ""},
	{"a folded line", "vpn", ask("Reversed-VPN", "\r\n "+destination("foo")), "request_malformed", "request_malformed", ""},
	{"hidden by a bare LF", "vpn", ask("A", "b\nReversed-VPN: "+destination("foo")), "request_malformed", "request_malformed", ""},
	{"hidden by a bare CR", "vpn", ask("A", "b\rReversed-VPN: "+destination("foo")), "request_malformed", "request_malformed", ""},
	{"lines that end with LF", "vpn", strings.ReplaceAll(ask("Reversed-VPN", destination("foo")), "\r", ""), "request_malformed", "request_malformed", ""},
	{"a NUL", "vpn", ask("Reversed-VPN", destination("foo")+"\x00"), "request_malformed", "request_malformed", ""},
	{"a body", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nContent-Length: 5"), "request_malformed", "request_malformed", ""},
	{"chunks", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nTransfer-Encoding: chunked"), "request_malformed", "request_malformed", ""},
	{"a request behind it", "vpn", ask("Reversed-VPN", destination("foo")) + ask("Reversed-VPN", destination("foo-bar")), "early_data", "early_data", ""},
	{"another Host", "vpn", strings.Replace(ask("Reversed-VPN", destination("foo")), "Host: api", "Host: other", 1), "request_malformed", "request_malformed", ""},
	{"a Host with another port", "vpn", strings.Replace(ask("Reversed-VPN", destination("foo")), "Host: api:443", "Host: api:8443", 1), "request_malformed", "request_malformed", ""},
	{"two Hosts", "vpn", ask("Reversed-VPN", destination("foo")+"\r\nHost: api:443"), "request_malformed", "request_malformed", ""},
	{"HTTP/2", "vpn", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "request_malformed", "request_malformed", ""},
	{"TLS", "vpn", foo, "request_malformed", "request_malformed", ""},
	{"too large", "vpn", ask("A", whole[:17<<10]), "header_too_large", "header_too_large", ""},
	{"GET with the header", "vpn", "GET /x HTTP/1.1\r\nHost: api\r\nReversed-VPN: " + destination("foo") + "\r\n\r\n", "301 Moved Permanently\r\nLocation: https://api/x\r\n", "", ""},
	{"no header", "vpn", "CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\n\r\n", "301 Moved", "", ""},
	{"half of one", "vpn", ask("Reversed-VPN", destination("foo"))[:40], "request_malformed", "request_malformed", ""},
}

// proxyAttacks are about the address that a load balancer tells; the ports with "lb" trust one on loopback.
var proxyAttacks = []attack{
	{"v1", "lb", "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n" + foo, "foo", "ok", "203.0.113.7:4711"},
	{"v1, IPv6", "lb", "PROXY TCP6 2001:db8::7 2001:db8::1 4712 443\r\n" + foo, "foo", "ok", "[2001:db8::7]:4712"},
	{"v1, mapped", "lb", "PROXY TCP6 ::ffff:203.0.113.7 2001:db8::1 4713 443\r\n" + foo, "foo", "ok", "203.0.113.7:4713"},
	{"v2", "lb", v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x6a\x01\xbb" + foo, "foo", "ok", "203.0.113.7:4714"},
	{"v2, IPv6", "lb", v2 + "\x21\x21\x00\x24\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x07" + strings.Repeat("\x00", 16) + "\x12\x6b\x01\xbb" + foo, "foo", "ok", "[2001:db8::7]:4715"},
	{"v2 to CONNECT", "lbvpn", v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x6c\x01\xbb" + ask("Reversed-VPN", destination("foo")), "\r\nfoo", "ok", "203.0.113.7:4716"},
	{"a client that is refused", "lb", "PROXY TCP4 192.0.2.66 192.0.2.1 4717 443\r\n" + foo, accessDenied, "policy_denied", "192.0.2.66:4717"},
	{"the same, mapped", "lb", "PROXY TCP6 ::ffff:192.0.2.66 2001:db8::1 4718 443\r\n" + foo, accessDenied, "policy_denied", "192.0.2.66:4718"},
	{"v2, of the balancer itself", "lb", v2 + "\x20\x00\x00\x00" + foo, "foo", "ok", ""},
	{"v1, of unknown clients", "lb", "PROXY UNKNOWN\r\n" + foo, "foo", "ok", ""},
	{"v2, of no family", "lb", v2 + "\x21\x00\x00\x00" + foo, "", "proxy_header", ""},
	{"a health check", "lb", v2 + "\x20\x00\x00\x00", "", "", ""},
	{"a health check, v1", "lb", "PROXY UNKNOWN\r\n", "", "", ""},
	{"a health check without a header", "lb", "", "", "", ""},
	{"none", "lb", foo, "", "proxy_header", ""},
	{"none before CONNECT", "lbvpn", ask("Reversed-VPN", destination("foo")), "", "proxy_header", ""},
	{"twice", "lb", "PROXY TCP4 203.0.113.7 192.0.2.1 4719 443\r\nPROXY TCP4 203.0.113.8 192.0.2.1 4719 443\r\n" + foo, "", "proxy_header", "203.0.113.7:4719"},
	{"v2 of UDP", "lb", v2 + "\x21\x12\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb" + foo, "", "proxy_header", ""},
	{"v2 with another version", "lb", v2 + "\x31\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb" + foo, "", "proxy_header", ""},
	{"v2 with addresses cut short", "lb", v2 + "\x21\x11\x00\x04\xcb\x00\x71\x07" + foo, "", "proxy_header", ""},
	{"v2 too long", "lb", v2 + "\x21\x11\xff\xff" + foo, "", "proxy_header", ""},
	{"v1 too long", "lb", "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n" + foo, "", "proxy_header", ""},
	{"v1 with a name", "lb", "PROXY TCP4 localhost 192.0.2.1 4711 443\r\n" + foo, "", "proxy_header", ""},
	{"v1 in lower case", "lb", "proxy tcp4 203.0.113.7 192.0.2.1 4711 443\r\n" + foo, "", "proxy_header", ""},
	{"v1 from elsewhere", "tls", "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n" + foo, "", "proxy_header", ""},
	{"v2 from elsewhere", "tls", v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb" + foo, "", "proxy_header", ""},
	{"v1 from elsewhere to CONNECT", "vpn", "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n" + ask("Reversed-VPN", destination("foo")), "", "proxy_header", ""},
	{"v2 from elsewhere, IPv6", "tls6", v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb" + foo, "", "proxy_header", ""},
}

// slowAttacks send no more, and do not go away either: each ends when its time is over.
var slowAttacks = []attack{
	{"nothing", "tls", "", decodeError, "request_malformed", ""},
	{"half a ClientHello", "tls", foo[:40], decodeError, "request_malformed", ""},
	{"half a CONNECT", "vpn", ask("Reversed-VPN", destination("foo"))[:40], "request_malformed", "request_malformed", ""},
	{"half a PROXY header", "lb", "PROXY TCP4 203.0.113.7", decodeError, "request_malformed", ""},
	{"a PROXY header and nothing more", "lb", "PROXY TCP4 203.0.113.7 192.0.2.1 4720 443\r\n", decodeError, "request_malformed", "203.0.113.7:4720"},
}

// TestAttacks: each row is one connection to a running edge, with its answer and its record.
func TestAttacks(t *testing.T) {
	for name, rows := range map[string][]attack{"TLS": tlsAttacks, "CONNECT": connectAttacks, "PROXY": proxyAttacks, "slow": slowAttacks} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, "  - {name: all, clusters: [foo], flows: [api, vpn, proxy], sources: [127.0.0.0/8, '::1', 203.0.113.0/24, '2001:db8::/32'], allow: ['*']}\n"+
				"  - {name: few, clusters: [foo-bar], flows: [api, vpn, proxy], sources: [198.51.100.1], allow: ['*']}\n", `
listeners:
- {name: tls, listen: '127.0.0.1:0', protocol: tls, proxyProtocol: {from: [192.0.2.1]}}
- {name: tls6, listen: '[::1]:0', protocol: tls}
- {name: vpn, listen: '127.0.0.1:0', protocol: connect, proxyProtocol: {from: [192.0.2.1]}}
- {name: vpn6, listen: '[::1]:0', protocol: connect}
- {name: lb, listen: '127.0.0.1:0', protocol: tls, proxyProtocol: {from: [127.0.0.0/8]}}
- {name: lbvpn, listen: '127.0.0.1:0', protocol: connect, proxyProtocol: {from: [127.0.0.0/8]}}
`)
			for _, cluster := range []string{"foo", "foo-bar"} {
				at := says(t, cluster)
				f.tenant(cluster, strings.NewReplacer("NAME", cluster, "AT", at).Replace(
					`  - {flow: api, names: [api.NAME.example.org, kubernetes.NAME.internal, "*.apps.NAME.example.org"], upstreams: ['AT']}
  - {flow: vpn, destinations: ['outbound|1194||vpn-seed-server.shoot--p--NAME.svc.cluster.local'], upstreams: ['AT']}
  - {flow: proxy, destinations: ['outbound|443||kube-apiserver.shoot--p--NAME.svc.cluster.local', shoot--p--NAME--kube-apiserver-socket], upstreams: ['AT']}
`))
			}
			sources, answers := make([]string, len(rows)), make([]string, len(rows))
			var all sync.WaitGroup
			for i, row := range rows {
				all.Go(func() { sources[i], answers[i] = visit(t, f.ports[row.port], i, row.send, name != "slow") })
			}
			all.Wait()
			records := map[string]audit.Record{}
			for _, r := range f.audited() {
				if r.Count > 0 {
					t.Errorf("a record is a sum: %+v", r)
				}
				records[r.Source] = r
			}
			for i, row := range rows {
				if !strings.Contains(answers[i], row.want) || row.want == "" && answers[i] != "" {
					t.Errorf("%s: answered %.200q, want %q", row.name, answers[i], row.want)
				}
				source, cluster := sources[i], row.is
				if strings.Contains(row.is, ":") {
					source, cluster = row.is, ""
				}
				r, there := records[source]
				if there != (row.code != "") || r.Code != row.code || cluster != "" && r.Cluster != cluster || there && r.Frontend != row.port {
					t.Errorf("%s: from %s the record %+v, want %s of %s", row.name, source, r, row.code, row.is)
				}
				if refused := there && row.code != "ok"; refused != (r.Kind == audit.KindRefusal) || refused && r.Reason == "" {
					t.Errorf("%s: %+v", row.name, r)
				}
			}
		})
	}
}

// says is an upstream that answers with a word.
func says(t *testing.T, word string) string {
	t.Helper()
	return upstream(t, func(c net.Conn) {
		io.WriteString(c, word)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
	})
}

// visit sends from an address of its own, since a source has few records of its own, and reads to the end.
func visit(t *testing.T, port string, i int, send string, ends bool) (source, answer string) {
	d := net.Dialer{}
	if strings.HasPrefix(port, "127.") {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 9, 0, byte(i+1))}
	}
	c, err := d.DialContext(t.Context(), "tcp", port)
	if err != nil {
		t.Error(err)
		return "", ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, send)
	if ends {
		c.(*net.TCPConn).CloseWrite()
	}
	b, _ := io.ReadAll(c)
	return c.LocalAddr().String(), string(b)
}
