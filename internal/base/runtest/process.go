// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs beside the test, and is killed at its end.
type Process struct {
	*exec.Cmd
	Input    io.WriteCloser
	Out, Err Transcript
	done     chan struct{}
}

// Start runs a command. What it says goes to Out, unless the command names another place, and to Err.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, done: make(chan struct{})}
	if p.Stdout == nil {
		p.Stdout = &p.Out
	}
	p.Stderr = &p.Err
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.Input, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait() // its exit code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%s:\n%s%s", strings.Join(cmd.Args, " "), p.Out.String(), p.Err.String())
		}
	})
	return p
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for the end and gives the exit code.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("it does not end:\n%s", p.Err.String())
		return -1
	}
}

// End sends a signal, waits for the end and gives the exit code.
func (p *Process) End(t testing.TB, sig syscall.Signal) int {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	return p.Exit(t)
}

// Says waits until the process has written the text to stderr.
func (p *Process) Says(t testing.TB, text string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%q on stderr", text), func() bool {
		select {
		case <-p.done:
			if !strings.Contains(p.Err.String(), text) {
				t.Fatalf("it ended without %q:\n%s", text, p.Err.String())
			}
		default:
		}
		return strings.Contains(p.Err.String(), text)
	})
}
