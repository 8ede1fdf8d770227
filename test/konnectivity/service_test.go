// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strings"
	"testing"
)

// TestService finds servers by the EndpointSlices of a Service: each endpoint is one that the agent wants, whatever the
// servers say about their number.
func TestService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(w)
	servers := []*proxy{w.ours("grpc", false), w.theirs("http-connect", false)}
	var slices []any
	for _, p := range servers {
		slices = append(slices, map[string]any{"addressType": "IPv4",
			"endpoints": []any{map[string]any{"addresses": []string{"127.0.0.1"}, "conditions": map[string]any{"ready": true}},
				map[string]any{"addresses": []string{"192.0.2.1"}, "conditions": map[string]any{"ready": false}}},
			"ports": []any{map[string]any{"name": "agents", "port": p.agentPort}}})
	}
	a.mu.Lock()
	a.slices = slices
	a.mu.Unlock()
	agent := ourAgent(w, 1, "--proxy-server-service=test/servers:agents", "--kubeconfig="+a.kubeconfig)
	for _, p := range servers {
		p.ready()
		w.echo(p)
	}
	agent.ready()
	if _, body := get(agent.health, "/readyz?verbose"); !strings.Contains(body, "servers: 2 of 2") {
		t.Errorf("the agent says %q", body)
	}
}
