// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestHubEndsOnSignals(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		w := startHub(t)
		socket := filepath.Join(w.dir, "run/admin/hub.sock")
		w.hub.Process.Signal(sig)
		if code := w.hub.Exit(t); code != 0 {
			t.Errorf("%v: exit %d\n%s", sig, code, w.hub.Err.String())
		}
		if _, err := os.Lstat(socket); err == nil {
			t.Errorf("%v: the socket is left", sig)
		}
		if out := w.hub.Out.String(); out != "" {
			t.Errorf("%v: logs belong on stderr, not %q", sig, out)
		}
	}
}

// The first SIGTERM drains, the second ends at once; the same for an agent.
func TestSecondSignalEndsTheDrain(t *testing.T) {
	for _, which := range []string{"hub", "agent"} {
		t.Run(which, func(t *testing.T) {
			w := startWorld(t)
			if which == "agent" {
				w.agent.Process.Signal(syscall.SIGTERM)
				if code := w.agent.Exit(t); code != 0 {
					t.Fatalf("exit %d", code)
				}
				w.agent = w.runAgent(t, "--drain-timeout", "1h")
			}
			p := w.hub
			if which == "agent" {
				p = w.agent
			}
			conn := startProcess(t, "connect", "c1", echo(t))
			io.WriteString(conn.Input, "hello")
			runtest.Eventually(t, "the echo", func() bool { return conn.Out.String() == "hello" })
			p.Process.Signal(syscall.SIGTERM)
			p.Says(t, "draining")
			io.WriteString(conn.Input, " again")
			runtest.Eventually(t, "the stream goes on", func() bool { return conn.Out.String() == "hello again" })
			select {
			case <-p.Done():
				t.Fatalf("it did not wait for the stream:\n%s", p.Err.String())
			default:
			}
			p.Process.Signal(syscall.SIGTERM)
			if code := p.Exit(t); code != 0 {
				t.Errorf("exit %d\n%s", code, p.Err.String())
			}
			if code := conn.Exit(t); code == 0 {
				t.Error("a cut stream looks like an end in order")
			}
		})
	}
}

func TestAgentEndsOnSignal(t *testing.T) {
	w := startWorld(t)
	w.agent.Process.Signal(syscall.SIGTERM)
	if code := w.agent.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	runtest.Eventually(t, "the hub knows why", func() bool { return strings.Contains(must(t, "status"), "draining: the agent was stopped") })
}

