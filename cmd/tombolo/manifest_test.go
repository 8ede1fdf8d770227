// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const (
	manifestSecret = "bcdefghijklmnopqrstuvwxyz234567a"
	manifestJoin   = "tombolo://abcdefgh." + manifestSecret + "@hub.example.com:8443/c1/0123456789012345678901234567890123456789010"
)

// runManifest runs a command as the shell would, quietly.
func runManifest(cmd *cobra.Command, stdin string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestAgentManifestTakesTheJoinLineThreeWays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "join")
	if err := os.WriteFile(file, []byte(manifestJoin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{"--image", "tombolo.local/tombolo:dev", "--cluster", "c1", "--allow", "10.96.0.0/12"}
	var first string
	for _, join := range []string{manifestJoin, "@" + file, "-"} {
		out, err := runManifest(newAgentManifestCommand(), manifestJoin+"\n", append(common, "--join", join)...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "join: "+manifestJoin+"\n") {
			t.Errorf("the Secret does not hold the line:\n%s", out)
		}
		if first != "" && out != first {
			t.Error("the three ways differ")
		}
		first = out
	}
}

func TestAgentManifestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "--join: is missing"},
		{"no such file", []string{"--join", "@/no/such/file"}, "no such file"},
		{"damaged line", []string{"--join", strings.Replace(manifestJoin, "/c1/", "/", 1)}, "/<cluster>/<pin>"},
		{"damaged pin", []string{"--join", manifestJoin + "x"}, "pin"},
		{"foreign line", []string{"--join", manifestJoin, "--cluster", "c2", "--image", "a", "--allow", "10.0.0.0/8"}, `for cluster "c1"`},
		{"bad rule", []string{"--join", manifestJoin, "--image", "a", "--allow", "10.0.0.0/99"}, `--allow "10.0.0.0/99"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := runManifest(newAgentManifestCommand(), "", tc.args...)
			if err == nil {
				t.Fatalf("accepted:\n%s", out)
			}
			text := fault.From(err).Explain()
			if !strings.Contains(text, tc.want) {
				t.Errorf("%q does not contain %q", text, tc.want)
			}
			if strings.Contains(text+out, manifestSecret) {
				t.Errorf("the secret is shown: %q %q", text, out)
			}
		})
	}
}

func TestHubManifest(t *testing.T) {
	out, err := runManifest(newHubManifestCommand(), "", "--image", "tombolo.local/tombolo:dev",
		"--advertise", "hub.example.com:8443", "--cluster", "c1", "--socket", "connect")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: StatefulSet", "kind: HubConfig", "- protocol: connect", "- hub.example.com:8443"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if _, err := runManifest(newHubManifestCommand(), ""); !fault.Has(err, fault.CodeUsage) {
		t.Errorf("without options: %v", err)
	}
}
