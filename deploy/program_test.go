// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// buildProgram builds the program that units and manifests start.
func buildProgram(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tombolo")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../cmd/tombolo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

// TestTheProgramHasTheFlags asks the program for its flags and looks for each
// that a unit or a manifest gives.
func TestTheProgramHasTheFlags(t *testing.T) {
	program := buildProgram(t)
	for where, args := range commandLines(t) {
		help, err := exec.CommandContext(t.Context(), program, args[0], "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("tombolo %s --help: %v\n%s", args[0], err, help)
		}
		known := strings.FieldsFunc(string(help), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '=' })
		for _, arg := range args[1:] {
			if strings.HasPrefix(arg, "--") && !slices.Contains(known, arg) {
				t.Errorf("%s: tombolo %s has no %s", where, args[0], arg)
			}
		}
	}
}

// commandLines are those of the units and of the manifests, role first.
func commandLines(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, name := range units() {
		line := strings.Fields(readUnit(t, name).one(t, "Service.ExecStart"))
		if line[0] != "/usr/local/bin/tombolo" {
			t.Errorf("%s starts %s", name, line[0])
		}
		out[name] = line[1:]
	}
	agent, hub := manifests(t)
	for where, data := range map[string][]byte{"agent manifest": agent, "hub manifest": hub} {
		for _, doc := range documents(t, data) {
			if len(doc.Spec.Template.Spec.Containers) == 1 {
				out[where] = doc.Spec.Template.Spec.Containers[0].Args
			}
		}
	}
	if len(out) != 5 {
		t.Fatalf("only %d of 5 command lines found: %v", len(out), out)
	}
	return out
}

// TestTheProgramTakesTheHubsConfiguration gives the ConfigMap's file to the
// program's own check, and a spoilt one that it must refuse.
func TestTheProgramTakesTheHubsConfiguration(t *testing.T) {
	program := buildProgram(t)
	_, hub := manifests(t)
	config := ""
	for _, doc := range documents(t, hub) {
		config += doc.Data["hub.yaml"]
	}
	for text, want := range map[string]bool{config: true, config + "nonsense: 1\n": false} {
		file := filepath.Join(t.TempDir(), "hub.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "config", "validate", file).CombinedOutput()
		if (err == nil) != want {
			t.Errorf("config validate says %v, want accepted %v:\n%s\n%s", err, want, out, text)
		}
	}
}

func manifests(t *testing.T) (agent, hub []byte) {
	t.Helper()
	a := manifest.AgentDefaults()
	a.Image, a.Allow = "tombolo.local/tombolo:dev", []string{"10.96.0.0/12"}
	a.Join = "tombolo://abcdefgh.abcdefghijklmnopqrstuvwxyz234567@hub.example.com:8443/c1/" + strings.Repeat("x", 43)
	agent, err := manifest.Agent(a)
	if err != nil {
		t.Fatal(err)
	}
	h := manifest.HubDefaults()
	h.Image, h.Advertise, h.Clusters = a.Image, []string{"hub.example.com:8443"}, []string{"c1"}
	h.SocketProtocols = []string{"konnectivity", "connect"}
	if hub, err = manifest.Hub(h); err != nil {
		t.Fatal(err)
	}
	return agent, hub
}

// document is what these tests read of an object.
type document struct {
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct{ Args []string }
			}
		}
	}
}

func documents(t *testing.T, data []byte) (out []document) {
	t.Helper()
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc document
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, doc)
	}
}