// SIGHUP and a changed file load the configuration; a bad one is refused, and
// the process lives.
func TestReloadOnSignalAndChange(t *testing.T) {
	dir := runtest.Dir(t)
	file := filepath.Join(dir, "hub.yaml")
	write := func(clusters string) {
		t.Helper()
		text := "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n" + clusters
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	socket := func(w *world, cluster string) bool {
		_, err := os.Lstat(filepath.Join(w.dir, "run/clusters", cluster, "connect.sock"))
		return err == nil
	}
	write("clusters:\n- name: c1\n  sockets: [{protocol: connect}]\n")
	w := startHub(t, "--config", file)
	if !socket(w, "c1") {
		t.Fatal("the configured socket is not there")
	}
	write("clusters:\n- name: c1\n  sockets: [{protocol: connect}]\n- name: c2\n  sockets: [{protocol: connect}]\n")
	runtest.Eventually(t, "the change is noticed without a signal", func() bool { return socket(w, "c2") })

	write("clusters: nonsense\ncolour: red\n")
	w.hub.Says(t, "the last good one stays")
	for _, say := range []string{"config_invalid", file + ":3:11", file + ":4:1"} {
		if !strings.Contains(w.hub.Err.String(), say) {
			t.Errorf("the log does not say %q", say)
		}
	}
	before := strings.Count(w.hub.Err.String(), "the last good one stays")
	w.hub.Process.Signal(syscall.SIGHUP)
	runtest.Eventually(t, "SIGHUP reads it again", func() bool {
		return strings.Count(w.hub.Err.String(), "the last good one stays") > before
	})
	if !socket(w, "c1") || !socket(w, "c2") {
		t.Error("the bad file closed a socket")
	}
	write("clusters:\n- name: c2\n  sockets: [{protocol: connect}]\n")
	w.hub.Process.Signal(syscall.SIGHUP)
	runtest.Eventually(t, "the removed socket is closed", func() bool { return !socket(w, "c1") && socket(w, "c2") })
	w.hub.Process.Signal(syscall.SIGTERM)
	if code := w.hub.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A change is loaded where others write in the same folder all the time, and after more
// events than the kernel keeps.
func TestReloadInABusyFolder(t *testing.T) {
	dir := t.TempDir()
	file := &configFile{path: filepath.Join(dir, "hub.yaml")}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hub.yaml", "first")
	goOn, loaded := make(chan struct{}), make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reloader(ctx, file, slog.New(slog.DiscardHandler), func() error {
			text, err := file.load()
			loaded <- string(text)
			<-goOn
			return err
		})
	}()
	defer func() { cancel(); <-done }()
	wait := func(want string) {
		t.Helper()
		runtest.Eventually(t, want+" is loaded", func() bool {
			write("log", "x")
			select {
			case got := <-loaded:
				return got == want
			default:
				return false
			}
		})
	}
	wait("first")
	var most int
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err != nil {
		t.Fatal(err)
	} else if most, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	for range most { // two events each, while nobody reads them
		write("other", "")
		os.Remove(filepath.Join(dir, "other"))
	}
	close(goOn)
	write("hub.yaml", "the second one")
	wait("the second one")
	write("hub.yaml", "the third one, of all")
	wait("the third one, of all")
}

// The line may come from a file or from stdin, and the same command works again.
func TestJoinLineFromFileAndStdin(t *testing.T) {
	w := startWorld(t)
	w.agent.Process.Signal(syscall.SIGTERM)
	w.agent.Exit(t)
	line := w.join
	file := filepath.Join(w.dir, "line")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.join = "@" + file
	w.agent = w.runAgent(t)
	w.agent.Process.Signal(syscall.SIGTERM)
	w.agent.Exit(t)
	p := startProcess(t, "agent", "--join", "-", "--state-dir", filepath.Join(w.dir, "agent"), "--allow", "127.0.0.0/8", "--health-listen", w.health)
	io.WriteString(p.Input, line+"\n")
	p.Input.Close()
	p.Says(t, "using the stored identity")
	p.Says(t, "connected")
}

// A second hub on the same everything says what is in its way and leaves the first alone.
func TestSecondHubIsTurnedAway(t *testing.T) {
	w := startWorld(t)
	args := []string{"hub", "--run-dir", filepath.Join(w.dir, "run"), "--admin-listen", runtest.Address(8444)}
	same := append(args, "--state-dir", filepath.Join(w.dir, "hub"), "--listen", runtest.Address(8443))
	wantExit(t, tombolo(t, same...), 1, "state_busy", "--state-dir")
	port := append(args, "--state-dir", filepath.Join(w.dir, "hub2"), "--listen", w.listen)
	wantExit(t, tombolo(t, port...), 1, "address_in_use", w.listen)
	run := append(args, "--state-dir", filepath.Join(w.dir, "hub3"), "--listen", runtest.Address(8443))
	wantExit(t, tombolo(t, run...), 1, "socket_in_use", "--run-dir")
	if out := must(t, "status"); !strings.Contains(out, "connected") {
		t.Errorf("the first hub: %q", out)
	}
}

// What changes between the start's reading and the watch is loaded, without any event of the file system.
func TestChangeBeforeTheWatchIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub.yaml")
	replace := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	replace("one")
	file := &configFile{path: path}
	read := func() string {
		t.Helper()
		data, err := file.load()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	read()
	replace("two")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := ""
	reload := func() error {
		loaded = read()
		cancel()
		return nil
	}
	late := time.AfterFunc(runtest.Patience, cancel)
	defer late.Stop()
	reloader(ctx, file, slog.New(slog.DiscardHandler), reload)
	if loaded != "two" {
		t.Errorf("the last that was read is %q", loaded)
	}
	if file.changed() {
		t.Error("a file that was just read counts as changed")
	}
}
