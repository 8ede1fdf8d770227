// SPDX-License-Identifier: Apache-2.0

//go:build lab

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestLossyCableLoses: bytes arrive all the same, and packets were dropped at
// both ends.
func TestLossyCableLoses(t *testing.T) {
	b := testBench(t)
	at, err := b.lossyCable()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := parseTransport("tls")
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.pairAt(t.Context(), "tls", tr, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	for tries := 0; ; tries++ {
		takeSample(t, b, c, sample{measurement: "loss", variant: down, transport: "tls"}, rate)
		lost := 0
		for _, f := range b.losses {
			if n, err := f.Packets(); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				lost++
			}
		}
		if lost == 2 || t.Failed() {
			return
		}
		if tries == 20 {
			t.Fatalf("of %d ends %d lose packets", len(b.losses), lost)
		}
	}
}

// program runs this test program as the benchmark.
func program(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, &said
}

// TestInterruptLeavesNothing: in the midst of a run in namespaces, Ctrl-C ends
// the processes and removes the namespaces.
func TestInterruptLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		out := t.TempDir()
		cmd, said := program(t, "-only", "loss", "-transports", "tcp,tls", "-rounds", "1000", "-seconds", "0.01", "-out", out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		runtest.Eventually(t, "a sample", func() bool {
			data, _ := os.ReadFile(filepath.Join(out, "results.jsonl"))
			return bytes.Count(data, []byte("\n")) >= 2
		})
		if len(owned(t, pid)) == 0 {
			t.Error("the run has no namespaces: nothing is proven")
		}
		roles := children(t, pid)
		if len(roles) < 4 {
			t.Errorf("the run has processes %v, want two for each transport", roles)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v: ended with %v, want exit code 1\n%s", sig, err, said)
		}
		if left := owned(t, pid); len(left) > 0 {
			t.Errorf("%v: left behind: %q\n%s", sig, left, said)
		}
		for _, role := range roles {
			if err := unix.Kill(role, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("%v: process %d still lives (%v)", sig, role, err)
			}
		}
	}
}

// owned lists the namespaces and directories that a process of ours made: the
// lab names them after it.
func owned(t *testing.T, pid int) (out []string) {
	t.Helper()
	for _, place := range []string{"/run/netns", "/tmp", os.TempDir()} {
		found, err := filepath.Glob(filepath.Join(place, "tombolo-lab-*-"+strconv.FormatInt(int64(pid), 36)+"-*-bench*"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// children lists the processes that a process started.
func children(t *testing.T, pid int) (out []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, n)
		}
	}
	return out
}

// TestNothingIsLeft by the labs of this test program.
func TestNothingIsLeft(t *testing.T) {
	if left, err := lab.Leftovers(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
