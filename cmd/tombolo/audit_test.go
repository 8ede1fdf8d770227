// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// auditWorld is a world in which hub and agent write records.
func auditWorld(t *testing.T, settings string) (w *world, hubFile, agentFile string) {
	t.Helper()
	dir := runtest.Dir(t)
	config := func(kind, name, more string) (file, records string) {
		records = filepath.Join(dir, name+".jsonl")
		file = filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: %s\naudit: {path: %s%s}\n%s", kind, records, settings, more)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file, records
	}
	hubConfig, hubFile := config("HubConfig", "hub", "clusters: [{name: c1, sockets: [{protocol: connect}]}]\n")
	agentConfig, agentFile := config("AgentConfig", "agent", "")
	w = startHub(t, "--config", hubConfig)
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.health = runtest.Address(8445)
	w.agent = w.runAgent(t, "--config", agentConfig)
	return w, hubFile, agentFile
}

// queried runs audit query and reads its lines.
func queried(t *testing.T, args ...string) (out []audit.Record) {
	t.Helper()
	text := must(t, append([]string{"audit", "query", "-o", "json"}, args...)...)
	for line := range strings.Lines(text) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// TestEveryDialLeavesARecord dials through real processes.
func TestEveryDialLeavesARecord(t *testing.T) {
	w, hubFile, agentFile := auditWorld(t, "")
	to := echo(t)
	// A stream's record comes when it has ended at both ends, and the agent's of a
	// refusal after its answer: the caller may have gone on by then.
	recorded := func(hub, agent int) {
		t.Helper()
		runtest.Eventually(t, fmt.Sprintf("%d and %d records are there", hub, agent), func() bool {
			return len(queried(t, hubFile)) == hub && len(queried(t, agentFile)) == agent
		})
	}
	follower := startProcess(t, "audit", "tail", "-f", hubFile)
	if o := tomboloIn(t, "question", "connect", "c1", to); o.out != "question" {
		t.Fatalf("%+v", o)
	}
	recorded(1, 1)
	wantExit(t, tombolo(t, "connect", "c1", "169.254.169.254:80"), 4, "policy_denied")
	recorded(2, 2)
	wantExit(t, tombolo(t, "connect", "c1", runtest.Address(9)), 1, "dial_refused")
	recorded(3, 3)
	wantExit(t, tombolo(t, "connect", "nope", "10.0.0.1:80"), 1, "cluster_unknown")
	smuggle(t, filepath.Join(w.dir, "run/clusters/c1/connect.sock"), "GET / HTTP/1.1\r\nAuthorization: Bearer S3CR3T\r\nHost: x\r\n\r\n")
	recorded(5, 3)

	for i, want := range []audit.Record{
		{Kind: audit.KindDial, Asked: to, Resolved: to, Up: 8, Down: 8, Code: "ok", Caller: "operator", Frontend: "admin", Cluster: "c1"},
		{Kind: audit.KindRefusal, Asked: "169.254.169.254:80", Code: "policy_denied", Verdict: audit.Deny, Caller: "operator", Frontend: "admin", Cluster: "c1"},
		{Kind: audit.KindDial, Asked: runtest.Address(9), Code: "dial_refused", Caller: "operator", Frontend: "admin", Cluster: "c1"},
		{Kind: audit.KindRefusal, Asked: "10.0.0.1:80", Code: "cluster_unknown", Caller: "operator", Frontend: "admin", Cluster: "nope"},
		{Kind: audit.KindRefusal, Code: "method_not_allowed", Caller: "unix:c1/connect", Frontend: "connect", Cluster: "c1"},
	} {
		r := queried(t, hubFile)[i]
		if i == 2 {
			want.Asked = r.Asked // each call of Address gives another
		}
		if r.Kind != want.Kind || r.Asked != want.Asked || r.Resolved != want.Resolved || r.Up != want.Up || r.Down != want.Down ||
			r.Code != want.Code || r.Verdict != want.Verdict || r.Caller != want.Caller || r.Frontend != want.Frontend ||
			r.Cluster != want.Cluster || r.At != audit.AtHub || r.Duration <= 0 || time.Since(r.Time) > time.Hour {
			t.Errorf("hub, %d: %+v", i, r)
		}
		if i == 0 && r.Agent == "" || i == 4 && (r.Peer == nil || int(r.Peer.UID) != os.Getuid() || int(r.Peer.PID) != os.Getpid()) {
			t.Errorf("hub, %d: %+v", i, r)
		}
	}
	agent := queried(t, agentFile)
	if r := agent[0]; r.At != audit.AtAgent || r.Resolved != to || r.Up != 8 || r.Down != 8 || r.Verdict != audit.Allow || r.Rule != "127.0.0.0/8" ||
		r.Cluster != "c1" || r.Caller != "operator" || r.Agent != queried(t, hubFile)[0].Agent {
		t.Errorf("agent: %+v", r)
	}
	if r := agent[1]; r.Kind != audit.KindRefusal || r.Verdict != audit.Deny || r.Code != "policy_denied" {
		t.Errorf("agent: %+v", r)
	}
	for _, file := range []string{hubFile, agentFile} {
		if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "S3CR3T") || strings.Contains(string(data), w.join) {
			t.Errorf("%s holds a secret, %v", file, err)
		}
	}
	runtest.Eventually(t, "the follower has shown them all", func() bool { return strings.Count(follower.Out.String(), "\n") == 5 })
	follower.Process.Signal(os.Interrupt)
	if code := follower.Exit(t); code != 0 {
		t.Errorf("an interrupted tail -f gives %d", code)
	}
}

