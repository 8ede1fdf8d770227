// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// crowd connects n agents that show a token, with an id each.
func (p *proxy) crowd(n int, token string) {
	p.w.Helper()
	trust := p.w.clientTLS("agent")
	trust.ServerName, trust.NextProtos = "localhost", []string{konnectivity.ALPN}
	for i := range n {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.agentPort), trust)
		p.w.must(err)
		u, err := konnectivity.ConnectNative(p.w.Context(), conn, konnectivity.UpstreamOptions{
			Log: slog.New(slog.DiscardHandler), AgentID: fmt.Sprintf("crowd-%d", i), Token: token,
			Budget: carrier.NewBudget(1 << 20)})
		p.w.must(err)
		ended := make(chan error, 1)
		go func() { ended <- u.Serve() }()
		p.w.Cleanup(func() {
			u.Close()
			<-ended
		})
	}
	eventually(p.w, "they are connected", func() bool {
		return metric(p.healthPort, "konnectivity_network_proxy_server_ready_backend_connections") == fmt.Sprint(n)
	})
}

// TestACrowdOfANode: with the token of one node there are few agent ids. Whoever wants more is told so, in the server's
// log where it has no eyes for it, and those of other nodes are taken.
func TestACrowdOfANode(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.tokens(newAPI(w))
			const account, most = "system:serviceaccount:kube-system:konnectivity-agent", 16
			agent := func(id, node string) *agentOf {
				file := w.file("token-" + node)
				w.must(os.WriteFile(file, []byte(account+"@"+node), 0o600))
				return start(w, p.agentPort, "--service-account-token-path="+file, "--agent-id="+id,
					"--agent-cert=", "--agent-key=")
			}
			p.crowd(most, account+"@node-1")
			one := agent("one-more", "node-1")
			const why = "limit_reached: the agent's node has too many agents: 16 agent ids are connected as " +
				account + " on node-1"
			eventually(t, "the server says why it is refused", func() bool {
				return strings.Contains(p.log.String(), why)
			})
			if one.log != nil { // the reference's looks for the id of the server, and at nothing else
				eventually(t, "the agent says what to do", func() bool {
					return strings.Contains(one.log.String(), why+"; stop what")
				})
			}
			got := metric(p.healthPort, `tombolo_konnectivity_refused_agents_total{code="limit_reached"}`)
			if got == "0" || got == "" {
				t.Errorf("%q refusals are counted", got)
			}
			agent("other", "node-2")
			eventually(t, "an agent of another node is taken", func() bool {
				return metric(p.healthPort, "konnectivity_network_proxy_server_ready_backend_connections") == fmt.Sprint(most+1)
			})
		})
	}
}
