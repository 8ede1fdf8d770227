// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

func TestAnnouncedRangesAreShown(t *testing.T) {
	of := func(p string, sources ...string) mesh.Announced {
		return mesh.Announced{Range: netip.MustParsePrefix(p), Sources: sources}
	}
	var many []mesh.Announced
	for i := range 10 {
		many = append(many, of(fmt.Sprintf("10.0.%d.0/24", i), mesh.FromConfiguration))
	}
	for name, c := range map[string]struct {
		all  []mesh.Announced
		want []string
	}{
		"none": {nil, nil},
		"of both": {[]mesh.Announced{of("10.1.0.0/24", mesh.FromConfiguration), of("10.2.0.0/24", mesh.FromConfiguration, mesh.FromKubernetes),
			of("10.244.1.0/24", mesh.FromKubernetes), of("fd00::/64", mesh.FromKubernetes)},
			[]string{"announces 10.1.0.0/24 (configuration)", "announces 10.2.0.0/24 (configuration, Kubernetes)", "announces 10.244.1.0/24, fd00::/64 (Kubernetes)"}},
		"many":            {many, []string{"announces 10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, 10.0.5.0/24, 10.0.6.0/24, 10.0.7.0/24 and 2 more (configuration)"}},
		"of a newer node": {[]mesh.Announced{of("10.1.0.0/24", "elsewhere")}, []string{"announces 10.1.0.0/24 (elsewhere)"}},
	} {
		if got := announcedLines(c.all); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAnnounceHasNoPods: what only a node of the mesh does is refused by one that is none, with its place.
func TestAnnounceHasNoPods(t *testing.T) {
	dir := runtest.Dir(t)
	secret, file := filepath.Join(dir, "secret"), filepath.Join(dir, "mesh.yaml")
	must(t, "discovery", "secret", "create", secret)
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [%q]}\nannounce: {podRanges: true}\n"+
		"sources: {kubernetes: {kubeconfig: /k, node: n}}\n", secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "config", "validate", file)
	wantExit(t, tombolo(t, "discovery", "announce", "--config", file), 2, "config_invalid", "mesh.yaml:4:23: announce.podRanges", "announce.ranges")
}
