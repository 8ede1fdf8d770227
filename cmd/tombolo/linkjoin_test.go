// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

func TestWhatIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"link token", "takes 1 argument"},
		{"link token west --expires 5m", "not between 10m and 24h"},
		{"link token west --expires 48h", "not between 10m and 24h"},
		{"link token West.x", "no name of a Cluster"},
		{"link join", "takes 1 argument"},
		{"link join west", "--image is missing"},
		{"link join tombolo-link://v1/x --image a/b", "join_line_invalid"},
		{"link join @/nowhere --image a/b", "cannot be read"},
		{"link join west --image a/b --network-type star", "none of p2p, gateway"},
		{"link join west --image a/b --map 10.0.0.0/8", "CIDR=CIDR"},
		{"link join west --image a/b --server 127.0.0.1:6443", "no URL of an API server"},
		{"link unjoin west --host --host-kubeconfig x", "exclude each other"},
		{"link list west", "no arguments"},
	} {
		var out, bad bytes.Buffer
		code := execute(t.Context(), strings.Fields(c.args), strings.NewReader(""), &out, &bad)
		if code != 2 || !strings.Contains(bad.String(), c.want) {
			t.Errorf("%s: %d, %s", c.args, code, bad.String())
		}
	}
}

func TestTheObjectsOfAJoin(t *testing.T) {
	j := linkJoin{image: "a/b", order: invite.JoinOrder{Namespace: "x", Cluster: "west"}, accept: []string{"10.0.0.0/8"}}
	text, err := j.objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kind: DaemonSet", "secretName: tombolo-link-host", "secretName: tombolo-mesh-secret",
		"hostKubeconfig: " + manifest.LinkHostFile, "linked:\n", "10.0.0.0/8"} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q", part)
		}
	}
	_, config, _ := strings.Cut(text, "  controller.yaml: |\n")
	config, _, _ = strings.Cut(config, "\n---")
	c, err := controlconf.Parse("controller.yaml", []byte(strings.ReplaceAll(config, "\n    ", "\n")[4:]))
	if err != nil || c.Links.Cluster != "west" || c.Links.HostKubeconfig != manifest.LinkHostFile ||
		c.Name != manifest.LinkController {
		t.Errorf("%+v, %v", c, err)
	}
	j.noMesh = true
	if text, err = j.objects(); err != nil || strings.Contains(text, "kind: DaemonSet") {
		t.Errorf("there is a DaemonSet: %v", err)
	}
}

func TestPrintLinks(t *testing.T) {
	var out bytes.Buffer
	if err := printLinks(&out, invite.List{}); err != nil || !strings.Contains(out.String(), "no cluster is linked yet") {
		t.Errorf("%s, %v", out.String(), err)
	}
	out.Reset()
	if err := printLinks(&out, invite.List{
		Clusters: []invite.Listed{{Name: "east", NetworkType: "gateway", Ready: true, Nodes: invite.Count{Up: 2, Of: 3},
			Tunnels: invite.Count{Up: 4, Of: 6}, Gateways: []string{"a", "b"}, Problems: []string{"nodes are not ready: c"},
			Ranges: []string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "10.5.0.0/16"}}, {Name: "west"}},
		Pending: []invite.Pending{{Cluster: "west", Expires: "T1"}, {Cluster: "x", Expires: "T2", Expired: true}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"east     yes    gateway  2/3    4/6      a,b", "10.4.0.0/16 and 1 more", "west     no",
		"east: nodes are not ready: c", "west: a join line was not used yet, and can be used until T1", "x: a join line was not",
		"expired at T2"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("there is no %q in\n%s", part, out.String())
		}
	}
}
