// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"

// asDraft is the KEP's text.
const asDraft = `apiVersion: apiserver.k8s.io/v1alpha1
kind: EgressSelectorConfiguration
egressSelections:
- name: direct
  connection:
    type: direct
- name: master
  connection:
    type: grpc
    url: grpc://1.2.3.4:5678
    caBundle: file1.pem
    clientKeyFile: proxy-client1.key
    clientCertFile: proxy-client1.crt
- name: cluster
  connection:
    type: HTTP-Connect
    url: https://proxy.example:5679/
    clientKeyFile: proxy-client2.key
    clientCertFile: proxy-client2.crt
`

func TestGoodFiles(t *testing.T) {
	socket := route{protocol: protocolGRPC, transport: transportUDS, address: "/run/k.sock"}
	for name, c := range map[string]struct {
		text string
		want map[string]route
	}{
		"the draft": {asDraft, map[string]route{
			direct: {protocol: protocolDirect},
			ControlPlane: {protocol: protocolGRPC, transport: transportTCP, address: "1.2.3.4:5678", at: "egressSelections[1].connection",
				tls: tlsConfig{CABundle: "file1.pem", ClientKey: "proxy-client1.key", ClientCert: "proxy-client1.crt"}},
			Cluster: {protocol: protocolConnect, transport: transportTCP, address: "proxy.example:5679", at: "egressSelections[2].connection",
				tls: tlsConfig{ClientKey: "proxy-client2.key", ClientCert: "proxy-client2.crt"}},
		}},
		"the shipped form": {head + `- name: cluster
  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}
- name: Master
  connection: {proxyProtocol: Direct}
- name: etcd
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://[::1]:8131
        tlsConfig: {caBundle: ca, clientKey: key, clientCert: crt, tlsServerName: name}
`, map[string]route{Cluster: socket, ControlPlane: {protocol: protocolDirect},
			Etcd: {protocol: protocolConnect, transport: transportTCP, address: "[::1]:8131", at: "egressSelections[2].connection.transport.tcp.tlsConfig",
				tls: tlsConfig{CABundle: "ca", ClientKey: "key", ClientCert: "crt", TLSServerName: "name"}}}},
		"JSON": {`{"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "EgressSelectorConfiguration", "egressSelections": [
			{"name": "cluster", "connection": {"proxyProtocol": "GRPC", "transport": {"uds": {"udsName": "/run/k.sock"}}}}]}`,
			map[string]route{Cluster: socket}},
		"nothing": {strings.TrimSuffix(head, "egressSelections:\n"), map[string]route{}},
	} {
		got, doc := parse("f", []byte(c.text))
		if err := problems(doc); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestBadFiles(t *testing.T) {
	one := func(connection string) string { return head + "- name: cluster\n  connection: " + connection + "\n" }
	tcp := func(rest string) string { return one("{proxyProtocol: HTTPConnect, transport: {tcp: {" + rest + "}}}") }
	draft := func(connection string) string { return strings.Replace(one(connection), "v1beta1", "v1alpha1", 1) }
	for text, want := range map[string][]string{
		"": {"f:1:1: the file is empty"},
		"kind: X\napiVersion: apiserver.k8s.io/v1\n":                                   {"f:1:7: kind: ", "f:2:13: apiVersion: apiserver.k8s.io/v1beta1 or "},
		one("{proxyProtocol: grpc}"):                                                   {"f:5:31: egressSelections[0].connection.proxyProtocol: Direct, GRPC or HTTPConnect is expected, not \"grpc\""},
		one("{proxyProtocol: Direct, transport: {}}"):                                  {"f:5:50: egressSelections[0].connection.transport: Direct has no transport"},
		one("{proxyProtocol: GRPC}"):                                                   {"f:5:15: egressSelections[0].connection.transport: GRPC needs uds"},
		one("{proxyProtocol: GRPC, transport: {uds: {}}}"):                             {"f:5:54: egressSelections[0].connection.transport.uds.udsName: the path"},
		one("{proxyProtocol: GRPC, transport: {tcp: {url: 'https://a:1'}}}"):           {"connection.transport.tcp: kube-apiserver takes GRPC over uds alone"},
		one("{proxyProtocol: HTTPConnect, transport: {uds: {udsName: a}, tcp: {}}}"):   {"connection.transport.tcp: tcp and uds stand both"},
		one("{proxyProtocol: Direct, url: 'grpc://a:1'}"):                              {"connection.url: this is a field of the draft"},
		one("{proxyProtocol: GRPC, transprot: {}}"):                                    {"connection.transprot: unknown key; did you mean transport?", "connection.transport: GRPC needs"},
		one("{type: direct}"):                                                          {"connection.type: this is a field of the draft, which is apiserver.k8s.io/v1alpha1"},
		tcp("url: 'https://a:1'"):                                                      {"tcp.tlsConfig: https needs a client certificate"},
		tcp("url: 'http://a:1'"):                                                       {"tcp.tlsConfig: https needs", "tcp.url: http is not dialled"},
		tcp("url: 'https://a', tlsConfig: {clientCert: c, clientKey: k}"):              {"tcp.url: https://HOST:PORT is expected, with a port"},
		tcp("url: 'https://a:1/x', tlsConfig: {clientCert: c, clientKey: k}"):          {"tcp.url: https://HOST:PORT is expected"},
		tcp("url: 'grpc://a:1', tlsConfig: {clientKey: k}"):                            {"tcp.tlsConfig.clientCert: ", "tcp.url: https://HOST:PORT is expected"},
		draft("{type: socks}"):                                                         {"connection.type: direct, grpc or http-connect is expected"},
		draft("{type: direct, url: 'grpc://a:1'}"):                                     {"connection.url: direct has no url"},
		draft("{type: grpc, url: 'grpc://a:1', proxyProtocol: GRPC}"):                  {"connection.clientCertFile: ", "connection.clientKeyFile: ", "connection.type: type is the draft's form"},
		draft("{type: grpc, url: 'https://a:1', clientCertFile: c, clientKeyFile: k}"): {"connection.url: grpc://HOST:PORT is expected"},
		head + "- name: clustre\n  connection: {proxyProtocol: Direct}\n":              {"f:4:9: egressSelections[0].name: there is no network \"clustre\"; did you mean cluster? known are"},
		head + "- name: direct\n  connection: {proxyProtocol: Direct}\n":               {"there is no network \"direct\": known are"},
		head + "- name: master\n  connection: {proxyProtocol: Direct}\n- name: ControlPlane\n  connection: {proxyProtocol: Direct}\n": {"f:6:9: egressSelections[1].name: the network controlplane stands twice"},
	} {
		_, doc := parse("f", []byte(text))
		var got []string
		for _, p := range doc.Problems() {
			got = append(got, p.String())
		}
		if len(got) != len(want) || slices.ContainsFunc(want, func(w string) bool {
			return !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) })
		}) {
			t.Errorf("%s\n%s", text, strings.Join(got, "\n"))
		}
		if err := problems(doc); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%v", err)
		}
	}
}

// TestFilesThatAreNotThere are told with the line that names them.
func TestFilesThatAreNotThere(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "config_invalid") {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(asDraft), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	for _, want := range []string{file + ":9:5: egressSelections[1].connection: ", "proxy-client1.crt", ":16:5: egressSelections[2].connection: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// FuzzParse: what is taken can be dialled, and says where.
func FuzzParse(f *testing.F) {
	f.Add([]byte(asDraft))
	f.Add([]byte(head + "- name: cluster\n  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}\n"))
	f.Add([]byte(head + "- name: cluster\n  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a:1', tlsConfig: {clientCert: c, clientKey: k}}}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		routes, doc := parse("f", data)
		if problems(doc) != nil {
			return
		}
		for network, r := range routes {
			fine := networkOf(network) == network
			switch r.protocol {
			case protocolDirect:
				fine = fine && r == route{protocol: protocolDirect}
			case protocolGRPC, protocolConnect:
				fine = fine && r.address != "" && (r.transport == transportUDS || r.transport == transportTCP && r.tls.ClientCert != "" && r.tls.ClientKey != "")
			default:
				fine = false
			}
			if !fine {
				t.Errorf("%q: %+v", network, r)
			}
		}
	})
}
