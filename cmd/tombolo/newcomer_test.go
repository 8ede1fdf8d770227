// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a newcomer mistypes is answered with what was meant, and what is wrong with where it stands.
func TestMistakesOfNewcomers(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: tombolo.dev/v1alpha1\nkind: "
	blocked := filepath.Join(file("blocked", "x"), "below")
	broken := file("join", "not a line\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"a verb":          {[]string{"token", "crate"}, 2, []string{"did you mean create?"}},
		"a verb above":    {[]string{"tokn"}, 2, []string{"did you mean token?"}},
		"with its flags":  {[]string{"token", "crate", "--cluster", "c1"}, 2, []string{`no command "tombolo token crate"`, "did you mean create?"}},
		"above, as well":  {[]string{"toekn", "create", "--cluster", "c1"}, 2, []string{"did you mean token?"}},
		"a flag":          {[]string{"token", "create", "--clustr", "c1"}, 2, []string{"did you mean --cluster?"}},
		"a flag of a hub": {[]string{"hub", "--advertize", "x"}, 2, []string{"did you mean --advertise?"}},
		"a flag of all":   {[]string{"status", "--admin-sokcet", "x"}, 2, []string{"did you mean --admin-socket?"}},
		"a number":        {[]string{"token", "create", "--cluster", "c1", "--uses", "x"}, 2, []string{`--uses "x": a whole number is expected`}},
		"a time":          {[]string{"token", "create", "--cluster", "c1", "--ttl", "5"}, 2, []string{`--ttl "5": a time such as`}},
		"a strange flag":  {[]string{"status", "--colour"}, 2, []string{"tombolo status --help"}},
		"a role":          {[]string{"config", "print", "--role", "hbu"}, 2, []string{"did you mean hub?"}},
		"many of a file": {[]string{"config", "validate", file("hub.yaml", head+"HubConfig\nlistenn: x\nlog: {format: jsn, levle: info}\n"+
			"clusters: [{name: C1, sockets: [{protocol: conect}]}]\n")}, 2, []string{
			":3:1: listenn: unknown key; did you mean listen?", "log.format: ", "did you mean json?", "did you mean level?", "clusters[0].name: ",
			"clusters[0].sockets[0].protocol: ", "did you mean connect?"}},
		"of a mesh": {[]string{"config", "validate", file("mesh.yaml", head+"MeshConfig\nsources: {services: [{url: \"https://192.0.2.1\", protocol: natve}]}\n"+
			"mesh: {engine: kernl}\n")}, 2, []string{"did you mean native?", "did you mean kernel?", "cluster.secretFiles"}},
		"a kind":      {[]string{"config", "validate", file("kind.yaml", head+"AgentConfg\n")}, 2, []string{":2:7: kind: ", "did you mean AgentConfig?"}},
		"a join file": {[]string{"agent", "--join", "@" + broken, "--state-dir", dir, "--health-listen", "127.0.0.1:0"}, 2, []string{broken, "--join", "tombolo://"}},
		"of a file": {[]string{"agent", "--config", file("agent.yaml", head+"AgentConfig\njoin: \"@"+broken+"\"\n"), "--state-dir", dir,
			"--health-listen", "127.0.0.1:0"}, 2, []string{broken, "(join)"}},
		"of a node": {[]string{"mesh", "--config", file("node.yaml", head+"MeshConfig\ncluster: {secretFiles: ["+
			file("secret", strings.Repeat("0123456789", 4)+"010=\n")+"]}\n"+
			"mesh: {join: \"@/no/such\"}\n"), "--state-dir", dir}, 2, []string{"/no/such", "(mesh.join)"}},
		"of a manifest":     {[]string{"agent", "manifest", "--join", "@" + broken, "--image", "x", "--allow", "10.0.0.0/8"}, 2, []string{broken, "--join"}},
		"a state directory": {[]string{"hub", "--state-dir", blocked, "--run-dir", dir}, 1, []string{blocked, "--state-dir"}},
		"of a service":      {[]string{"discovery", "--state-dir", blocked, "--run-dir", dir}, 1, []string{blocked, "--state-dir"}},
		"of an agent":       {[]string{"agent", "--join", "@" + broken, "--state-dir", blocked, "--health-listen", "127.0.0.1:0"}, 1, []string{blocked, "--state-dir"}},
		"a run directory": {[]string{"hub", "--state-dir", filepath.Join(dir, "hub"), "--run-dir", blocked, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, 2,
			[]string{blocked, "--run-dir"}},
		"a hub": {[]string{"status", "--hub", "a:b", "--operator", "x"}, 2, []string{"HOST:PORT"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tombolo(t, tc.args...)
			o.err = lastError(o.err)
			wantExit(t, o, tc.code, tc.says...)
		})
	}
}

// lastError is stderr without what was logged before it.
func lastError(text string) string {
	if i := strings.Index(text, "error: "); i > 0 {
		return text[i:]
	}
	return text
}
