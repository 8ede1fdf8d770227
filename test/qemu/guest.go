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
	Spare  []string      // modules that the kernel finds when it asks for them
	Memory int           // in MiB; 0: 1,024
	Within time.Duration // for boot and steps; 0: a minute
}

// program is the emulator.
const program = "qemu-system-x86_64"

// What is slow without hardware's help is left out: a fifth level of page tables, pages cleared byte by byte, a clock
// that is a device, and defences against guests that look into each other. It saves 15 % of the time of processors.
const (
	processor = "max,la57=off,erms=off," + noVectors
	// QEMU 7.2 is the first to play AVX. Twice a node in a guest, and never elsewhere, dropped a peer without a cause that
	// can be found (TestEngineRelay); that this helps is not known. It costs 6 % of the processors' time.
	noVectors = "avx=off,avx2=off,fma=off,f16c=off,vaes=off,vpclmulqdq=off"
	// One thread plays both processors. With one for each, QEMU 7.2 keeps what it has translated of an instruction that
	// the kernel is patching, now and then: both processors hit its breakpoint for ever (a soft lockup). The kernel patches
	// itself when the first filter or hook of the network comes.
	accelerator = "tcg,thread=single"
	arguments   = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check oops=panic rdinit=/init " +
		"tsc=reliable mitigations=off init_on_alloc=0"
)

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
	p := packer{kernel: k, builder: builder{ctx: ctx, root: root, dir: dir}}
	first := p.program("./test/qemu/init")
	p.add(entry{name: "init", mode: 0o755, from: first})
	p.add(entry{name: script.Helper[1:], mode: 0o755, from: first})
	p.add(entry{name: tombolo[1:], mode: 0o755, from: p.program("./cmd/tombolo")})
	spare := script.Asked{}
	for _, name := range g.Spare {
		p.spare(name, spare)
	}
	p.text(script.Spare, spare)
	var steps []script.Step
	for _, s := range g.Steps {
		steps = append(steps, p.step(s))
	}
	p.text(script.File, steps)
	if p.err != nil {
		return "", p.err
	}
	file := filepath.Join(dir, "initramfs")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	return file, errors.Join(writeInitramfs(f, p.entries), f.Close())
}

// packer collects the files of an initramfs. After the first error it does nothing.
type packer struct {
	builder
	kernel  kernel
	entries []entry
}

// add adds a file unless it is there.
func (p *packer) add(e entry) {
	if !slices.ContainsFunc(p.entries, func(other entry) bool { return other.name == e.name }) {
		p.entries = append(p.entries, e)
	}
}

func (p *packer) text(at string, value any) {
	data, err := json.Marshal(value)
	p.fail(err)
	p.add(entry{name: at[1:], mode: 0o644, data: data})
}

// modules adds modules with those that they need, and returns their files in order.
func (p *packer) modules(names ...string) (out []string) {
	files, err := p.kernel.files(names)
	p.fail(err)
	for _, file := range files {
		p.add(entry{name: path.Join(script.Modules[1:], filepath.Base(file)), mode: 0o644, from: file})
		out = append(out, filepath.Base(file))
	}
	return out
}

// spare adds a module that is loaded when the kernel asks for it.
func (p *packer) spare(name string, to script.Asked) {
	m, err := p.kernel.modinfo(moduleName(name))
	p.fail(err)
	files := p.modules(name)
	for _, alias := range append(m.aliases, name) {
		to[alias] = files
	}
}

func (p *packer) step(s Step) script.Step {
	out := script.Step{Load: p.modules(s.Modules...)}
	if s.Package == "" {
		return out
	}
	built := p.tests(s.Package, s.Tags)
	at := path.Join(script.Tests, filepath.Base(built))
	p.add(entry{name: at[1:], mode: 0o755, from: built})
	out.Run = []string{at, "-test.v", "-test.run", s.Test}
	out.Env = []string{"TOMBOLO_LAB_PROGRAM=" + tombolo}
	return out
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

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
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
		"-nic", "none", "-serial", "stdio", "-accel", accelerator, "-cpu", processor, "-smp", "2",
		"-m", fmt.Sprint(memory), "-kernel", image, "-initrd", initramfs, "-append", arguments)
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
