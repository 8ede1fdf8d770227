// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestAsReference is what a link to the program runs.
func TestAsReference(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"tombolo", "--v=4"}, {"/usr/local/bin/tombolo", "--v=4"}, {"proxy-server", "konnectivity-server --v=4"},
		{"/proxy-server", "konnectivity-server --v=4"}, {"/usr/bin/proxy-agent", "konnectivity-agent --v=4"},
		{"/var/lib/k0s/bin/konnectivity-server", "konnectivity-server --v=4"},
		{"konnectivity-agent", "konnectivity-agent --v=4"}, {"./proxy-agent-2", "--v=4"},
	} {
		if got := asReference(c.name, []string{"--v=4"}); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s runs with %q", c.name, got)
		}
	}
}

// TestKonnectivityRefusals are command lines that say what is missing.
func TestKonnectivityRefusals(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"konnectivity-server", "--server-cert"},
		{"konnectivity-server --uds-name=/run/x", "--server-port=0"},
		{"konnectivity-server --uds-name=/run/x --server-port=0", "--cluster-cert"},
		{"konnectivity-server --mode=other", "--mode"},
		{"konnectivity-server --uds-name=/run/x --server-port=0 --cluster-cert=/missing --cluster-key=/missing", "/missing"},
		{"konnectivity-server --uds-name=/run/x --server-port=0 --cluster-cert=c --cluster-key=k --proxy-strategies=near",
			"--proxy-strategies"},
		{"konnectivity-server --uds-name=/run/x --server-port=0 --cluster-cert=c --cluster-key=k --agent-namespace=n",
			"--agent-service-account"},
		{"konnectivity-agent --ca-cert=/missing", "/missing"},
		{"konnectivity-agent --agent-cert=c", "--agent-key"},
		{"konnectivity-agent --agent-identifiers=zone=a", "--agent-identifiers"},
		{"konnectivity-agent --sync-interval=1m", "--sync-interval-cap"},
	} {
		var out, errs strings.Builder
		code := execute(t.Context(), strings.Fields(c.line), strings.NewReader(""), &out, &errs)
		if code != 2 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit %d\n%s", c.line, code, errs.String())
		}
	}
}

// TestKonnectivityIDs are by default those of the environment.
func TestKonnectivityIDs(t *testing.T) {
	t.Setenv("PROXY_SERVER_ID", "server-1")
	t.Setenv("PROXY_AGENT_ID", "agent-1")
	if got := newKonnectivityServerCommand().Flags().Lookup("server-id").Value.String(); got != "server-1" {
		t.Errorf("the server is %q", got)
	}
	if got := newKonnectivityAgentCommand().Flags().Lookup("agent-id").Value.String(); got != "agent-1" {
		t.Errorf("the agent is %q", got)
	}
}
