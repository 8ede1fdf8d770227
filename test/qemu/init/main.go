// SPDX-License-Identifier: Apache-2.0

// Command init is the first process of a guest of package qemu: it loads modules, runs programs
// as its script says, and tells of both on the console. By the name of modprobe it loads what the
// kernel asks for. It does not judge what programs find.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/qemu/script"
)

func main() {
	if os.Args[0] == script.Helper {
		if err := help(os.Args[len(os.Args)-1]); err != nil {
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "error: this is the first process of a guest: see package test/qemu")
		os.Exit(2)
	}
	if err := follow(); err != nil {
		say(script.Broke(err))
	} else {
		say(script.End())
	}
	unix.IoctlSetInt(1, unix.TCSBRK, 1) // waits until the console has all of it
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// say writes a line of its own, whatever a program has left of the line before.
func say(line string) { fmt.Printf("\n%s\n", line) }

func follow() error {
	if err := prepare(); err != nil {
		return err
	}
	data, err := os.ReadFile(script.File)
	if err != nil {
		return err
	}
	var steps []script.Step
	if err := json.Unmarshal(data, &steps); err != nil {
		return fmt.Errorf("%s: %w", script.File, err)
	}
	for i, s := range steps {
		for _, file := range s.Load {
			if err := load(filepath.Join(script.Modules, file)); err != nil {
				return fmt.Errorf("step %d: loading %s: %w", i, file, err)
			}
		}
		if len(s.Run) == 0 {
			continue
		}
		say(script.Begin(i))
		code, err := run(s)
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		say(script.Exit(i, code))
	}
	return nil
}

// prepare mounts what programs expect.
func prepare() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	return os.Chmod("/tmp", 0o1777)
}

// load loads a module; one that is loaded already is fine.
func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// help loads what the kernel asks for, if it is among the spare modules.
func help(name string) error {
	data, err := os.ReadFile(script.Spare)
	if err != nil {
		return err
	}
	var spare script.Asked
	if err := json.Unmarshal(data, &spare); err != nil {
		return err
	}
	files := spare[name]
	if len(files) == 0 {
		return fmt.Errorf("there is no module %s", name)
	}
	for _, file := range files {
		if err := load(filepath.Join(script.Modules, file)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program and buries whoever else ends meanwhile, as is the first process's part.
func run(s script.Step) (code int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	env := append([]string{"PATH=/bin", "HOME=/tmp"}, s.Env...)
	p, err := os.StartProcess(s.Run[0], s.Run, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{null, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, err
	}
	own := p.Pid
	if err := p.Release(); err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case pid == own && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == own:
			return status.ExitStatus(), nil
		}
	}
}