// smuggle sends a request over a socket and waits for the refusal.
func smuggle(t *testing.T, path, request string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	conn.Read(make([]byte, 1024))
}

// TestStrictRefusesDials takes the folder of the records away.
func TestStrictRefusesDials(t *testing.T) {
	_, hubFile, _ := auditWorld(t, ", strict: true")
	to, dir := echo(t), filepath.Dir(hubFile)
	if o := tomboloIn(t, "x", "connect", "c1", to); o.out != "x" {
		t.Fatalf("%+v", o)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "a dial is refused", func() bool {
		o := tomboloIn(t, "x", "connect", "c1", to)
		return o.code == 3 && strings.Contains(o.err, string(fault.CodeAudit))
	})
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "a dial is admitted", func() bool { return tomboloIn(t, "x", "connect", "c1", to).code == 0 })
	refused := queried(t, hubFile, "--code", "audit_unavailable")
	if len(refused) == 0 || refused[0].Kind != audit.KindRefusal {
		t.Errorf("%+v", refused)
	}
}

// TestAuditQuery reads rotated and packed files in order, with filters.
func TestAuditQuery(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.jsonl")
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(i int, verdict string) string {
		r := audit.Record{Kind: audit.KindDial, Time: base.Add(time.Duration(i) * time.Hour), ID: fmt.Sprint(i), Cluster: fmt.Sprintf("c%d", i%2),
			Caller: "unix:c/connect", Asked: fmt.Sprintf("10.0.0.%d:443", i), Verdict: verdict, Rule: "r\x1b[31m"}
		r.End(nil)
		return string(audit.Append(nil, r))
	}
	packed, err := os.Create(file + ".000001.gz")
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(packed)
	z.Write([]byte(line(0, audit.Allow) + line(1, audit.Deny)))
	z.Close()
	packed.Close()
	lost := string(audit.Append(nil, audit.Record{Kind: audit.KindLost, Time: base.Add(150 * time.Minute), Count: 7}))
	for name, text := range map[string]string{
		file + ".000002": line(2, audit.Allow) + "torn\n" + lost + line(3, audit.Deny),
		file:             line(4, audit.Allow) + line(5, audit.Allow)[:40],
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"":                                  "0 1 2 lost 3 4",
		"--cluster c1":                      "1 lost 3",
		"--cluster c*":                      "0 1 2 lost 3 4",
		"--denied":                          "1 lost 3",
		"--target 10.0.0.4":                 "lost 4",
		"--target 10.0.0.0/30:443":          "",
		"--target 10.0.0.2/31":              "2 lost 3",
		"--since 2026-01-02T06:00:00Z":      "3 4",
		"--until 2026-01-02T05:00:00+00:00": "0 1",
		"--since 2026-01-03":                "",
		"--since 1h":                        "",
		"--code ok --rule r*":               "0 1 2 lost 3 4",
		"--caller unix:c/* --agent x":       "lost",
		file + ".000002 " + file + " " + file + " ": "0 1 2 lost 3 4",
	} {
		o := tombolo(t, append([]string{"audit", "query", file, "-o", "json"}, strings.Fields(args)...)...)
		if want == "" && strings.Contains(args, "/30:443") {
			wantExit(t, o, 2, "--target")
			continue
		}
		var got []string
		for l := range strings.Lines(o.out) {
			var r audit.Record
			if err := json.Unmarshal([]byte(l), &r); err != nil {
				t.Fatal(err)
			}
			if r.Kind == audit.KindLost {
				r.ID = "lost"
			}
			got = append(got, r.ID)
		}
		sorted := strings.Contains(args, file)
		if s := strings.Join(got, " "); o.code != 0 || s != want && !sorted || sorted && len(got) != 6 {
			t.Errorf("%s: %s, not %s (exit %d)", args, s, want, o.code)
		}
		if strings.Count(o.err, "warning: ") != 2 || !strings.Contains(o.err, file+".000002:2: ") || !strings.Contains(o.err, file+":2: the last line has no end") {
			t.Errorf("%s: stderr is %s", args, o.err)
		}
	}
	text := must(t, "audit", "query", file)
	if strings.Count(text, "\n") != 6 || strings.Contains(text, "\x1b") || !strings.Contains(text, "7 records are missing") ||
		!strings.Contains(text, "unix:c/connect -> 10.0.0.3:443") {
		t.Errorf("%s", text)
	}
	if o := tomboloIn(t, line(9, audit.Allow), "audit", "query", "-", "-o", "json"); o.out != line(9, audit.Allow) {
		t.Errorf("stdin: %+v", o)
	}
	for args, want := range map[string]int{"": 6, "-n 2": 2, "-n 0": 0, "-n 3 --denied": 3, "-n 1 --cluster c0": 1} {
		o := tombolo(t, append([]string{"audit", "tail", file}, strings.Fields(args)...)...)
		if o.code != 0 || strings.Count(o.out, "\n") != want {
			t.Errorf("tail %s: %+v", args, o)
		}
	}
	for args, says := range map[string]string{
		"audit query": "at least one FILE", "audit query " + dir + "/none": "none", "audit tail": "FILE", "audit tail -n -1 " + file: "--lines",
		"audit query x --since soon": "--since", "audit query x --until soon": "--until", "audit query x --code nonsense": "nonsense",
		"audit query x --caller a*b*": "more than one *", "audit query x --output yaml": "yaml", "audit tale": "did you mean tail?",
	} {
		wantExit(t, tombolo(t, strings.Fields(args)...), 2, says)
	}
}
