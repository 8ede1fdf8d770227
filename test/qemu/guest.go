// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/qemu/script"
)

// Step is what a guest does at one time: it loads modules, then runs tests of a package.
type Step struct {
	Modules []string // and those that they need, unless they are loaded
	Package string   // a folder of the module, as ./test/lab/mesh; "": none
	Tags    string   // of the build, with commas
	Test    string   // pattern of -test.run
}

// Guest is a machine that does its steps in turn and ends.
type Guest struct {
	Steps  []Step
	Memory int           // in MiB; 0: 1,024
	Within time.Duration // for boot and steps; 0: a minute
}

// program is the emulator.
const program = "qemu-system-x86_64"

// Check reports why guests cannot run here, or nil.
func Check() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("guests are of amd64, this machine is of %s", runtime.GOARCH)
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: run tools/deps qemu, which installs Debian's package qemu-system-x86", err)
	}
	return nil
}

// Run builds what the steps need, boots the guest, and returns what it has told. That a test has
// failed is no error, nor is a guest that broke: the report has both. An error is a machine
// without QEMU or Debian's kernel, a build that fails, a module that does not exist, and a guest
// that is not at its end in time, with what it has told until then.
func (g Guest) Run(ctx context.Context) (script.Report, error) {
	if err := Check(); err != nil {
		return script.Report{}, err
	}
	fetched, err := Fetch(ctx)
	if err != nil {
		return script.Report{}, err
	}
	k, err := openKernel(fetched)
	if err != nil {
		return script.Report{}, err
	}
	dir, err := os.MkdirTemp("", "tombolo-qemu-")
	if err != nil {
		return script.Report{}, err
	}
	defer os.RemoveAll(dir)
	initramfs, err := g.pack(ctx, k, dir)
	if err != nil {
		return script.Report{}, err
	}
	console, err := g.boot(ctx, k.image, initramfs)
	report, readErr := script.Read(bytes.NewReader(console))
	return report, errors.Join(err, readErr)
}

// tombolo is where the program under test is in the guest.
const tombolo = "/bin/tombolo"

// pack builds everything and returns the file of the initramfs.
func (g Guest) pack(ctx context.Context, k kernel, dir string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	build := builder{ctx: ctx, root: root, dir: dir}
	entries := []entry{
		{name: "init", mode: 0o755, from: build.program("./test/qemu/init")},
		{name: tombolo[1:], mode: 0o755, from: build.program("./cmd/tombolo")},
	}
	var steps []script.Step
	var loaded []string
	for _, s := range g.Steps {
		files, err := k.files(s.Modules)
		if err != nil {
			return "", err
		}
		step := script.Step{}
		for _, file := range files {
			if slices.Contains(loaded, file) {
				continue
			}
			loaded = append(loaded, file)
			step.Load = append(step.Load, filepath.Base(file))
			entries = append(entries, entry{name: path.Join(script.Modules[1:], filepath.Base(file)), mode: 0o644, from: file})
		}
		if s.Package != "" {
			built := build.tests(s.Package, s.Tags)
			e := entry{name: path.Join(script.Tests[1:], filepath.Base(built)), mode: 0o755, from: built}
			if !slices.ContainsFunc(entries, func(other entry) bool { return other.name == e.name }) {
				entries = append(entries, e)
			}
			step.Run = []string{"/" + e.name, "-test.v", "-test.run", s.Test}
			step.Env = []string{"TOMBOLO_LAB_PROGRAM=" + tombolo}
		}
		steps = append(steps, step)
	}
	text, err := json.Marshal(steps)
	if err = errors.Join(err, build.err); err != nil {
		return "", err
	}
	entries = append(entries, entry{name: script.File[1:], mode: 0o644, data: text})
	file := filepath.Join(dir, "initramfs")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	return file, errors.Join(writeInitramfs(f, entries), f.Close())
}

// builder builds programs. After the first error it does nothing.
type builder struct {
	ctx       context.Context
	root, dir string
	err       error
}

// small are the flags of every build: what is copied into the guest's memory is small.
var small = []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w"}

func (b *builder) program(folder string) string {
	out := filepath.Join(b.dir, path.Base(folder))
	b.build(append([]string{"build", "-o", out}, append(slices.Clone(small), folder)...)...)
	return out
}

func (b *builder) tests(folder, tags string) string {
	out := filepath.Join(b.dir, strings.ReplaceAll(strings.Trim(folder, "./"), "/", "-")+"."+tags)
	args := append([]string{"test", "-c", "-tags", tags, "-o", out}, append(slices.Clone(small), folder)...)
	b.build(args...)
	return out
}

func (b *builder) build(args ...string) {
	if b.err == nil {
		_, b.err = command(b.ctx, b.root, "go", args...)
	}
}

// moduleRoot goes up to the folder of the main module.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "qemu", "init", "main.go")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this is not a checkout of tombolo: no test/qemu/init here or above")
		}
	}
}

// boot runs the guest to its end and returns its console.
func (g Guest) boot(ctx context.Context, image, initramfs string) ([]byte, error) {
	within, memory := g.Within, g.Memory
	if within == 0 {
		within = time.Minute
	}
	if memory == 0 {
		memory = 1024
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-nic", "none", "-serial", "stdio", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
		"-m", fmt.Sprint(memory), "-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic rdinit=/init")
	// It dies with the thread that starts it, which this function has for itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var console, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &complaints
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("the guest is not at its end after %v: %w", within, ctx.Err())
	case err != nil:
		err = fmt.Errorf("%s: %w\n%s", program, err, complaints.Bytes())
	}
	return console.Bytes(), err
}
