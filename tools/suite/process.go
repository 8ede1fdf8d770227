// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// grace is what tests get for their cleanup after an interruption.
	grace = 2 * time.Minute
	// lingering is what processes of a group get to follow their leader.
	lingering = 2 * time.Second
)

// command is one program to run.
type command struct {
	dir  string
	env  []string
	args []string
	out  io.Writer // nil: the runner's output
	show string    // what to print instead of the command line
}

// output runs a quick command and gives what it prints.
func output(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// processes runs one command at a time in a process group of its own and passes
// interruptions on to it, so that it can clean up.
type processes struct {
	signals chan os.Signal
	ended   chan struct{}

	mu          sync.Mutex
	group       int // the running group; 0 for none
	interrupted bool
	warn        func(format string, args ...any)
}

// errInterrupted ends the suite.
var errInterrupted = errors.New("interrupted")

func newProcesses(warn func(string, ...any)) *processes {
	p := &processes{signals: make(chan os.Signal, 4), ended: make(chan struct{}), warn: warn}
	signal.Notify(p.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go p.forward()
	return p
}

// close stops forwarding.
func (p *processes) close() {
	signal.Stop(p.signals)
	close(p.signals)
	<-p.ended
}

// forward passes signals to the running group. A test that ignores them is
// killed when its grace is over.
func (p *processes) forward() {
	defer close(p.ended)
	var kill <-chan time.Time
	for {
		select {
		case s, ok := <-p.signals:
			if !ok {
				return
			}
			if s == syscall.SIGHUP {
				s = syscall.SIGTERM // go test knows no hangup
			}
			p.warn("%s: waiting for the running tests to clean up, at most %s", s, grace)
			if kill == nil {
				kill = time.After(grace)
			}
			p.interrupt(s.(syscall.Signal))
		case <-kill:
			p.warn("the grace is over: killing what is left; run the same target again, it removes what a killed run left")
			p.interrupt(syscall.SIGKILL)
		}
	}
}

func (p *processes) interrupt(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
	if p.group != 0 {
		// The group may be gone in this moment; then there is nothing to tell.
		_ = syscall.Kill(-p.group, s)
	}
}

func (p *processes) wasInterrupted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interrupted
}

// run runs a command to its end and waits for its whole process group.
func (p *processes) run(c command, stdout, stderr io.Writer) error {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, stdout, stderr
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = lingering // for what has left the group and holds the output
	if err := p.start(cmd); err != nil {
		return err
	}
	// Wait comes last: it waits for all that hold the output, and what is left of the group may.
	left := ended(cmd.Process.Pid) == nil && p.drain(cmd.Process.Pid)
	err := cmd.Wait()
	p.mu.Lock()
	p.group = 0
	p.mu.Unlock()
	switch {
	case p.wasInterrupted():
		return errInterrupted
	case left:
		return errors.Join(err, fmt.Errorf("%s left processes running; they were killed", c.args[0]))
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s left processes running outside of its group, which hold its output: %w", c.args[0], err)
	}
	return err
}

func (p *processes) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupted {
		return errInterrupted
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.group = cmd.Process.Pid
	return nil
}

// drain waits until nothing of the group runs, and kills it when something does for long. It says whether it had to.
func (p *processes) drain(group int) bool {
	deadline := time.Now().Add(lingering)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running(group) {
		if p.wasInterrupted() {
			<-tick.C // forward keeps the deadline
			continue
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(-group, syscall.SIGKILL) // gone in this moment is as good
			return true
		}
		<-tick.C
	}
	return false
}

// ended waits for the end of a child, and leaves it a zombie: nobody else gets its number until Wait.
func ended(pid int) error {
	const byPid = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}

// running says whether a group has a process that is no zombie. A signal cannot tell: it reaches zombies too, and one
// whose parent does not ask stays for as long as that.
func running(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for malformed patterns only
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		after := text[bytes.LastIndexByte(text, ')')+1:] // the name may hold anything
		if fields := strings.Fields(string(after)); len(fields) > 2 && fields[0] != "Z" && fields[0] != "X" &&
			fields[2] == strconv.Itoa(group) {
			return true
		}
	}
	return false
}
