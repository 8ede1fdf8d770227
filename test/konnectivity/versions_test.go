// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// TestOlderVersions dials through fleets with v0.34.0 of the reference.
func TestOlderVersions(t *testing.T) {
	t.Parallel()
	for _, f := range []fleet{
		{"their old agent, our server", (*world).ours, theirOldAgent},
		{"our agent, their old server", (*world).theirOld, ourAgent},
	} {
		for _, mode := range []string{"grpc", "http-connect"} {
			t.Run(f.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				w, p := started(t, f, mode)
				echo := runtest.Echo(w)
				for range 3 {
					echoes(w, p.mustDial(echo.Addr()), 100_000)
				}
				if _, err := p.dial(runtest.Within(t), fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0])); err == nil {
					t.Error("a port where nobody listens was reached")
				}
			})
		}
	}
}

// TestKubeAPIServersOwnDialer dials with kube-apiserver's own package, which has v0.31.2 of the client.
func TestKubeAPIServersOwnDialer(t *testing.T) {
	t.Parallel()
	frontend := built(t, tools.Frontend)
	for name, agent := range map[string]startAgent{"our agent": ourAgent, "their agent": theirAgent} {
		for _, c := range []struct {
			mode string
			tcp  bool
		}{{"grpc", false}, {"http-connect", false}, {"http-connect", true}} { // it has no gRPC over TCP
			t.Run(fmt.Sprintf("%s, %s, tcp %v", name, c.mode, c.tcp), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				p := w.ours(c.mode, c.tcp)
				agent(w, p.agentPort)
				p.ready()
				config := w.file("egress.yaml")
				w.must(os.WriteFile(config, []byte(p.egressConfig()), 0o600))
				nobody := fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0])
				out, err := exec.CommandContext(t.Context(), frontend, config, runtest.Echo(w).Addr(), nobody).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// egressConfig is an EgressSelectorConfiguration that leads to the server.
func (p *proxy) egressConfig() string {
	protocol := map[string]string{"grpc": "GRPC", "http-connect": "HTTPConnect"}[p.mode]
	transport := fmt.Sprintf("uds: {udsName: %q}", p.socket)
	if p.socket == "" {
		transport = fmt.Sprintf("tcp: {url: \"https://127.0.0.1:%d\", tlsConfig: {caBundle: %q, clientCert: %q, clientKey: %q}}",
			p.serverPort, p.w.file("ca.crt"), p.w.file("client.crt"), p.w.file("client.key"))
	}
	return fmt.Sprintf("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"+
		"- name: cluster\n  connection: {proxyProtocol: %s, transport: {%s}}\n", protocol, transport)
}
