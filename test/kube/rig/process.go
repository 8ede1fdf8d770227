// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a program that the rig started and that writes its output to a file.
type Process struct {
	Name string
	Log  string // path of what it wrote
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// launch describes a process to start.
type launch struct {
	name  string
	netns string
	args  []string
	env   []string
	attr  *syscall.SysProcAttr
}

// start runs a program until Stop; its output goes to <dir>/<name>.log.
func (r *Rig) start(dir string, l launch) (*Process, error) {
	log := filepath.Join(dir, l.name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", l.name, err)
	}
	defer out.Close() // the child has its own copy
	cmd := exec.Command(l.args[0], l.args[1:]...)
	cmd.Env = append(os.Environ(), l.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = l.attr
	if err := r.starter.start(l.netns, cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", l.name, err)
	}
	p := &Process{Name: l.name, Log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's number in the caller's PID namespace.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to a process that may have ended already.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process: politely first, and with SIGKILL after grace.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	if grace > 0 {
		_ = p.Signal(syscall.SIGTERM) // a failure ends in SIGKILL below
		select {
		case <-p.done:
			return
		case <-time.After(grace):
		}
	}
	_ = p.Signal(syscall.SIGKILL) // fails only where the process is gone
	<-p.done
}

// Tail is the end of what the process wrote, for error messages.
func (p *Process) Tail() string { return tail(p.Log) }

func tail(path string) string {
	const want = 2500
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > want {
		if _, err := f.Seek(-want, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// await asks check again and again until it is content. It gives up, with the process's last words, when ctx
// ends or the process does.
func await(ctx context.Context, what string, p *Process, check func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var ended <-chan struct{} // never ready where no process is watched
	said := func() string { return "" }
	if p != nil {
		ended = p.done
		said = func() string { return "\n--- end of " + p.Log + "\n" + p.Tail() }
	}
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s: %s ended (%v)%s", what, p.Name, p.err, said())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %v%s", what, ctx.Err(), last, said())
		case <-tick.C:
		}
	}
}

// output runs a short command in a network namespace and returns what it printed.
func (r *Rig) output(ctx context.Context, netns string, args ...string) (string, error) {
	return r.outputOf(ctx, netns, nil, args...)
}

// outputOf is output with something to read.
func (r *Rig) outputOf(ctx context.Context, netns string, in io.Reader, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := r.starter.start(netns, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
