// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// demoRun is a running `tombolo demo` from a program file of its own, so that
// its processes can be told from everybody else's.
type demoRun struct {
	t       *testing.T
	program string
	cmd     *exec.Cmd
	process *lab.Process
	mu      sync.Mutex
	out     bytes.Buffer
	copied  chan struct{}
}

// demoWithin is the promise: under a minute once built.
const demoWithin = time.Minute

// startDemo starts the demo with its output on a pipe or on a terminal.
func startDemo(t *testing.T, terminal bool, configure func(*exec.Cmd), args ...string) *demoRun {
	t.Helper()
	l := labtest.New(t, "demotest")
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	d := &demoRun{t: t, program: filepath.Join(dir, "tombolo"), copied: make(chan struct{})}
	if err := os.Link(labtest.Program(t), d.program); err != nil {
		t.Fatal(err)
	}
	var reader, writer *os.File
	if terminal {
		reader, writer, err = openTerminal()
	} else {
		reader, writer, err = os.Pipe()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(d.program, append([]string{"demo"}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = writer, writer
	// When these tests are interrupted the demo shall clean up after itself.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if configure != nil {
		configure(d.cmd)
	}
	d.process, err = l.Here().Start(d.cmd)
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.copied)
		_, _ = io.Copy(d, reader) // a terminal ends with EIO
		reader.Close()
	}()
	t.Cleanup(func() {
		_ = d.process.Stop(10 * time.Second) // a test that failed leaves it running
		d.requireNothingLeft()
	})
	return d
}

// openTerminal makes a pseudo-terminal (pts(4)).
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err,
		unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}))
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		master.Close()
	}
	return master, slave, err
}

func (d *demoRun) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Write(p)
}

func (d *demoRun) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.String()
}

// waitFor waits until the demo has said something.
func (d *demoRun) waitFor(text string) {
	d.t.Helper()
	deadline := time.Now().Add(demoWithin)
	for !strings.Contains(d.said(), text) {
		if time.Now().After(deadline) {
			d.t.Fatalf("the demo did not say %q:\n%s", text, d.said())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wait returns the exit code.
func (d *demoRun) wait() int {
	d.t.Helper()
	select {
	case <-d.process.Done():
	case <-time.After(demoWithin):
		d.t.Fatalf("the demo has not ended after %v:\n%s", demoWithin, d.said())
	}
	<-d.copied
	return d.cmd.ProcessState.ExitCode()
}

// requireNothingLeft looks for processes, namespaces, mounts and directories
// of the demo, which has ended.
func (d *demoRun) requireNothingLeft() {
	d.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for len(d.processes()) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if left := d.processes(); len(left) > 0 {
		d.t.Errorf("processes of the demo still run: %q", left)
	}
	if left := d.names(); len(left) > 0 {
		d.t.Errorf("the demo left behind: %q", left)
	}
}

// processes lists what runs from the demo's program file.
func (d *demoRun) processes() []string {
	var found []string
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if to, err := os.Readlink(exe); err == nil && strings.TrimSuffix(to, " (deleted)") == d.program {
			found = append(found, exe)
		}
	}
	return found
}

// names lists the namespaces and directories whose names bear the demo's pid.
func (d *demoRun) names() []string {
	pid := strconv.FormatInt(int64(d.process.Pid()), 36)
	var found []string
	for _, dir := range []string{"/run/netns", "/tmp", os.TempDir()} {
		paths, err := filepath.Glob(filepath.Join(dir, "tombolo-lab-*-"+pid+"-*-demo*"))
		if err != nil {
			d.t.Error(err)
		}
		found = append(found, paths...)
	}
	return found
}

func (d *demoRun) requireOK(code int) {
	d.t.Helper()
	lines := strings.Split(strings.TrimSpace(d.said()), "\n")
	if code != 0 || !strings.Contains(lines[len(lines)-1], "demo: ok") {
		d.t.Errorf("exit code %d, and the last line is not \"demo: ok\":\n%s", code, d.said())
	}
}

func TestDemoWithoutTerminal(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	d := startDemo(t, false, nil)
	d.requireOK(d.wait())
	d.requireNothingLeft()
	t.Logf("took %v\n%s", time.Since(begin).Round(time.Millisecond), d.said())
	if strings.ContainsAny(d.said(), "\x1b\r") {
		t.Error("escape sequences in output that is no terminal")
	}
	for _, want := range []string{"hello from c1", "hello from c2", "169.254.169.254", "policy_denied", "no_agent", "MB/s",
		"tls: access denied", "no rule allows 198.51.100.1 for hub/vpn"} {
		if !strings.Contains(d.said(), want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
}

func TestDemoOfTheMesh(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	d := startDemo(t, false, nil, "--mesh")
	d.requireOK(d.wait())
	d.requireNothingLeft()
	t.Logf("took %v\n%s", time.Since(begin).Round(time.Millisecond), d.said())
	for _, want := range []string{"through the relay: no direct path exists", "direct: it is at", "direct again", "none with any of the"} {
		if !strings.Contains(d.said(), want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
}

func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	d := startDemo(t, true, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	})
	d.requireOK(d.wait())
	if !strings.Contains(d.said(), "\r\x1b[K") {
		t.Error("steps are not overwritten on a terminal")
	}
	if strings.Contains(d.said(), "\x1b[3") || strings.Contains(d.said(), "\x1b[1m") {
		t.Error("colour in spite of NO_COLOR")
	}
}

func TestDemoCleansUpWhenInterrupted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after  string
		signal syscall.Signal
		args   []string
	}{
		{"tombolo demo", syscall.SIGINT, nil},
		{"ok network", syscall.SIGINT, nil},
		{"ok hub", syscall.SIGTERM, nil},
		{"ok agents", syscall.SIGINT, nil},
		{"ok agent killed", syscall.SIGHUP, nil},
		{"ok nodes", syscall.SIGINT, []string{"--mesh"}},
		{"a$ tombolo mesh status", syscall.SIGINT, []string{"--mesh"}},
	} {
		t.Run(c.after+" "+c.signal.String(), func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, false, nil, c.args...)
			d.waitFor(c.after)
			if err := d.process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			if code := d.wait(); code == 0 {
				t.Errorf("exit code 0 after %v:\n%s", c.signal, d.said())
			}
			if !strings.Contains(d.said(), "interrupted") {
				t.Errorf("it does not say that it was interrupted:\n%s", d.said())
			}
		})
	}
}

