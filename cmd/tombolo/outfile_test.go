// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// A command that fails leaves the file of --out as it was, and nothing beside it.
func TestOutLeavesALiveFile(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "live.yaml")
	if err := os.WriteFile(live, []byte("live\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none.sock")
	for _, line := range []string{
		"egress-config c1 --mode grpc-uds --admin-socket " + none,
		"egress-config c1 --mode connect-tls --admin-socket " + none + " --out-dir " + dir,
		"egress-config c1 --mode carrier-pigeon",
		"hub manifest", "agent manifest", "discovery manifest service", "discovery manifest announce",
		"discovery manifest --kubelets=false --service-account nonsense",
		"config print --role nobody", "config print --role hub", // an example never takes the place of a configuration
	} {
		o := tombolo(t, append(strings.Fields(line), "--out", live)...)
		if o.code == 0 || !strings.HasPrefix(o.err, "error: ") {
			t.Errorf("tombolo %s: exit %d\n%s", line, o.code, o.err)
		}
		if o.out != "" {
			t.Errorf("tombolo %s: stdout got %q", line, o.out)
		}
	}
	if got := string(readFile(t, live)); got != "live\n" {
		t.Errorf("the file holds %q", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("something is left: %v, %v", entries, err)
	}
}

// A new file has the mode that fits its content, one that is there keeps its own, and a link stays a link.
func TestOutReplaces(t *testing.T) {
	dir := t.TempDir()
	service := []string{"discovery", "manifest", "service", "--image", "x", "--host", "h", "--out"}
	want := must(t, service[:len(service)-1]...)
	mode := func(file string) os.FileMode {
		t.Helper()
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	fresh, kept, link := filepath.Join(dir, "fresh"), filepath.Join(dir, "kept"), filepath.Join(dir, "link")
	if err := os.WriteFile(kept, []byte("a long old content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept", link); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{fresh, link} {
		if out := must(t, append(service, file)...); out != "" {
			t.Errorf("stdout got %q", out)
		}
		if string(readFile(t, file)) != want {
			t.Errorf("%s is not what stdout gets", file)
		}
	}
	if got := mode(fresh); got != 0o644 {
		t.Errorf("a new file has mode %v", got)
	}
	if got := mode(kept); got != 0o600 {
		t.Errorf("a file that was there has mode %v now", got)
	}
	if mode(link)&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	private := filepath.Join(dir, "agent")
	must(t, "agent", "manifest", "--image", "x", "--allow", "10.0.0.0/8", "--out", private,
		"--join", "tombolo://abcdefgh.bcdefghijklmnopqrstuvwxyz234567a@hub.example.com:8443/c1/"+strings.Repeat("A", 43))
	if got := mode(private); got != 0o600 {
		t.Errorf("a file with a join line has mode %v", got)
	}
	if out := must(t, append(service, "-")...); out != want {
		t.Error("- is not stdout")
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "no/such/folder"), "/dev/null", dangling} {
		wantExit(t, tombolo(t, append(service, bad)...), 2, bad, "--out")
	}
}

// What cannot be written is said in our words, also where an encoder has wrapped it in its own.
func TestOutOnAFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "full.yaml")
	err := (&outFlag{path: file}).write(newRootCommand(), func(w io.Writer) error {
		w.(*outFile).part.Close() // as a full disk, it takes nothing
		return yaml.NewEncoder(w).Encode("x")
	})
	if f := fault.From(err); f.Code != fault.CodeOutput || !strings.Contains(f.Next, "--out") {
		t.Errorf("%v; hint %q", err, f.Next)
	}
}
