// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	root := newRootCommand()
	adoptBuiltins(root)
	walk(root, func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		n++
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		o := tombolo(t, args...)
		if o.code != 0 || o.out == "" || o.err != "" {
			t.Errorf("%v: exit %d, %q", args, o.code, o.err)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(o.out, "Usage:") {
			t.Errorf("%s: the help shows no usage", c.CommandPath())
		}
	})
	if n < 20 {
		t.Errorf("only %d commands", n)
	}
	if o := tombolo(t); o.code != 0 || !strings.Contains(o.out, "Available Commands") || !strings.Contains(o.out, "Exit codes:") {
		t.Errorf("no arguments: %+v", o)
	}
}

func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ line, says string }{
		{"stauts", "did you mean status?"},
		{"--no-such-flag", "no-such-flag"},
		{"status --no-such-flag", "tombolo status --help"},
		{"status a b", "at most one CLUSTER"},
		{"status -o xml", "xml"},
		{"token creat", "did you mean create?"},
		{"token create", "--cluster"},
		{"token create --cluster", "--cluster"},
		{"token create --cluster c1 --ttl soon", "soon"},
		{"token create --cluster c1 --uses many", "many"},
		{"token revoke", "ID"},
		{"certificate issue --role hub --name x --out y", "operator, client, route, edge, vpn-server, vpn-client"},
		{"certificate issue --role client --name x --out y", "--cluster"},
		{"certificate issue --role operator", "--name"},
		{"revoke agent", "CLUSTER/NAME|SERIAL"},
		{"revoke agent agent-x", "CLUSTER/agent-x"},
		{"revoke agent c1/agent-x --cluster c2", "two clusters"},
		{"revoke operator c1/alice", "no cluster"},
		{"revoke emperor x", "emperor"},
		{"egress-config c1", "grpc-uds"},
		{"egress-config c1 --mode carrier-pigeon", "carrier-pigeon"},
		{"egress-config", "CLUSTER"},
		{"connect c1", "HOST:PORT"},
		{"ping", "CLUSTER"},
		{"ping c1 -c 0", "--count"},
		{"config print", "--role"},
		{"config print --role emperor", "emperor"},
		{"config print --kind Emperor", "MemberList"},
		{"config print --kind HubConfig --role hub", "--kind"},
		{"discovery watc", "did you mean watch?"},
		{"discovery manifest servic", "did you mean service?"},
		{"discovery manifest service", "--image"},
		{"discovery manifest announce", "--secret"},
		{"mesh manifest", "--image"},
		{"route manifst", "did you mean manifest?"},
		{"route manifest sleep 1", "stand after --"},
		{"route manifest --kind pod", "sidecar, deployment"},
		{"discovery announce", "--config"},
		{"discovery members --wait 1h", "--wait"},
		{"discovery members --admin-socket /x --attend", "--attend"},
		{"discovery secret create", "FILE"},
		{"config validate", "FILE"},
		{"config validate " + dir + "/nope.yaml", "nope.yaml"},
		{"hub extra", "extra"},
		{"hub --config " + dir + "/nope.yaml", "nope.yaml"},
		{"hub --log-level loud --state-dir " + dir, "loud"},
		{"hub --log-format prose --state-dir " + dir, "prose"},
		{"hub --listen nowhere --run-dir " + dir + "/r --state-dir " + dir + "/s1", "--listen"},
		{"hub --advertise a:b:c --state-dir " + dir, "--advertise"},
		{"hub backup", "--to"},
		{"hub restore", "--from"},
		{"hub restore --from " + dir + "/nope --state-dir " + dir, "nope"},
		{"agent --allow 10.0.0.1/8", "10.0.0.0/8"},
		{"agent --allow", "--allow"},
		{"agent --allow 10.0.0.0/8 --join @" + dir + "/nope", "--join"},
		{"agent --allow 10.0.0.0/8 --join nonsense --health-listen 127.0.0.1:0 --state-dir " + dir + "/a", "tombolo token create"},
		{"status --hub hub.example.com", "--operator"},
		{"status --hub hub.example.com --operator " + dir + "/nope", "operator"},
		{"version extra", "no arguments"},
		{"completion", ""},
		{"completion tcsh", "tcsh"},
		{"help nothing", "nothing"},
		{"reference man", "--out-dir"},
	} {
		t.Run(c.line, func(t *testing.T) {
			o := tombolo(t, strings.Fields(c.line)...)
			if c.says == "" {
				if o.code != 0 {
					t.Errorf("exit %d: %s", o.code, o.err)
				}
				return
			}
			wantExit(t, o, 2, c.says)
			if !strings.Contains(o.err, "\nhint: ") {
				t.Errorf("no hint: %q", o.err)
			}
			if o.out != "" {
				t.Errorf("stdout: %q", o.out)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	dir := runtest.Dir(t)
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(dir, "none.sock"))
	wantExit(t, tombolo(t, "status"), 3, "hub_unreachable", "tombolo hub")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "hub", "--state-dir", filepath.Join(file, "state"), "--run-dir", dir), 1, "state_unwritable", "--state-dir")
	wantExit(t, tombolo(t, "hub", "restore", "--from", file, "--state-dir", filepath.Join(dir, "s")), 1, "state_corrupt")
	wantExit(t, tombolo(t, "status", "--hub", "127.0.0.1:1", "--operator", file), 4, "certificate_invalid")
	// 4 for a policy's no and the rest with a running hub: see TestVerbs.
}

