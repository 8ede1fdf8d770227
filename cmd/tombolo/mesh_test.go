// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestMeshWrongUsage: what is wrong about a command line is said with a next step, and
// nothing is begun.
func TestMeshWrongUsage(t *testing.T) {
	config, _, dir := meshFiles(t, "")
	secret := filepath.Join(dir, "secret")
	for _, c := range []struct{ line, says string }{
		{"mesh", "tombolo mesh --config FILE"},
		{"mesh statsu", "did you mean status?"},
		{"mesh extra", "extra"},
		{"mesh --service https://192.0.2.1:8446", "it is not said which cluster is meant"},
		{"mesh --pin x", "it is not said which cluster is meant"},
		{"mesh --config " + config + " --secret-file " + secret, "--config excludes"},
		{"mesh --config " + config + " --service https://192.0.2.1:8446", "--config excludes"},
		{"mesh --config " + config + " --pin x", "--config excludes"},
		{"mesh --config " + dir + "/none.yaml", "none.yaml"},
		{"mesh --config " + dir, "--config"},
		{"mesh --secret-file " + dir + "/none --service https://192.0.2.1:8446", "/none"},
		{"mesh --secret-file " + secret + " --service http://192.0.2.1:8446", "insecure"},
		{"mesh --secret-file " + secret + " --service https://192.0.2.1:8446 --pin junk", "pin"},
		{"mesh --secret-file " + secret + " --pin GNPVHdfYLmQCPKX4_LFdYO1Di25X8UB5NoTg7INOVp8", "--pin stands without --service"},
		{"mesh --secret-file " + secret + " --service ftp://x", "https"},
		{"mesh status a b", "at most one PEER"},
		{"mesh status --no-such-flag", "no-such-flag"},
		{"mesh explain", "IP"},
		{"mesh explain a", `"a" is no address`},
		{"mesh ping", "PEER"},
		{"mesh ping b --count many", "many"},
		{"mesh ping b --timeout soon", "soon"},
		{"mesh ping b --timeout -1s", "--timeout"},
		{"mesh netcheck x", "no arguments"},
		{"mesh netcheck --admin-socket " + dir + "/none.sock --config " + dir + "/none.yaml", "none.yaml"},
		{"mesh keys rotat", "did you mean rotate?"},
		{"mesh keys rotate x", "no arguments"},
		{"mesh down x", "no arguments"},
		{"mesh down --config " + dir + "/none.yaml", "none.yaml"},
	} {
		t.Run(c.line, func(t *testing.T) {
			o := tombolo(t, strings.Fields(c.line)...)
			wantExit(t, o, 2, c.says)
			if !strings.Contains(o.err, "\nhint: ") || o.out != "" {
				t.Errorf("no hint, or something on stdout: %+v", o)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a wrong command line has made a state directory: %v", err)
	}
}

// TestMeshFilesWithMistakes: each is refused at its place before there is a state
// directory, and all that is wrong is said at once.
func TestMeshFilesWithMistakes(t *testing.T) {
	dir := runtest.Dir(t)
	secret := filepath.Join(dir, "s")
	must(t, "discovery", "secret", "create", secret)
	file, state := filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "state")
	head := "apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [" + secret + "]}\nsources: {services: [{url: 'https://192.0.2.1:8446'}]}\nnode: {name: a, stateDir: " + state + ", runDir: " + dir + "}\n"
	for _, c := range []struct {
		text string // behind the head, from line 6
		says []string
	}{
		{"mesh: {mtu: 1279}", []string{":6:13: mesh.mtu: 1279 is not within 1280"}},
		{"mesh: {mtu: 70000}", []string{":6:13: mesh.mtu"}},
		{"mesh: {port: 65536}", []string{":6:14: mesh.port"}},
		{"mesh: {table: 254}", []string{":6:15: mesh.table"}},
		{"mesh: {rule: 32766}", []string{":6:14: mesh.rule"}},
		{"mesh: {marks: {own: 0x20, mesh: 0x20}}", []string{":6:15: mesh.marks"}},
		{"mesh: {marks: {own: lots}}", []string{":6:21: mesh.marks.own"}},
		{"mesh: {link: sixteen-letters-}", []string{":6:14: mesh.link"}},
		{"mesh: {link: a/b}", []string{":6:14: mesh.link"}},
		{"mesh: {filter: 'a b'}", []string{":6:16: mesh.filter"}},
		{"mesh: {overlay4: 100.64.0.1/10}", []string{":6:18: mesh.overlay4", "100.64.0.0/10 is meant?"}},
		{"mesh: {overlay4: 'fd00::/64'}", []string{":6:18: mesh.overlay4"}},
		{"mesh: {accept: [10.0.0.0/8, 127.0.0.0/8]}", []string{":6:29: mesh.accept[1]", "loopback"}},
		{"mesh: {exclude: [10.0.0.1/8]}", []string{":6:18: mesh.exclude[0]"}},
		{"mesh: {engine: wireguard}", []string{":6:16: mesh.engine"}},
		{"mesh: {join: nonsense}", []string{":6:14: mesh.join", "tombolo token create --node"}},
		{"mesh: {hubs: [hub.example.com]}", []string{":6:15: mesh.hubs[0]"}},
		{"mesh: {proxy: 'ftp://x'}", []string{":6:15: mesh.proxy"}},
		{"mesh: {lazyAbove: -1}", []string{":6:19: mesh.lazyAbove"}},
		{"mesh: {mtu: many}", []string{":6:13: mesh.mtu"}},
		{"mesh: {nothing: 1}", []string{":6:8: mesh.nothing"}},
		{"mesh: []", []string{":6:7: mesh"}},
		{"announce: {publicKey: CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}", []string{":6:23: announce.publicKey", "leave it out"}},
		{"announce: {ranges: [10.0.0.1/8]}", []string{":6:21: announce.ranges[0]"}},
		{"announce: {ranges: [0.0.0.0/0]}", []string{":6:21: announce.ranges[0]: 0.0.0.0/0 is the default route"}},
		{"announce: {ranges: [10.0.0.0/24], addresses: [10.0.0.1]}", []string{":6:21: announce.ranges[0]: 10.0.0.0/24 covers 10.0.0.1"}},
		{"mesh: {closedFor: -1h}", []string{":6:19: mesh.closedFor"}},
		{"announce: {overlay6: 10.0.0.1}", []string{":6:22: announce.overlay6"}},
		{"healthListen: nowhere\nmesh: {mtu: 1, table: 0, policies: ['']}", []string{":6:15: healthListen", ":7:13: mesh.mtu", ":7:23: mesh.table", ":7:37: mesh.policies[0]"}},
	} {
		t.Run(c.text, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(head+c.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i, say := range c.says {
				if strings.HasPrefix(say, ":") {
					c.says[i] = file + say
				}
			}
			for _, line := range [][]string{{"mesh"}, {"mesh", "down"}, {"mesh", "netcheck", "--admin-socket", filepath.Join(dir, "none.sock")}} {
				wantExit(t, tombolo(t, append(line, "--config", file)...), 2, append(c.says, "config_invalid", "hint: ")...)
			}
			if !strings.HasPrefix(c.text, "announce: {publicKey") { // who runs no mesh may state a key
				wantExit(t, tombolo(t, "config", "validate", file), 2, c.says[0])
			}
			if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("there is a state directory: %v", err)
			}
		})
	}
}

// TestMeshFlags: what the flags say lies over the file, and they do without one.
func TestMeshFlags(t *testing.T) {
	config, _, dir := meshFiles(t, "")
	join := "@" + filepath.Join(dir, "join")
	cmd := &cobra.Command{}
	cmd.SetIn(strings.NewReader("from stdin\n"))
	got, err := (&meshRunFlags{config: configFile{path: config}, node: "n2", stateDir: "/s2", runDir: "/r2", join: join}).load(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if m := got.mesh; m.Announce.Node != "n2" || m.StateDir != "/s2" || m.RunDir != "/r2" || m.Join != join || m.ClusterID != "x" || len(maps.Collect(m.Keys)) != 1 || got.member.StateDir != "/s2" {
		t.Errorf("the flags give %+v", got.mesh)
	}
	if line, err := got.mesh.ReadJoin("-"); err != nil || line != "from stdin" {
		t.Errorf("the join line of stdin is %q, %v", line, err)
	}
	if _, err := got.mesh.ReadJoin(join); fault.From(err) == nil || !strings.Contains(fault.From(err).Explain(), join[1:]) {
		t.Errorf("a join line of no file: %v", err)
	}
	got, err = (&meshRunFlags{secretFile: filepath.Join(dir, "secret"), services: []string{"https://192.0.2.1:8446", "https://192.0.2.2:8446"}}).load(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if s := got.mesh.Services; len(s) != 2 || got.mesh.Sourceless || s[1].HostPort != "192.0.2.2:8446" || got.mesh.ClusterID != "" || got.mesh.Announce.Node == "" || got.mesh.Options.MTU != 1420 {
		t.Errorf("without a file it is %+v", got.mesh)
	}
	if got, err = (&meshRunFlags{secretFile: filepath.Join(dir, "secret")}).load(cmd); err != nil || !got.mesh.Sourceless {
		t.Errorf("without a service: %+v, %v", got.mesh, err)
	}
}

// TestMeshDownWhileItRuns: what a running node has is not taken away.
func TestMeshDownWhileItRuns(t *testing.T) {
	config, _, dir := meshFiles(t, "")
	p := startProcess(t, "discovery", "announce", "--config", config)
	p.Says(t, "announcing this node")
	for range 2 {
		wantExit(t, tombolo(t, "mesh", "down", "--config", config), 1, "state_busy", filepath.Join(dir, "state"), "hint: ")
	}
	wantExit(t, tombolo(t, "mesh", "--config", secondRunOf(t, config)), 1, "state_busy")
}

// secondRunOf is a configuration of the same member with a run directory and a health
// port of its own.
func secondRunOf(t *testing.T, config string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(string(mustRead(t, config))) {
		switch {
		case strings.HasPrefix(line, "healthListen"):
			line = "healthListen: " + runtest.Address(8448) + "\n"
		case strings.HasPrefix(line, "node:"):
			at := strings.Index(line, "runDir: ")
			line = line[:at] + "runDir: " + runtest.Dir(t) + "}\n"
		}
		lines = append(lines, line)
	}
	second := config + ".again"
	if err := os.WriteFile(second, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return second
}
