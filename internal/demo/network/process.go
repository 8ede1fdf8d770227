// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipeGrace is how long Wait lets a killed process's grandchildren hold its
// output open.
const pipeGrace = 2 * time.Second

// Process is a program that runs in a host. It dies with the network, and with
// this process even if that is killed with -9.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, set before done is closed
}

// Start starts the command in the host's network namespace, in a process group
// of its own: Ctrl-C on the terminal reaches only us, and we end our children
// in order. When we die it gets SIGKILL, or the Pdeathsig that the command asks
// for.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	return h.StartWith(cmd, nil)
}

// StartWith is Start with a function, if any, that prepares the thread from which
// the command starts, and the command.
func (h *Host) StartWith(cmd *exec.Cmd, prepare func(*exec.Cmd) error) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = pipeGrace
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	// The death signal is sent when the *thread* that forked ends, so the
	// thread that forks also waits: it lives exactly as long as its child.
	if !h.net.start(func() {
		defer close(p.done)
		p.err = h.Do(func() error {
			if prepare != nil {
				if err := prepare(cmd); err != nil {
					err = fmt.Errorf("preparing %s: %w", cmd.Path, err)
					started <- err
					return err
				}
			}
			err := cmd.Start()
			started <- err
			if err != nil {
				return err
			}
			return cmd.Wait()
		})
		// When Do could not enter the namespace nobody has said so yet.
		select {
		case started <- p.err:
		default:
		}
	}) {
		return nil, errClosed
	}
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("starting %s in %s: %w", cmd.Path, h.name, err)
	}
	if !h.net.adopt(p) {
		p.Kill()
		<-p.done
		return nil, errClosed
	}
	return p, nil
}

func (n *Network) adopt(p *Process) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.processes[p] = struct{}{}
	return true
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns what exec.Cmd.Wait says.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process. One that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill sends SIGKILL to the process and to what it started in its group.
func (p *Process) Kill() {
	select {
	case <-p.done: // its pid may be somebody else's by now
	default:
		_ = unix.Kill(-p.Pid(), unix.SIGKILL)
	}
}

// Stop asks with SIGTERM and kills after the grace, then waits.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
		<-p.done
	}
	return p.err
}

// Run starts the command in the host and waits for its end or the context's.
func (h *Host) Run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := h.Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Kill()
		<-p.done
		return fmt.Errorf("%s in %s was ended: %w", cmd.Path, h.name, context.Cause(ctx))
	}
	h.net.forget(p)
	return p.err
}

func (n *Network) forget(p *Process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.processes, p)
}

// DialContext dials from the host. The address must be an IP and a port: names
// would be looked up outside of the namespace.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dialling from %s: %w", h.name, err)
	}
	var conn net.Conn
	err := h.Do(func() error {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens in the host, at the latest until the network is closed.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	var listener net.Listener
	err := h.Do(func() error {
		var err error
		listener, err = new(net.ListenConfig).Listen(h.net.ctx, network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening on %s in %s: %w", address, h.name, err)
	}
	h.net.Keep(listener)
	return listener, nil
}

// ListenUDP opens a UDP socket in the host, at the latest until the network is
// closed. The address is an IP (or none, for all of the network's family) and a
// port.
func (h *Host) ListenUDP(network, address string) (*net.UDPConn, error) {
	var conn net.PacketConn
	err := h.Do(func() error {
		var err error
		conn, err = net.ListenPacket(network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s %s in %s: %w", network, address, h.name, err)
	}
	h.net.Keep(conn)
	return conn.(*net.UDPConn), nil
}
