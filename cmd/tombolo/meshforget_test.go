// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

// TestTheAPIServerIsNeeded: by its address, where that stands in the kubeconfig.
func TestTheAPIServerIsNeeded(t *testing.T) {
	for server, want := range map[string]string{"https://192.0.2.9:6443": "192.0.2.9", "https://[2001:db8::9]:6443": "2001:db8::9", "https://api.example.com:6443": "", "https://127.0.0.1:6443": ""} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
			"clusters: [{name: k, cluster: {server: '" + server + "'}}]\nusers: [{name: u, user: {token: t}}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := apiServers(&discoveryclient.Kubernetes{Kubeconfig: file})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Addr != netip.MustParseAddr(want) || !strings.Contains(got[0].What, "the API server")) {
			t.Errorf("%s: %v, want %q", server, got, want)
		}
	}
	if got := apiServers(nil); got != nil {
		t.Errorf("without Kubernetes: %v", got)
	}
	if got := apiServers(&discoveryclient.Kubernetes{Kubeconfig: "/nowhere"}); got != nil {
		t.Errorf("before there is a kubeconfig: %v", got)
	}
}

// TestClosedRangesAreShown: with since when, until when, and what opens them.
func TestClosedRangesAreShown(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	st := mesh.Status{Closed: []mesh.Closed{{Node: "n7", ID: "M7", Ranges: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16"), netip.MustParsePrefix("fd07::/64")}, Since: now.Add(-2 * time.Hour), Until: now.Add(time.Hour)}}}
	var b strings.Builder
	if err := printMesh(&b, st, false, now); err != nil || !strings.Contains(b.String(), "closed: 10.7.0.0/16, fd07::/64 of n7, of which, or of whose key, nothing is heard for 2h0m: lost until "+moment(now.Add(time.Hour))+", or 'tombolo mesh forget n7'") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, name := range []string{"", "n 7", "n7; reboot", "$(reboot)", "-x"} {
		st.Closed[0].Node = name
		b.Reset()
		if err := printMesh(&b, st, false, now); err != nil || !strings.Contains(b.String(), ", or 'tombolo mesh forget M7'") {
			t.Errorf("of a member that calls itself %q a shell reads more than one word: %v\n%s", name, err, b.String())
		}
	}
	wantExit(t, tombolo(t, "mesh", "forget"), 2, "NODE")
	wantExit(t, tombolo(t, "mesh", "forget", "n7", "--admin-socket", filepath.Join(t.TempDir(), "none.sock")), 3, "hint: ")
}
