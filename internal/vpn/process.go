// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// process is one OpenVPN, started again whenever it ends. It belongs to the goroutine of run, in which it is also told
// about events.
type process struct {
	program string
	dir     string // its own, for its files and its socket
	log     *slog.Logger
	// prepare returns what is written to files of dir before each start: file names and their content.
	prepare func() (map[string][]byte, error)
	// handle is told of each event. What it sends goes to the management interface.
	handle func(e openvpn.Event, send func(command string))
	// tick is called now and then while it runs.
	tick  func(send func(command string))
	every time.Duration
	// ended is told why it does not run.
	ended func(f *fault.Fault)
	again chan struct{} // a message: start it again, because files changed
}

// configName is the file of the configuration.
const configName = "openvpn.conf"

// socketOf is the management socket of a process with a folder: beside it, because the kernel takes short paths only.
func socketOf(dir string) string { return dir + ".sock" }

func (p *process) socket() string { return socketOf(p.dir) }

// restart has it started again. It may be called by anybody.
func (p *process) restart() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// run keeps it running until ctx ends.
func (p *process) run(ctx context.Context) error {
	ends := 0
	for {
		began := time.Now()
		f := p.once(ctx)
		if run.Ended(ctx) != nil {
			return p.clean()
		}
		ran := time.Since(began) > steady
		if ran {
			ends = 0
		}
		p.ended(f)
		if f == nil { // asked to
			continue
		}
		p.log.Warn("OpenVPN does not run", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		if !ran && !run.Wait(ctx, pause(ends)) {
			return p.clean()
		}
		ends++
	}
}

// clean removes its files: keys are among them.
func (p *process) clean() error { return os.RemoveAll(p.dir) }

// pause is how long it waits after so many ends, from 0.
func pause(ends int) time.Duration { return min(restartFirst<<min(ends, 10), restartMost) }

// once runs it once. Without a fault it was asked to end.
func (p *process) once(ctx context.Context) *fault.Fault {
	files, err := p.prepare()
	if err != nil {
		return fault.From(err)
	}
	for name, data := range files {
		if err := store.Write(filepath.Join(p.dir, name), data); err != nil {
			return fault.New(fault.CodeInternal, "a file for OpenVPN cannot be written").Because(err)
		}
	}
	ln, err := listen(p.socket())
	if err != nil {
		return fault.From(err)
	}
	defer ln.Close()
	words := &tail{}
	cmd := exec.Command(p.program, "--config", filepath.Join(p.dir, configName))
	cmd.Stdout, cmd.Stderr = words, words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals of a terminal are for us
	cmd.WaitDelay = stopWait
	if err := cmd.Start(); err != nil {
		return fault.New(fault.CodeUnsupported, "OpenVPN cannot be started").Because(err).
			Hint("apt-get install openvpn, or name it with program")
	}
	g := run.NewGroup(ctx)
	gone := make(chan struct{})
	g.Do(func(context.Context) { _ = cmd.Wait(); close(gone) }) // how it ended is told from its last words
	asked := p.serve(g, ln, gone)
	select { // it ends when its management interface does
	case <-gone:
	case <-time.After(stopWait):
		_ = cmd.Process.Kill() // it may have ended
	}
	g.Stop()
	_ = g.Wait()
	if asked {
		return nil
	}
	return fault.New(fault.CodeVPNDown, "OpenVPN ended").Whyf("%s", words.text()).
		Hint("its log is in ours, at level debug")
}

// listen makes the management socket. One of an OpenVPN that was killed is replaced.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.CodeConfig, "the management socket "+path+" cannot be made").Because(err).
			Hint("choose another runDir")
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "the management socket "+path+" cannot be made").Because(err).
			Hint("choose another runDir")
	}
	return ln, nil
}

