// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/objects/crds"
)

// takenShortNames are those of Kubernetes and of Cluster API, whose kinds stand in the same clusters.
func takenShortNames() []string {
	return []string{
		"cm", "cs", "csr", "crd", "crds", "cj", "deploy", "ds", "ep", "ev", "hpa", "ing", "limits", "netpol", "no", "ns", "pc",
		"pdb", "po", "pv", "pvc", "quota", "rc", "rs", "sa", "sc", "sts", "svc", "vac", "ipac",
		"cl", "cc", "crs", "crsb", "ext", "kcp", "kct", "ma", "md", "mdr", "mhc", "mhcs", "mp", "ms", "topo",
	}
}

func TestShortNamesAreFree(t *testing.T) {
	seen := takenShortNames()
	for _, text := range crds.All() {
		var crd struct {
			Spec struct {
				Names struct {
					Short []string `yaml:"shortNames"`
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Names.Short) != 1 {
			t.Errorf("short names %v", crd.Spec.Names.Short)
		}
		for _, name := range crd.Spec.Names.Short {
			if slices.Contains(seen, name) {
				t.Errorf("%s is taken", name)
			}
			seen = append(seen, name)
		}
	}
}
