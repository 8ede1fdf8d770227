// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// beMain makes the test binary be the program, so that signals and exits are
// tested on a real process.
const beMain = "TOMBOLO_TEST_BE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
		return
	}
	os.Setenv("TOMBOLO_WAIT", "0") // most tests ask for what is not there to see that said
	os.Exit(m.Run())
}

// outcomeOf is what a command line gave.
type outcomeOf struct {
	code     int
	out, err string
}

// tombolo runs one command line in this process.
func tombolo(t *testing.T, args ...string) outcomeOf {
	t.Helper()
	return tomboloIn(t, "", args...)
}

func tomboloIn(t *testing.T, stdin string, args ...string) outcomeOf {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runtest.Patience)
	defer cancel()
	var out, err bytes.Buffer
	code := execute(ctx, append([]string{}, args...), strings.NewReader(stdin), &out, &err)
	return outcomeOf{code, out.String(), err.String()}
}

// must runs a command line that has to succeed and gives its output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	o := tombolo(t, args...)
	if o.code != 0 {
		t.Fatalf("tombolo %s: exit %d\n%s", strings.Join(args, " "), o.code, o.err)
	}
	return o.out
}

// wantExit fails unless the code is right and stderr begins with an error and,
// where there is something to do, ends with a hint.
func wantExit(t *testing.T, o outcomeOf, code int, says ...string) {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit %d, want %d\n%s", o.code, code, o.err)
	}
	if !strings.HasPrefix(o.err, "error: ") {
		t.Errorf("stderr does not begin with an error: %q", o.err)
	}
	for _, say := range says {
		if !strings.Contains(o.err, say) {
			t.Errorf("stderr does not say %q: %q", say, o.err)
		}
	}
}

// process is the program as a process of its own.
type process = runtest.Process

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Env = append(os.Environ(), beMain+"=1")
	return runtest.Start(t, cmd)
}

// world is a running hub with an agent of one cluster, each a process.
type world struct {
	dir, listen, health string
	cluster             string
	hub, agent          *process
	join                string
}

// startHub starts a hub; the environment makes every verb find it.
func startHub(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{dir: runtest.Dir(t), listen: runtest.Address(8443), cluster: "c1"}
	w.hub = w.runHub(t, more...)
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(w.dir, "run/admin/hub.sock"))
	return w
}

func (w *world) runHub(t *testing.T, more ...string) *process {
	t.Helper()
	p := startProcess(t, append([]string{"hub", "--state-dir", filepath.Join(w.dir, "hub"), "--run-dir", filepath.Join(w.dir, "run"),
		"--listen", w.listen, "--admin-listen", strings.TrimSuffix(w.listen, "8443") + "8444", "--advertise", w.listen}, more...)...)
	p.Says(t, "hub is ready")
	return p
}

// startWorld starts a hub and an agent that may reach loopback.
func startWorld(t *testing.T) *world {
	t.Helper()
	w := startHub(t)
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.health = runtest.Address(8445)
	w.agent = w.runAgent(t)
	return w
}

func (w *world) runAgent(t *testing.T, more ...string) *process {
	t.Helper()
	begun := time.Now()
	p := startProcess(t, append([]string{"agent", "--join", w.join, "--state-dir", filepath.Join(w.dir, "agent"),
		"--allow", "127.0.0.0/8", "--health-listen", w.health}, more...)...)
	p.Says(t, "connected")
	w.attended(t, begun)
	return p
}

// attended waits until the hub has a session with an agent of the cluster that began after a time. The agent
// itself says "connected" when it has asked for the session, and a dial before the hub has it is refused.
func (w *world) attended(t *testing.T, begun time.Time) {
	t.Helper()
	runtest.Eventually(t, "the hub has the agent of "+w.cluster, func() bool {
		var st admin.Status
		strictly(t, must(t, "status", w.cluster, "-o", "json"), &st)
		return len(st.Clusters) == 1 && slices.ContainsFunc(st.Clusters[0].Agents, func(a admin.AgentStatus) bool {
			return a.Connected && !a.Since.Before(begun)
		})
	})
}

// target serves connections and closes each behind that.
func target(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	return runtest.Serve(t, func(c *net.TCPConn) {
		defer c.Close()
		serve(c)
	}).Addr()
}

func echo(t *testing.T) string { return runtest.Echo(t).Addr() }
