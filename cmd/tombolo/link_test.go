// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/kosmos"
)

// kosmosFile has every field of Kosmos.
const kosmosFile = "../../internal/link/kosmos/testdata/full.yaml"

func TestLinkImport(t *testing.T) {
	o := tombolo(t, "link", "import", kosmosFile)
	if o.code != 0 || strings.Count(o.out, "\n---\n") != 2 || !strings.HasPrefix(o.out, "apiVersion: tombolo.dev/v1alpha1\nkind: Cluster\n") {
		t.Errorf("exit %d\n%s", o.code, o.out)
	}
	for _, want := range []string{
		kosmosFile + ":14:5: Cluster east: spec.kubeconfig: not copied: no object holds credentials",
		kosmosFile + ":19:7: Cluster east: spec.clusterLinkOptions.cni: mapped to spec.cni\n",
		"spec.xfrmstates[].PSK: not copied: no object holds keys", "refused: 0\n",
	} {
		if !strings.Contains(o.err, want) {
			t.Errorf("stderr does not say %q:\n%s", want, o.err)
		}
	}
	for _, secret := range []string{"c2VjcmV0", "deadbeef"} {
		if strings.Contains(o.out+o.err, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	var list struct {
		APIVersion, Kind string
		Items            []kosmos.Object
	}
	data, err := os.ReadFile(kosmosFile)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	o = tomboloIn(t, string(data), "link", "import", "-", "-o", "json", "--report", file, "--kind", "Cluster,ClusterNode")
	strictly(t, o.out, &list)
	if list.APIVersion != "v1" || list.Kind != "List" || len(list.Items) != 2 || list.Items[1].Metadata.Name != "east.n1" {
		t.Errorf("%+v", list)
	}
	var report imported
	strictly(t, string(readFile(t, file)), &report)
	if report.Kind != "LinkImport" || report.File != "stdin" || len(report.Fields) < 50 || report.Fields[0].Line != 7 {
		t.Errorf("%+v", report)
	}
}

func TestLinkImportRefuses(t *testing.T) {
	good := "apiVersion: kosmos.io/v1alpha1\nkind: Cluster\nmetadata: {name: a}\nspec: {clusterLinkOptions: {cni: calico}}\n"
	bad := strings.Replace(good, "calico", "weave, ipfamily: ipv4", 1)
	o := tomboloIn(t, good+"---\n"+strings.Replace(bad, "name: a", "name: b", 1), "link", "import", "-")
	for _, want := range []string{"\nerror: config_invalid: 1 value of stdin", "\nhint: correct what the report calls refused",
		"stdin:9:41: Cluster b: spec.clusterLinkOptions.ipfamily: refused: unknown key; did you mean ipFamily?"} {
		if o.code != 2 || !strings.Contains(o.err, want) {
			t.Errorf("exit %d, stderr does not say %q:\n%s", o.code, want, o.err)
		}
	}
	if !strings.Contains(o.out, "name: a\n") || strings.Contains(o.out, "name: b\n") {
		t.Errorf("stdout is\n%s", o.out)
	}
	o = tomboloIn(t, bad, "link", "import", "-", "-o", "json")
	if want := "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": []\n}\n"; o.code != 2 || o.out != want {
		t.Errorf("exit %d, %q", o.code, o.out)
	}
	o = tombolo(t, "link", "import", kosmosFile, "--report", filepath.Join(t.TempDir(), "no", "x"))
	if o.code != 2 || !strings.Contains(o.err, "choose a path in a folder that exists with --report") {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	wantExit(t, tomboloIn(t, "a: [", "link", "import", "-"), 2, "stdin is not YAML: stdin:1:1", "hint: ")
	wantExit(t, tomboloIn(t, "", "link", "import", "-"), 2, "stdin has no object", "kubectl get clusters.kosmos.io")
	wantExit(t, tombolo(t, "link", "import", filepath.Join(t.TempDir(), "x")), 2, "cannot be read", "- for stdin")
	wantExit(t, tombolo(t, "link", "import", t.TempDir()), 2, "no regular file")
	wantExit(t, tombolo(t, "link", "import"), 2, "FILE")
	wantExit(t, tombolo(t, "link", "import", "x", "-o", "text"), 2, `"text" is none of yaml, json`)
	wantExit(t, tombolo(t, "link", "import", "x", "--kind", "Clusters"), 2, "did you mean Cluster?")
	wantExit(t, tombolo(t, "link", "imprt"), 2, "did you mean import?")
	for line, want := range map[string]string{
		"link import ": ":0\n", "link import -o ": "yaml\njson\n:4\n", "link import --report ": ":0\n",
		"link import --kind ": "Cluster\nClusterNode\nNodeConfig\n:4\n",
	} {
		if o := tombolo(t, strings.Split("__complete "+line, " ")...); o.out != want {
			t.Errorf("%q: %q, want %q", line, o.out, want)
		}
	}
}
