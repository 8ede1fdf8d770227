// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// starter starts processes from one thread that lives as long as the rig. Two reasons: a child inherits the
// network namespace of the thread that forks it, and the kernel sends a child's death signal when that
// thread ends, not when the process does; a thread of Go's own choosing may end at any time.
type starter struct{ jobs chan func() }

func newStarter() *starter {
	s := &starter{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// close ends the thread. Children that still run get their death signal.
func (s *starter) close() { close(s.jobs) }

// start starts cmd in a network namespace ("" is the caller's own).
func (s *starter) start(netns string, cmd *exec.Cmd) error {
	attr := cmd.SysProcAttr
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = syscall.SIGKILL
	attr.Setpgid = true // Ctrl-C reaches the owner only, which takes things down in order
	cmd.SysProcAttr = attr
	done := make(chan error, 1)
	s.jobs <- func() { done <- inNetns(netns, cmd.Start) }
	return <-done
}

// inNetns runs f on the calling, locked thread inside a network namespace, and goes back.
func inNetns(netns string, f func() error) (err error) {
	if netns == "" {
		return f()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open the own network namespace: %w", err)
	}
	defer home.Close()
	if err := enter(netns); err != nil {
		return err
	}
	defer func() {
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("return to the own network namespace: %w", back))
		}
	}()
	return f()
}

func enter(netns string) error {
	target, err := os.Open("/run/netns/" + netns)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", netns, err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w (root is needed)", netns, err)
	}
	return nil
}

// dialIn connects from inside a network namespace. The address must be literal: a name would be resolved on
// another thread. Each dial has a thread of its own, which ends with it.
func dialIn(ctx context.Context, netns, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: a thread in a foreign namespace must not be used again
		if err := enter(netns); err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