// TestConfigPrintIsValid iterates over every kind of file that the API has.
func TestConfigPrintIsValid(t *testing.T) {
	kinds := map[string]string{} // of files, with their roles
	sources, err := filepath.Glob("../../api/v1alpha1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		for _, m := range regexp.MustCompile(`Kind(\w+)\s+= "(\w+)"`).FindAllStringSubmatch(string(mustRead(t, source)), -1) {
			kinds[m[2]] = ""
		}
	}
	for _, object := range []string{ // of Kubernetes, and no file
		v1alpha1.KindMember, v1alpha1.KindCluster, v1alpha1.KindClusterNode, v1alpha1.KindNodeConfig,
	} {
		delete(kinds, object)
	}
	delete(kinds, v1alpha1.KindClusterState) // written by a hub, for another one
	for _, k := range configKinds() {
		if _, there := kinds[k.kind]; !there {
			t.Errorf("%s is no kind of the API", k.kind)
		}
		kinds[k.kind] = k.role
	}
	if len(kinds) < 6 {
		t.Errorf("only %d kinds", len(kinds))
	}
	for kind, role := range kinds {
		file := filepath.Join(t.TempDir(), role+".yaml")
		text := must(t, "config", "print", "--role", role)
		if by := must(t, "config", "print", "--kind", kind); by != text || !strings.Contains(text, "kind: "+kind+"\n") {
			t.Errorf("--kind %s gives another file than --role %q", kind, role)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := tombolo(t, "config", "validate", file)
		if o.code != 0 || !strings.Contains(o.err, "a valid "+kind) {
			t.Errorf("%s: exit %d, %s", role, o.code, o.err)
		}
		if err := os.WriteFile(file, []byte(text+"\nnoSuchKey: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantExit(t, tombolo(t, "config", "validate", file), 2, "noSuchKey", file+":")
		for flag, word := range map[string]string{"--role": role, "--kind": kind} {
			if o := tombolo(t, "__complete", "config", "print", flag, ""); !strings.Contains(o.out, word+"\n") {
				t.Errorf("%s is not completed with %s: %s", flag, word, o.out)
			}
		}
		if !strings.Contains(text, "#") {
			t.Errorf("%s: no comments", role)
		}
	}
}

func TestConfigValidateListsEveryProblem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hub.yaml")
	for text, says := range map[string][]string{
		"apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\ncolour: red\nclusters:\n- name: C1\n- name: c2\n  sockets:\n  - protocol: smtp\n": {
			file + ":3:1: colour: ", file + ":5:9: clusters[0].name: ", file + ":8:15: clusters[1].sockets[0].protocol: "},
		"apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nallow:\n- 10.0.0.1/8\n- 10.0.0.0/40\n": {
			file + ":4:3: allow[0]: ", file + ":5:3: allow[1]: "},
		"apiVersion: tombolo.dev/v1alpha1\nkind: Emperor\n": {file + ":", "Emperor", "HubConfig"},
		"kind: HubConfig\n\t- x":                            {file + ":2:"},
		"":                                                  {file + ":1:1", "HubConfig"},
		"apiVersion: tombolo.dev/v2\nkind: HubConfig\n":                       {file + ":1:13: apiVersion: "},
		"apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nlisten: [1, 2]\n": {file + ":3:9: listen: "},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantExit(t, tombolo(t, "config", "validate", file), 2, says...)
	}
}

func TestVersion(t *testing.T) {
	if out := must(t, "version"); !strings.HasPrefix(out, "tombolo "+version+" (go") {
		t.Errorf("text: %q", out)
	}
	var v struct{ APIVersion, Kind, Version, Go, Platform string }
	if err := json.Unmarshal([]byte(must(t, "version", "-o", "json")), &v); err != nil || v.Kind != "Version" || v.Version != version || v.APIVersion == "" {
		t.Errorf("json: %+v, %v", v, err)
	}
	v.Kind = ""
	if err := yaml.Unmarshal([]byte(must(t, "version", "-o", "yaml")), &v); err != nil || v.Kind != "Version" {
		t.Errorf("yaml: %+v, %v", v, err)
	}
	if out := must(t, "--version"); !strings.Contains(out, version) {
		t.Errorf("--version: %q", out)
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "complete", "zsh": "#compdef tombolo", "fish": "complete -c tombolo"} {
		if out := must(t, "completion", shell); !strings.Contains(out, mark) {
			t.Errorf("%s: no %q in %d bytes", shell, mark, len(out))
		}
	}
	// What a script asks for on a Tab.
	for line, want := range map[string]string{
		"__complete toke": "token", "__complete egress-config c1 --mode ": "connect-tls",
		"__complete status -o ": "yaml", "__complete config print --role ": "agent",
	} {
		args := strings.Split(line, " ")
		if o := tombolo(t, args...); o.code != 0 || !strings.Contains(o.out, want) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

func TestReferenceIsGenerated(t *testing.T) {
	dir := t.TempDir()
	must(t, "reference", "man", "--out-dir", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Errorf("%d man pages, %v", len(pages), err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "tombolo-token-create.1"))
	if err != nil || !strings.Contains(string(page), "uses") {
		t.Errorf("token create: %v", err)
	}
	out := must(t, "reference", "markdown")
	walk(newRootCommand(), func(c *cobra.Command) {
		if c.HasParent() && c.Name() != "help" && c.Parent().Name() != "completion" && !strings.Contains(out, "## "+c.CommandPath()+"\n") {
			t.Errorf("%s is missing in the reference", c.CommandPath())
		}
	})
	wantExit(t, tombolo(t, "reference", "man", "--out-dir", dir+"/nope"), 2, "--out-dir")
}

// TestConfigValidateTellsOfMemory: what would be odd in a hub that were started here.
func TestConfigValidateTellsOfMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(4 << 30)) // as GOMEMLIMIT does
	file := filepath.Join(t.TempDir(), "hub.yaml")
	for memory, says := range map[string]string{"64MiB": "GOMEMLIMIT (4 GiB) is above limits.memory (64 MiB)", "none": ""} {
		text := "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nlimits: {memory: " + memory + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := tombolo(t, "config", "validate", file)
		if o.code != 0 || !strings.Contains(o.err, "valid") || strings.Contains(o.err, "warning") != (says != "") || !strings.Contains(o.err, says) {
			t.Errorf("%s: exit %d, %s", memory, o.code, o.err)
		}
	}
}
