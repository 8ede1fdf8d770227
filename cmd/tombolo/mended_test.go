// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// ontoFullDisk runs a command line whose stdout takes nothing.
func ontoFullDisk(t *testing.T, args ...string) outcomeOf {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Patience)
	defer cancel()
	var stderr bytes.Buffer
	code := execute(ctx, args, strings.NewReader(""), full, &stderr)
	return outcomeOf{code, "", stderr.String()}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestNoAnswerIsLostSilently(t *testing.T) {
	w := startWorld(t)
	out := filepath.Join(w.dir, "egress")
	for _, line := range []string{
		"--help", "version", "version -o json", "config print --role hub", "config print --role agent", "completion bash",
		"reference markdown", "status", "status c1", "status -o yaml", "ping c1 -c 1", "token list", "token create --cluster c1",
		"certificate list", "egress-config c1 --mode connect-uds", "egress-config c1 --mode connect-tls --out-dir " + out,
		"hub backup --to -", "connect c1 " + target(t, greet),
	} {
		o := ontoFullDisk(t, strings.Fields(line)...)
		if o.code != 1 || !strings.HasPrefix(o.err[strings.Index(o.err, "error: "):], "error: output_unwritable: ") {
			t.Errorf("%s: exit %d, %q", line, o.code, o.err)
		}
	}
	if left := names(t, out); len(left) != 0 {
		t.Errorf("files that nothing refers to: %v", left)
	}
}

