// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestCrowded bounds the agents of one node, and those of a server: not those of a credential that all agents may have.
func TestCrowded(t *testing.T) {
	node, account := HolderOfToken("x", "node-1"), HolderOfToken("x", "")
	shared := holderOf(testCert(func(*x509.Certificate) {}))
	for name, c := range map[string]struct {
		of           Holder
		agent        string
		all          int
		ids, tunnels int
		want         string // of the fault; empty: it is taken
	}{
		"the first one":                            {node, "new", 0, 0, 0, ""},
		"the last id of a node":                    {node, "new", 0, nodeAgents - 1, nodeAgents - 1, ""},
		"one id too many for a node":               {node, "new", 0, nodeAgents, nodeAgents, "too many agents"},
		"a further tunnel of a full node's agent":  {node, "agent-0", 0, nodeAgents, nodeAgents, ""},
		"the last tunnel of a node":                {node, "agent-0", 0, nodeAgents, nodeTunnels - 1, ""},
		"one tunnel too many for a node":           {node, "agent-0", 0, nodeAgents, nodeTunnels, "too many tunnels"},
		"one agent with all tunnels of its node":   {node, "agent-0", 0, 1, nodeTunnels, "too many tunnels"},
		"an account that all agents have":          {account, "new", 5_000, 5_000, 5_000, ""},
		"a certificate that all agents have":       {shared, "new", 5_000, 5_000, 5_000, ""},
		"no credential":                            {Holder{}, "new", 5_000, 5_000, 5_000, ""},
		"the last tunnel of a server":              {shared, "new", mostTunnels - 1, 1, mostTunnels - 1, ""},
		"one tunnel too many for a server":         {shared, "new", mostTunnels, 1, mostTunnels, "takes no more"},
		"the same without a credential":            {Holder{}, "new", mostTunnels, 1, mostTunnels, "takes no more"},
		"the same of an agent that has its node":   {node, "new", mostTunnels, 0, 0, "takes no more"},
		"the same of an agent that has an account": {account, "new", mostTunnels, 0, 0, "takes no more"},
	} {
		h := &holding{ids: map[string]int{}, tunnels: c.tunnels}
		for i := range c.ids {
			h.ids[fmt.Sprintf("agent-%d", i)] = 1
		}
		f := crowded(agentIdentity{agent: c.agent, holder: c.of}, c.all, h)
		switch {
		case f == nil && c.want != "":
			t.Errorf("%s: it is taken", name)
		case f != nil && (c.want == "" || f.Code != fault.CodeLimit || !strings.Contains(f.Explain(), c.want) ||
			!strings.Contains(f.Explain(), "--keepalive-time")):
			t.Errorf("%s: %s", name, f.Explain())
		}
	}
}

// TestATunnelThatHasEnded is not dialled through: whoever learns of its end and dials again at once finds no agent.
func TestATunnelThatHasEnded(t *testing.T) {
	x := newTestTunnel(wirePair{})
	f, _ := x.link.open(1, "target:1")
	var again error
	f.onClosed(func() { _, again = x.agents.Dial(t.Context(), tcpDial("target:1")) })
	x.end(fault.New(fault.CodeSessionLost, "over"))
	if !fault.Has(again, fault.CodeNoAgent) {
		t.Errorf("the next dial ends with %v", again)
	}
}

// TestANodesAgents are counted while they have a tunnel, each node's on its own.
func TestANodesAgents(t *testing.T) {
	a := NewAgents(AgentsOptions{})
	attach := func(agent, node string) (*tunnel, error) {
		return a.attach(agentIdentity{agent: agent, holder: HolderOfToken("x", node)}, nil)
	}
	var all []*tunnel
	for i := range nodeAgents {
		for range nodeTunnels / nodeAgents {
			x, err := attach(fmt.Sprint(i), "node-1")
			if err != nil {
				t.Fatalf("agent %d: %v", i, err)
			}
			all = append(all, x)
		}
	}
	require := func(what, agent, node string, taken bool) {
		t.Helper()
		x, err := attach(agent, node)
		if (err == nil) != taken || err != nil && !fault.Has(err, fault.CodeLimit) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			a.detach(x)
		}
	}
	require("a further agent", "new", "node-1", false)
	require("a further tunnel", "0", "node-1", false)
	require("an agent of another node", "new", "node-2", true)
	require("an agent of no node", "new", "", true)
	for _, x := range all[:4] {
		require("while the first agent has a tunnel", "new", "node-1", false)
		a.detach(x)
	}
	require("once the first agent has none", "new", "node-1", true)
	for _, x := range all[4:] {
		a.detach(x)
	}
	if len(a.tunnels)+len(a.ids)+len(a.holders) != 0 {
		t.Errorf("%d tunnels, %d ids and %d holders stay", len(a.tunnels), len(a.ids), len(a.holders))
	}
}
