// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

func TestWhomARevocationNames(t *testing.T) {
	serial := strings.Repeat("0a", 16)
	for _, c := range []struct {
		role          id.Role
		word, cluster string
		want          admin.RevocationRequest // zero: wrong usage
	}{
		{id.RoleAgent, "c1/a1", "", admin.RevocationRequest{Cluster: "c1", Name: "a1"}},
		{id.RoleNode, "c1/n1.example.com", "c1", admin.RevocationRequest{Cluster: "c1", Name: "n1.example.com"}},
		{id.RoleClient, "kas", "c1", admin.RevocationRequest{Cluster: "c1", Name: "kas"}},
		{id.RoleAgent, serial, "", admin.RevocationRequest{Serial: serial}},
		{id.RoleNode, serial, "c1", admin.RevocationRequest{Cluster: "c1", Name: serial}},
		{id.RoleOperator, "alice", "", admin.RevocationRequest{Name: "alice"}},
		{id.RoleOperator, serial, "", admin.RevocationRequest{Serial: serial}},
		{id.RoleAgent, "a1", "", admin.RevocationRequest{}},
		{id.RoleAgent, "c1/a1", "c2", admin.RevocationRequest{}},
		{id.RoleOperator, "c1/alice", "", admin.RevocationRequest{}},
	} {
		got, err := revocation(c.role, c.word, c.cluster)
		if wrong := c.want == (admin.RevocationRequest{}); wrong != (err != nil) {
			t.Errorf("%s %q %q: %v", c.role, c.word, c.cluster, err)
		} else if c.want.Role = string(c.role); err == nil && got != c.want {
			t.Errorf("%s %q %q: %+v", c.role, c.word, c.cluster, got)
		}
	}
}

func TestRevokeVerbs(t *testing.T) {
	w := startWorld(t)
	file := filepath.Join(w.dir, "alice.pem")
	must(t, "certificate", "issue", "--role", "operator", "--name", "alice", "--out", file)
	remote := []string{"--hub", w.listen, "--operator", file}
	var st admin.Status
	strictly(t, must(t, "status", "-o", "json"), &st)
	name := "c1/" + st.Clusters[0].Agents[0].ID
	if out := must(t, append([]string{"__complete", "revoke", "agent"}, append(remote, "")...)...); !strings.HasPrefix(out, name+"\n") {
		t.Errorf("completion: %q", out)
	}
	wantExit(t, tombolo(t, "revoke", "agent", "c1/agent-nope"), 1, "not_found", "--unknown")
	var done admin.Revocation
	strictly(t, must(t, append([]string{"revoke", "agent", name, "-o", "json"}, remote...)...), &done)
	if done.Connections != 1 || done.Revoked.IsZero() || !strings.HasSuffix(done.Identity, "/"+strings.TrimPrefix(name, "c1/")) {
		t.Errorf("%+v", done)
	}
	if o := tombolo(t, "revoke", "agent", "c1/agent-lost", "--unknown"); o.code != 0 || !strings.Contains(o.err, "/agent-lost is revoked") {
		t.Errorf("after a restore: %+v", o)
	}
	if out := must(t, "status"); !strings.Contains(out, "REVOKED") || !strings.Contains(out, name) || !strings.Contains(out, "c1/agent-lost") {
		t.Errorf("status: %q", out)
	}
	if out := must(t, "__complete", "revoke", "agent", ""); strings.Contains(out, name) {
		t.Errorf("completion offers who is revoked: %q", out)
	}
	if o := tombolo(t, append([]string{"revoke", "operator", "alice"}, remote...)...); o.code != 0 || !strings.Contains(o.err, "/operator/alice is revoked") {
		t.Errorf("an operator that revokes itself: %+v", o)
	}
	wantExit(t, tombolo(t, append([]string{"status"}, remote...)...), 4, "certificate_revoked")
}