func TestNoCertificateForFilesThatCannotBeMade(t *testing.T) {
	w := startHub(t)
	must(t, "token", "create", "--cluster", "c1")
	issued := func() int {
		var list admin.CertificateList
		strictly(t, must(t, "certificate", "list", "-o", "json"), &list)
		return len(list.Certificates)
	}
	issue := []string{"certificate", "issue", "--role", "operator", "--name", "alice", "--out"}
	egress := []string{"egress-config", "c1", "--mode", "connect-tls", "--out-dir"}
	taken := filepath.Join(w.dir, "taken")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(taken, "ca.crt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, append(issue, filepath.Join(w.dir, "no/folder.pem"))...), 2, "no/folder.pem", "--out")
	wantExit(t, tombolo(t, append(issue, filepath.Join(taken, "ca.crt"))...), 2, "exists already")
	wantExit(t, tombolo(t, append(issue, "/proc/alice.pem")...), 2, "/proc/alice.pem")
	wantExit(t, tombolo(t, append(egress, taken)...), 2, "ca.crt exists already", "--out-dir")
	wantExit(t, tombolo(t, append(egress, filepath.Join(taken, "ca.crt"))...), 2, "--out-dir")
	if got := names(t, taken); len(got) != 1 || string(readFile(t, filepath.Join(taken, "ca.crt"))) != "mine" {
		t.Errorf("left behind: %v", got)
	}
	if n := issued(); n != 0 {
		t.Errorf("%d certificates for nothing", n)
	}
	// The hub says no after the files were made.
	none := filepath.Join(w.dir, "none")
	wantExit(t, tombolo(t, "egress-config", "c9", "--mode", "connect-tls", "--out-dir", none), 1, "cluster_unknown")
	wantExit(t, tombolo(t, "certificate", "issue", "--role", "client", "--cluster", "c9", "--name", "x", "--out", filepath.Join(none, "x")), 1, "cluster_unknown")
	if got := names(t, none); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	must(t, append(issue, filepath.Join(none, "alice.pem"))...)
	must(t, append(egress, none)...)
	for name, mode := range map[string]os.FileMode{"alice.pem": 0o600, "client.key": 0o600, "client.crt": 0o644, "ca.crt": 0o644} {
		info, err := os.Stat(filepath.Join(none, name))
		if err != nil || info.Size() == 0 || info.Mode().Perm()&^mode != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestPlaceThatTakesNothingIsNoWrongUsage(t *testing.T) {
	for err, code := range map[error]fault.Code{
		syscall.ENOSPC: fault.CodeOutput, syscall.EACCES: fault.CodeOutput, syscall.EROFS: fault.CodeOutput, syscall.EIO: fault.CodeOutput,
		syscall.ENOENT: fault.CodeUsage, syscall.EEXIST: fault.CodeUsage, syscall.ENOTDIR: fault.CodeUsage, syscall.EISDIR: fault.CodeUsage,
	} {
		f := fault.From(cannotWrite("x", "--to", &os.PathError{Op: "open", Path: "x", Err: err}))
		if f.Code != code || !strings.Contains(f.Next, "--to") {
			t.Errorf("%v: %s", err, f.Explain())
		}
	}
	// A backup that meets a full disk is no hub that is away.
	path := filepath.Join(t.TempDir(), "b")
	_, err := writeNew(path, func(w io.Writer) (int64, error) {
		return 0, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	})
	if !fault.Has(err, fault.CodeOutput) {
		t.Errorf("%v", err)
	}
	_, err = writeNew(path, func(io.Writer) (int64, error) { return 0, fault.New(fault.CodeHubAway, "broke off") })
	if !fault.Has(err, fault.CodeHubAway) {
		t.Errorf("%v", err)
	}
	if left := names(t, filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBackupToStdoutCanBeRestored(t *testing.T) {
	w := startHub(t)
	o := tombolo(t, "hub", "backup", "--to", "-")
	if o.code != 0 || !strings.Contains(o.err, "stdout") {
		t.Fatalf("exit %d, %q", o.code, o.err)
	}
	file := filepath.Join(w.dir, "piped")
	if err := os.WriteFile(file, []byte(o.out), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "hub", "restore", "--from", file, "--state-dir", filepath.Join(w.dir, "restored"))
}

func TestConfigValidateFindsTheKindByItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	head := "apiVersion: tombolo.dev/v1alpha1\n"
	for text, want := range map[string][]string{
		head + "kind: AgentConfig\nkind: AgentConfig\n":          {":3:1: kind: the key stands twice"},
		head + "kind: AgentConfig\nstateDir: /a\nstateDir: /a\n": {":4:1: stateDir: the key stands twice"},
		head + "kind: HubConfig\nlog: {level: info, level: x}\n": {":3:20: log.level: the key stands twice"},
		"kind: HubConfig\nlisten: \"x\n":                         {":2:1: found unexpected end of stream"},
		"- a\n":                                                  {":1:1: a mapping is expected, not a list"},
		"":                                                       {":1:1: the file is empty"},
		head:                                                     {":1:1: kind: is missing"},
		head + "kind: Emperor\n":                                 {":2:7: kind: \"Emperor\" is unknown"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := tombolo(t, "config", "validate", file)
		wantExit(t, o, 2)
		for _, say := range want {
			if !strings.Contains(o.err, file+say) {
				t.Errorf("%q: %q does not say %q", text, o.err, say)
			}
		}
		if n := strings.Count(o.err, file+":"); n != len(want) {
			t.Errorf("%q: %d problems:\n%s", text, n, o.err)
		}
		if strings.Contains(o.err, "--config") {
			t.Errorf("a flag that this verb does not have: %q", o.err)
		}
	}
	// The roles say no more of a broken file either.
	if err := os.WriteFile(file, []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"hub", "agent"} {
		o := tombolo(t, role, "--config", file)
		wantExit(t, o, 2, "config_invalid")
		if strings.Count(o.err, file+":") != 1 {
			t.Errorf("%s: %q", role, o.err)
		}
	}
	if o := tombolo(t, "config", "validate", file+".none"); strings.Contains(o.err, "--config") {
		t.Errorf("%q", o.err)
	}
}

func TestArgumentsAreCountedInEnglish(t *testing.T) {
	for line, say := range map[string]string{
		"demo foo":       "takes no arguments; 1 was given",
		"version a b":    "takes no arguments; 2 were given",
		"ping":           "takes 1 argument, CLUSTER; none was given",
		"connect c1":     "takes 2 arguments, CLUSTER HOST:PORT; 1 was given",
		"status a b c":   "takes at most one CLUSTER; 3 were given",
		"connect a b c ": "takes 2 arguments, CLUSTER HOST:PORT; 3 were given",
	} {
		wantExit(t, tombolo(t, strings.Fields(line)...), 2, say)
	}
}

func TestTextForPeople(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 4, 5, 0, time.FixedZone("", 3600))
	var b strings.Builder
	if err := printStatus(&b, admin.Status{Hub: admin.HubStatus{Version: "v1", Since: now.Add(-74 * time.Second), Draining: true}}, false, now); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "hub v1, running for 1m14s, draining, ") {
		t.Errorf("%q", b.String())
	}
	if got := moment(now); got != "2026-11-21 14:04:05 UTC" {
		t.Errorf("%q", got)
	}
	startHub(t)
	zoned := regexp.MustCompile(`\d\d:\d\d:\d\d UTC`)
	must(t, "token", "create", "--cluster", "c1")
	if out := must(t, "token", "list"); !zoned.MatchString(out) {
		t.Errorf("%q", out)
	}
	if o := tombolo(t, "certificate", "issue", "--role", "operator", "--name", "a", "--out", filepath.Join(t.TempDir(), "a")); !zoned.MatchString(o.err) {
		t.Errorf("%q", o.err)
	}
	if out := must(t, "certificate", "list"); !zoned.MatchString(out) {
		t.Errorf("%q", out)
	}
}

func TestCompletionOffersNoFilesWhereNoneAreMeant(t *testing.T) {
	const noFile, files = ":4\n", ":0\n"
	for line, want := range map[string]string{
		"ping ": noFile, "status ": noFile, "connect ": noFile, "connect c1 ": noFile, "egress-config ": noFile, "token revoke ": noFile,
		"token create --cluster ": noFile, "demo ": noFile, "hub --listen ": noFile,
		"config validate ": files, "hub --config ": files, "hub --state-dir ": files, "certificate issue --out ": files,
		"certificate issue --role ": "operator\nclient\nroute\nedge\nvpn-server\nvpn-client\nendpoint\n" + noFile, "config print --role ": "hub\nagent\ndiscovery\nmesh\nmembers\npolicy\nedge\ntenant\ncontroller\nroute\nvpn-server\nvpn-client\nvpn-forward\nvpn-routes\n" + noFile,
		"hub --log-level ": "debug\ninfo\nwarn\nerror\n" + noFile, "agent --log-level ": "debug\ninfo\nwarn\nerror\n" + noFile,
		"route manifest --kind ": "sidecar\ndeployment\n" + noFile, "route manifest --only ": "objects\npatch\n" + noFile, "route manifest --hub ": noFile, "route manifest --out ": files,
		"vpn manifest server --handshake ": "auth\ncrypt\nnone\n" + noFile, "vpn manifest client --protocol ": "tcp\nudp\n" + noFile, "vpn manifest client --identity ": files,
		"agent --log-format ": "text\njson\n" + noFile, "ping -o ": "text\njson\nyaml\n" + noFile,
	} {
		if o := tombolo(t, strings.Split("__complete "+line, " ")...); o.out != want {
			t.Errorf("%q: %q, want %q", line, o.out, want)
		}
	}
}

func TestManPagesHaveTheirOwnTitles(t *testing.T) {
	dir := t.TempDir()
	must(t, "reference", "man", "--out-dir", dir)
	for _, name := range []string{"tombolo", "tombolo-hub", "tombolo-token-create"} {
		if page := string(readFile(t, filepath.Join(dir, name+".1"))); !strings.Contains(page, `.TH "`+strings.ToUpper(name)+`" "1"`) {
			t.Errorf("%s: %.80q", name, page)
		}
	}
}

func TestDamagedOperatorFileIsNamed(t *testing.T) {
	const pemKey = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"
	w := startHub(t)
	good := filepath.Join(w.dir, "good.pem")
	must(t, "certificate", "issue", "--role", "operator", "--name", "alice", "--out", good)
	whole := string(readFile(t, good))
	file := filepath.Join(t.TempDir(), "alice.pem")
	for _, text := range []string{"", "no pem", pemKey, whole[:len(whole)/2], whole[:strings.LastIndex(whole, "-----BEGIN")]} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantExit(t, tombolo(t, "status", "--hub", w.listen, "--operator", file), 4, file, "\nhint: ", "certificate issue")
	}
}

func TestDemoBlamesWhatIsInItsWay(t *testing.T) {
	t.Setenv("TMPDIR", "/nonexistent")
	o := tombolo(t, "demo", "--rootless")
	wantExit(t, o, 1, "state_unwritable", "TMPDIR")
	if strings.Contains(o.err, "report") || strings.Contains(o.err, "above") {
		t.Errorf("%q", o.err)
	}
	if o := ontoFullDisk(t, "demo", "--rootless"); o.code != 1 || !strings.HasPrefix(o.err, "error: output_unwritable: ") {
		t.Errorf("exit %d, %q", o.code, o.err)
	}
}

// greet is a target that speaks first and ends.
func greet(c *net.TCPConn) { io.WriteString(c, "hello") }

// Ctrl-C while the hub is asked leaves no empty file and blames no hub.
func TestInterruptedIssueLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	_, files, err := egressCertificate(ctx, io.Discard, admin.OverSocket(filepath.Join(dir, "none.sock")), egressRequest{"c1", dir, "", "connect-tls"})
	if !fault.Has(err, fault.CodeInterrupted) || files != nil {
		t.Errorf("%v, %v", files, err)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
