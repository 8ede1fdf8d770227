// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// TestTheProgram asks the program for what units and manifests rely on.
func TestTheProgram(t *testing.T) {
	program := runtest.Program(t)
	t.Run("has the flags", func(t *testing.T) { programHasTheFlags(t, program) })
	t.Run("takes the configurations", func(t *testing.T) { programTakesTheConfigurations(t, program) })
	t.Run("prints the members' manifest", func(t *testing.T) { programPrintsTheMembers(t, program) })
}

// programHasTheFlags looks for each flag that a unit or a manifest gives.
func programHasTheFlags(t *testing.T, program string) {
	for where, args := range commandLines(t) {
		verb := args[:1]
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
			verb = args[:2]
		}
		help, err := exec.CommandContext(t.Context(), program, append(slices.Clone(verb), "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("tombolo %s --help: %v\n%s", verb, err, help)
		}
		known := strings.FieldsFunc(string(help), func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '=' })
		for _, arg := range args[1:] {
			if strings.HasPrefix(arg, "--") && !slices.Contains(known, arg) {
				t.Errorf("%s: tombolo %s has no %s", where, verb, arg)
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
	meet, announce := discoveryManifests(t, true)
	for where, data := range map[string][]byte{
		"edge manifest":  edgeManifest(t),
		"route manifest": routeManifest(t),
		"agent manifest": agent, "hub manifest": hub, "service manifest": meet, "announce manifest": announce,
	} {
		for _, doc := range documents(t, data) {
			pod := doc.Spec.Template.Spec
			if boxes := append(pod.InitContainers, pod.Containers...); len(boxes) > 0 {
				out[where] = boxes[0].Args
			}
		}
	}
	if len(out) != 13 {
		t.Fatalf("only %d of 13 command lines found: %v", len(out), out)
	}
	return out
}

// programTakesTheConfigurations gives the ConfigMaps' files to the program's own check, and spoilt ones that it
// must refuse.
func programTakesTheConfigurations(t *testing.T, program string) {
	_, hub := manifests(t)
	_, inCluster := reflect.TypeFor[v1alpha1.MeshSources]().FieldByName("Kubernetes") // whether the kind has such a source
	meet, announce := discoveryManifests(t, inCluster)
	texts := map[string]bool{}
	for name, data := range map[string][]byte{"hub.yaml": hub, "discovery.yaml": meet, "mesh.yaml": announce, "edge.yaml": edgeManifest(t),
		"route.yaml": routeManifest(t)} {
		config := ""
		for _, doc := range documents(t, data) {
			config += doc.Data[name]
		}
		texts[config], texts[config+"nonsense: 1\n"] = true, false
	}
	if len(texts) != 10 {
		t.Fatalf("%d configurations", len(texts))
	}
	for text, want := range texts {
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

func edgeManifest(t *testing.T) []byte {
	t.Helper()
	o := manifest.EdgeDefaults()
	o.Image, o.Connect, o.Policies, o.From = "tombolo.local/tombolo:dev", 8132, "policies", []string{"10.0.0.0/8"}
	out, err := manifest.Edge(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func routeManifest(t *testing.T) []byte {
	t.Helper()
	o := manifest.RouteDefaults()
	o.Image, o.Kind, o.Workload, o.Cluster, o.Secret = "tombolo.local/tombolo:dev", manifest.RouteSidecar, "db", "c1", "c1"
	o.Hubs, o.Maps = []string{"hub.example.com:8443"}, []string{"10.244.0.0/16=240.2.0.0/16"}
	o.DNS, o.Zone, o.Nameservers = "10.244.0.10", "c1.internal", []string{"10.96.0.10"}
	out, err := manifest.Route(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func discoveryManifests(t *testing.T, kubernetes bool) (meet, announce []byte) {
	t.Helper()
	m := manifest.MeetDefaults()
	m.Image, m.Hosts = "tombolo.local/tombolo:dev", []string{"discovery.example.com"}
	meet, err := manifest.Meet(m)
	if err != nil {
		t.Fatal(err)
	}
	a := manifest.AnnounceDefaults()
	a.Image, a.Secret, a.Kubernetes = m.Image, "cluster", kubernetes
	a.Services, a.Pin = []string{"https://discovery.example.com"}, strings.Repeat("p", 42)+"A"
	if announce, err = manifest.Announce(a); err != nil {
		t.Fatal(err)
	}
	return meet, announce
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
				InitContainers []struct{ Args []string } `yaml:"initContainers"`
				Containers     []struct{ Args []string }
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
