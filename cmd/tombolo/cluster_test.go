// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

func TestClusterVerbs(t *testing.T) {
	startWorld(t) // with an agent of c1
	o := tombolo(t, "token", "create", "--cluster", "pord")
	if o.code != 0 || !strings.Contains(o.err, "Cluster pord is new at this hub") || !strings.Contains(o.err, "tombolo cluster remove pord --force") {
		t.Errorf("%+v", o)
	}
	if o := tombolo(t, "token", "create", "--cluster", "pord"); strings.Contains(o.err, "is new") {
		t.Errorf("it is new twice: %q", o.err)
	}
	var token admin.Token
	strictly(t, must(t, "token", "create", "--cluster", "prod", "-o", "json"), &token)
	if !token.NewCluster {
		t.Errorf("%+v", token)
	}
	if out := must(t, "cluster", "list"); !strings.Contains(out, "pord") || !strings.Contains(out, "c1") {
		t.Errorf("%q", out)
	}
	var list admin.ClusterList
	strictly(t, must(t, "cluster", "list", "-o", "json"), &list)
	if len(list.Clusters) != 3 || list.Clusters[0].Name != "c1" || list.Clusters[0].Agents != 1 || list.Clusters[1].Tokens != 2 || list.Clusters[1].Created.IsZero() {
		t.Errorf("%+v", list)
	}
	if out := must(t, "__complete", "cluster", "remove", ""); !strings.HasPrefix(out, "c1\npord\nprod\n") {
		t.Errorf("completion: %q", out)
	}
	wantExit(t, tombolo(t, "cluster", "remove", "pord"), 1, "cluster_in_use", "tokens that can be used: 2", "--force")
	wantExit(t, tombolo(t, "cluster", "remove", "c1"), 1, "cluster_in_use", "agents connected: 1")
	wantExit(t, tombolo(t, "cluster", "remove", "nope"), 1, "cluster_unknown")
	if o := tombolo(t, "cluster", "remove", "pord", "--force"); o.code != 0 || !strings.Contains(o.err, "with 0 agents, 0 nodes, 2 tokens") {
		t.Errorf("%+v", o)
	}
	var gone admin.ClusterRemoval
	strictly(t, must(t, "cluster", "remove", "c1", "--force", "-o", "json"), &gone)
	if gone.Agents != 1 || gone.Connections != 1 || len(gone.Warnings) > 0 {
		t.Errorf("%+v", gone)
	}
	if out := must(t, "status"); strings.Contains(out, "pord") || strings.Contains(out, "c1") {
		t.Errorf("%q", out)
	}
}
