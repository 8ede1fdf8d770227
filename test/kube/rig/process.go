// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Process is a program that the rig started and that writes its output to a file.
type Process struct {
	*lab.Process
	Name string
	Log  string // path of what it wrote
}

// launch describes a process to start.
type launch struct {
	name string
	host *lab.Host
	args []string
	attr *syscall.SysProcAttr
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
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, l.attr
	p, err := l.host.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &Process{Process: p, Name: l.name, Log: log}, nil
}

// stop kills the process, if there is one: what it made is test data.
func (p *Process) stop() {
	if p == nil {
		return
	}
	p.Kill()
	<-p.Done()
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
		ended = p.Done()
		said = func() string { return "\n--- end of " + p.Log + "\n" + p.Tail() }
	}
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s: %s ended (%v)%s", what, p.Name, p.Wait(), said())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %v%s", what, ctx.Err(), last, said())
		case <-tick.C:
		}
	}
}

// output runs a short command on a host and returns what it printed.
func output(ctx context.Context, host *lab.Host, args ...string) (string, error) {
	return outputOf(ctx, host, nil, args...)
}

// outputOf is output with something to read.
func outputOf(ctx context.Context, host *lab.Host, in io.Reader, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := host.Run(ctx, cmd); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