// attach waits for a started OpenVPN at its management socket. Without a connection it has ended, or is to end (asked).
func attach(g *run.Group, ln *net.UnixListener, gone <-chan struct{}) (conn net.Conn, asked bool) {
	coming := make(chan net.Conn, 1)
	g.Do(func(context.Context) {
		_ = ln.SetDeadline(time.Now().Add(attachWait))
		if conn, err := ln.Accept(); err == nil {
			coming <- conn
		}
		close(coming)
	})
	select {
	case conn = <-coming:
	case <-gone:
	case <-g.Context().Done():
		asked = true
	}
	if conn == nil {
		ln.Close()
		if late := <-coming; late != nil {
			late.Close()
		}
	}
	return conn, asked
}

// talk is what is said at a management socket. It belongs to the goroutine of serve.
type talk struct {
	reader  openvpn.Reader
	send    func(command string)
	greeted bool
	worked  bool        // it was connected since the last hold
	heard   time.Time   // anything
	release *time.Timer // from a hold, after the time that OpenVPN asks for
}

// serve speaks with a started OpenVPN until it ends, or is to end, which it reports.
func (p *process) serve(g *run.Group, ln *net.UnixListener, gone <-chan struct{}) (asked bool) {
	ctx := g.Context()
	conn, asked := attach(g, ln, gone)
	if conn == nil {
		return asked
	}
	defer conn.Close()
	read := make(chan string, lines)
	g.Do(func(ctx context.Context) {
		defer close(read)
		in := bufio.NewScanner(conn)
		for in.Scan() {
			select {
			case read <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	})
	t := &talk{heard: time.Now(), release: time.NewTimer(time.Hour), send: func(command string) {
		_ = conn.SetWriteDeadline(time.Now().Add(stopWait))
		_, _ = io.WriteString(conn, command+"\n") // a socket that takes nothing ends soon, which is read
	}}
	t.release.Stop()
	defer t.release.Stop()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			t.send(openvpn.Stop())
			return true
		case <-p.again:
			p.log.Info("OpenVPN is started again")
			t.send(openvpn.Stop())
			return true
		case <-tick.C:
			if t.greeted && time.Since(t.heard) > hung {
				p.log.Warn("OpenVPN answers nothing, and is killed")
				return false
			}
			t.send(openvpn.Ask())
			p.tick(t.send)
		case <-t.release.C:
			t.send(openvpn.Release())
		case line, more := <-read:
			if !more {
				return false
			}
			p.take(ctx, t, line)
		}
	}
}

// take reads one line.
func (p *process) take(ctx context.Context, t *talk, line string) {
	t.heard = time.Now()
	switch e := t.reader.Line(line).(type) {
	case nil:
	case openvpn.Hold:
		if !t.greeted {
			t.greeted = true
			for _, command := range openvpn.Begin() {
				t.send(command)
			}
		}
		if t.worked { // the first try after a loss: somebody waits for it
			e.Wait, t.worked = 0, false
		}
		t.release.Reset(e.Wait)
	case openvpn.Log:
		p.log.Log(ctx, level(e), "OpenVPN says", "text", untrusted.Text(e.Text, reason))
	case openvpn.Answer:
		if !e.OK {
			p.log.Warn("OpenVPN refused a command", "text", untrusted.Text(e.Text, reason))
		}
	case openvpn.State:
		t.worked = t.worked || e.Name == openvpn.Connected
		p.handle(e, t.send)
	default:
		p.handle(e, t.send)
	}
}

// level is how loud OpenVPN's own words are: what counts is told by its states.
func level(l openvpn.Log) slog.Level {
	switch l.Flags {
	case "F":
		return slog.LevelError
	case "N", "W":
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if n := len(t.end) - lastWords; n > 0 {
		t.end = append([]byte{}, t.end[n:]...)
	}
	return len(b), nil
}

// text are the last lines: what is wrong with an option stands before the last one.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for line := range strings.Lines(string(t.end)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return "it said nothing"
	}
	return untrusted.Text(strings.Join(all[max(0, len(all)-lastLines):], "; "), reason)
}
