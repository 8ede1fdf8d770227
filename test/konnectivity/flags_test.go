// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// TestTLSFlags shakes hands with both ports of servers with a policy.
func TestTLSFlags(t *testing.T) {
	t.Parallel()
	const weaker, stronger = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	type offer struct {
		most   uint16
		suites []uint16
		suite  uint16 // that is agreed on
		taken  bool
	}
	for flag, offers := range map[string][]offer{
		"--tls-min-version=":             {{most: tls.VersionTLS11}, {most: tls.VersionTLS12, taken: true}},
		"--tls-min-version=VersionTLS11": {{most: tls.VersionTLS10}, {most: tls.VersionTLS11, taken: true}},
		"--tls-min-version=VersionTLS13": {{most: tls.VersionTLS12}, {most: tls.VersionTLS13, taken: true}},
		"--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": {
			{most: tls.VersionTLS12, suites: []uint16{weaker}},
			{most: tls.VersionTLS12, suites: []uint16{weaker, stronger}, suite: stronger, taken: true},
			{most: tls.VersionTLS13, taken: true}, // it has its own
		},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours("http-connect", true, flag)
			ourAgent(w, p.agentPort)
			p.ready() // callers wait for the first agent
			for port, of := range map[int]string{p.serverPort: "--server-port", p.agentPort: "--agent-port"} {
				for _, o := range offers {
					c := w.clientTLS("client")
					c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, o.most, o.suites
					c.NextProtos = []string{"h2", "http/1.1"}
					conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), c)
					// Agents speak HTTP/2, for which gRPC takes no suite of an older TLS, whatever the least version is.
					taken := o.taken && (port == p.serverPort || o.most >= tls.VersionTLS12)
					if (err == nil) != taken {
						t.Errorf("%s with %+v: %v", of, o, err)
					}
					if err != nil {
						continue
					}
					if got := conn.ConnectionState(); got.Version != o.most || o.suite != 0 && got.CipherSuite != o.suite {
						t.Errorf("%s with %+v: agreed on %x with %x", of, o, got.Version, got.CipherSuite)
					}
					conn.Close()
				}
			}
		})
	}
}

// TestALPNFlag is what an agent offers to a server, or to what routes by it in front of servers.
func TestALPNFlag(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"one two three " + konnectivity.ALPN + " h2": {"--alpn-proto=one", "--alpn-proto=two,three"},
		"one h2":                  {"--alpn-proto=one", "--native=false"},
		konnectivity.ALPN + " h2": {"--alpn-proto="},
	} {
		w := newWorld(t)
		offered := make(chan string, 1)
		c := w.clientTLS("server")
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			select {
			case offered <- strings.Join(hello.SupportedProtos, " "):
			default:
			}
			return nil, errors.New("that is all")
		}
		s := runtest.Serve(w, func(conn *net.TCPConn) {
			if err := tls.Server(conn, c).Handshake(); err != nil {
				conn.Close()
			}
		})
		_, text, err := net.SplitHostPort(s.Addr())
		w.must(err)
		port, err := strconv.Atoi(text)
		w.must(err)
		ourAgent(w, port, flags...)
		if got := <-offered; got != want {
			t.Errorf("%q: %q is offered, not %q", flags, got, want)
		}
	}
}

// TestLeaseFlags: a lease has the labels and is in the namespace that were given, and is looked for there by them.
func TestLeaseFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(w)
	kubeconfig := "--kubeconfig=" + a.kubeconfig
	p := w.ours("grpc", false, "--enable-lease-controller", kubeconfig, "--server-id=one", "--lease-namespace=here",
		"--lease-label=app=servers,tier=front")
	ourAgent(w, p.agentPort, "--count-server-leases", kubeconfig, "--lease-namespace=there", "--lease-label=app=servers")
	ourAgent(w, p.agentPort, "--count-server-leases", kubeconfig, "--lease-label-selector=tier=front")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/%s/leases %s"
	for _, list := range []string{fmt.Sprintf(leases, "here", "app=servers,tier=front"), fmt.Sprintf(leases, "there", "app=servers"),
		fmt.Sprintf(leases, "kube-system", "tier=front")} {
		eventually(t, list, func() (asked bool) {
			a.set(func() { asked = a.lists[list] })
			return asked
		})
	}
	a.set(func() {
		meta := object(a.leases["konnectivity-proxy-server-one"], "metadata")
		if got := fmt.Sprintln(meta["namespace"], meta["labels"]); got != "here map[app:servers tier:front]\n" {
			t.Errorf("the lease is in %s", got)
		}
	})
}

// TestLeaseCodes: metrics of calls for leases have the code of the answer, as the reference's.
func TestLeaseCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(w)
	a.denied = true
	kubeconfig := "--kubeconfig=" + a.kubeconfig
	p := w.ours("grpc", false, "--enable-lease-controller", kubeconfig)
	agent := ourAgent(w, p.agentPort, "--count-server-leases", kubeconfig)
	for series, port := range map[string]int{
		`server_lease_list_total{http_status_code="403",reason="kubernetes_denied"}`:   p.healthPort,
		`server_lease_list_latency_seconds_count{http_status_code="403"}`:              p.healthPort,
		`agent_lease_lists_total{http_response_code="403",reason="kubernetes_denied"}`: agent.health,
		`agent_lease_list_latency_seconds_count{http_response_code="403"}`:             agent.health,
	} {
		eventually(t, series, func() bool { return metric(port, "konnectivity_network_proxy_"+series) != "" })
	}
}