func TestDemoKilledLeavesNoProcessAndIsSwept(t *testing.T) {
	d := startDemo(t, false, nil)
	d.waitFor("ok agents")
	if got := d.processes(); len(got) < 4 {
		t.Errorf("processes of the demo: %q, want itself, a hub and two agents (and maybe a verb)", got)
	}
	if got := d.names(); len(got) < 9 {
		t.Errorf("names of the demo: %q, want 8 namespaces and a directory", got)
	}
	if err := d.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.wait()
	if _, err := lab.Sweep(); err != nil {
		t.Fatal(err)
	}
	d.requireNothingLeft()
}

func TestDemoWhoseOutputEnds(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, "pipe")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(labtest.Program(t), "demo")
	cmd.Stdout = writer
	p, err := l.Here().Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	writer.Close()
	reader.Close()
	timer := time.AfterFunc(demoWithin, p.Kill)
	defer timer.Stop()
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() < 1 {
		t.Errorf("the demo ended with %v, want a failure exit code and no signal", err)
	}
}

func TestDemoWithoutRoot(t *testing.T) {
	t.Parallel()
	unprivileged := func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}
		cmd.Dir = "/"
	}
	t.Run("says what it needs", func(t *testing.T) {
		d := startDemo(t, false, unprivileged)
		if code := d.wait(); code == 0 || !strings.Contains(d.said(), "root") || !strings.Contains(d.said(), "--rootless") {
			t.Errorf("exit code %d; want a failure that names root and --rootless:\n%s", code, d.said())
		}
	})
	t.Run("plays on the loopback", func(t *testing.T) {
		d := startDemo(t, false, unprivileged, "--rootless")
		d.requireOK(d.wait())
		for _, want := range []string{"hello from c1", "policy_denied", "no rule allows 127.0.0.9", "answers again", "need root"} {
			if !strings.Contains(d.said(), want) {
				t.Errorf("the demo does not show %q:\n%s", want, d.said())
			}
		}
	})
}
