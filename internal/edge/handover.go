// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// A running edge hands its ports to the one that follows it:
//
//	new ──connects to handover.sock──► old: continues its records in a rotated file
//	new ◄──ports──────────────────── old: still accepts
//	new: reads policies and tenants
//	new ──serving──────────────────► old: stops to accept, closes its sockets
//	new ◄──end of the connection──── old: drains, and ends
//	new: accepts
//
// The queues of the ports are those of the kernel, so that nobody is refused between the two. If the
// new one ends before it serves, the old one goes on as if nothing had been.

// serving is what the new one says.
const serving = 's'

// healthPort is the name of the health port among those that are handed over. No listener's name has a space.
const healthPort = "health port"

func handoverSocket(runDir string) string {
	return filepath.Join(filepath.Dir(AdminSocket(runDir)), "handover.sock")
}

// Handover is what a running edge gives to this one. Nil is none.
type Handover struct {
	conn  *net.UnixConn
	ports []listener.Port
}

// TakeOver asks the edge that runs with this run directory for its ports. It gives nil if none runs.
func TakeOver(ctx context.Context, runDir string) (*Handover, error) {
	path := handoverSocket(runDir)
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	failed := func(err error) error {
		return fault.New(fault.CodeEdgeAway, "the edge at "+path+" does not hand over its ports").Because(err).
			Hint("see its log, and be its user or root")
	}
	if err != nil {
		return nil, failed(err)
	}
	h := &Handover{conn: c.(*net.UnixConn)}
	h.conn.SetDeadline(time.Now().Add(handoverTime))
	if h.ports, err = listener.ReceivePorts(h.conn); err != nil {
		return nil, errors.Join(failed(err), c.Close())
	}
	return h, nil
}

// take gives the port with this configured address; if several have it, as those have that the kernel chooses, the one
// with this name.
func (h *Handover) take(name, address string) net.Listener {
	if h == nil {
		return nil
	}
	found := -1
	for i, p := range h.ports {
		if p.Address == address && p.Listener != nil && (found < 0 || p.Name == name) {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	ln := h.ports[found].Listener
	h.ports[found].Listener = nil
	return ln
}

// finish tells the other edge that this one serves, and waits until it has let go. One that has ended has let go, too.
func (h *Handover) finish() {
	if h == nil {
		return
	}
	defer h.Close()
	h.conn.SetDeadline(time.Now().Add(handoverTime))
	if _, err := h.conn.Write([]byte{serving}); err == nil {
		_, _ = io.Copy(io.Discard, h.conn) // its end is the answer, whatever it is
	}
}

// Close gives up what was not taken. Before finish it lets the other edge go on.
func (h *Handover) Close() {
	if h != nil {
		listener.ClosePorts(h.ports)
		h.conn.Close()
	}
}

// handOver serves other edges that ask for the ports, until one of them has them. Then gone closes what this one has
// open, and waits for that.
func (e *Edge) handOver(ctx context.Context, open opened, gone func() error) (err error) {
	stop := run.OnDone(ctx, func() { open.handover.Close() })
	defer stop()
	ports := []listener.Port{{Name: healthPort, Address: e.cfg.HealthListen, Listener: open.health}}
	for i, l := range e.cfg.Listeners {
		ports = append(ports, listener.Port{Name: l.Name, Address: l.Address, Listener: open.ports[i]})
	}
	accepting := listener.Accept(ctx, open.handover, func(c net.Conn) {
		defer c.Close()
		conn, ok := c.(*net.UnixConn)
		if !ok {
			return
		}
		defer run.OnDone(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
		if err := e.hand(ctx, conn, ports); err != nil {
			e.log.Warn("the edge that asked for the ports does not serve; this one goes on", telemetry.AttrReason, err)
			return
		}
		e.log.Info("another edge has the ports now")
		open.handover.Close() // first: closing it removes the path, which the other one takes next
		err = gone()
	})
	return errors.Join(accepting, err)
}

// hand gives the ports to another edge, and waits until it serves.
func (e *Edge) hand(ctx context.Context, conn *net.UnixConn, ports []listener.Port) error {
	conn.SetDeadline(time.Now().Add(handoverTime))
	if err := e.audit.StepAside(ctx); err != nil {
		return err
	}
	err := listener.SendPorts(conn, ports)
	var answer [1]byte
	if err == nil {
		_, err = io.ReadFull(conn, answer[:])
	}
	if err == nil && answer[0] != serving {
		err = fmt.Errorf("it says %q", answer[0])
	}
	if err != nil {
		return errors.Join(err, e.audit.StepBack(ctx))
	}
	return nil
}
