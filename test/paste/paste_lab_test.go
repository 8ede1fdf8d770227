// SPDX-License-Identifier: Apache-2.0

//go:build lab

package paste

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestPages pastes every block of README.md and the howtos.
func TestPages(t *testing.T) {
	bin := runtest.Program(t)
	for name, text := range pages(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) {
			t.Parallel()
			steps, problems := Read(text)
			if len(problems) > 0 {
				t.Fatal(strings.Join(problems, "\n"))
			}
			newReader(t, name, bin).read(t, steps)
		})
	}
}

// reader is one who follows a page.
type reader struct {
	page, bin string
	machines  map[string]*machine
	log       runtest.Transcript
}

func newReader(t *testing.T, page, bin string) *reader {
	t.Helper()
	r := &reader{page: page, bin: bin, machines: map[string]*machine{}}
	var all []*machine
	for name := range Machines() {
		r.machines[name] = start(t, name, bin)
		r.machines[name].log = &r.log
		all = append(all, r.machines[name])
	}
	network(t, start(t, "switch", bin), all...)
	return r
}

func (r *reader) read(t *testing.T, steps []Step) {
	t.Helper()
	for _, s := range steps {
		switch where := fmt.Sprintf("%s:%d", r.page, s.Line); {
		case s.To != "":
			r.copy(t, s)
		case s.File != "":
			r.write(t, s.Machines[0], s.File, s.Text)
		case s.Run:
			r.run(t, where, s)
		case s.Language == "yaml" && s.Why == "":
			r.validate(t, where, s.Text)
		}
		if t.Failed() {
			return
		}
	}
	for name, m := range r.machines {
		for _, x := range m.terminals {
			said := x.out.String()
			if x.goes != "" && (x.idle() || strings.Contains(said, "@failed: ")) {
				t.Errorf("%s: on %s all of it should work, and the last command go on\n%s", x.goes, name, said)
			}
		}
	}
}

func (r *reader) run(t *testing.T, where string, s Step) {
	t.Helper()
	text, err := s.fill(r.log.String())
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var pasted []*terminal
	for _, name := range s.Machines {
		x := r.machines[name].terminal(t, s.Terminal)
		if s.CtrlC {
			x.interrupt(t)
		}
		if x.goes != "" {
			t.Fatalf("%s: in this terminal of %s goes on what %s began", where, name, x.goes)
		}
		x.paste(t, text)
		pasted = append(pasted, x)
	}
	for i, x := range pasted {
		if s.GoesOn {
			x.goes = where
			continue
		}
		runtest.Eventually(t, where+": the block ends on "+s.Machines[i], x.idle)
		if said := x.out.String(); strings.Contains(said, "@failed: ") {
			t.Errorf("%s: on %s\n%s\nall that was printed:\n%s", where, s.Machines[i], said, r.log.String())
		}
	}
}

// inside runs a command of ours in a machine.
func (r *reader) inside(t *testing.T, name, stdin string, command ...string) string {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(r.machines[name].pid), "-m", "-p"}, command...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("on %s: %v: %v\n%s", name, command, err, out)
	}
	return string(out)
}

func (r *reader) write(t *testing.T, name, file, text string) {
	t.Helper()
	r.inside(t, name, text+"\n", "bash", "-c", `umask 077; mkdir -p "$(dirname "$1")"; cat >"$1"`, "write", file)
}

func (r *reader) copy(t *testing.T, s Step) {
	t.Helper()
	r.write(t, s.To, s.File, strings.TrimSuffix(r.inside(t, s.Machines[0], "", "cat", s.File), "\n"))
}

func (r *reader) validate(t *testing.T, where, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "block.yaml")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(r.bin, "config", "validate", file).CombinedOutput(); err != nil {
		t.Errorf("%s: %s", where, out)
	}
}

// TestAPageThatDoesNotWork: what fails in the middle of a block is seen.
func TestAPageThatDoesNotWork(t *testing.T) {
	r := newReader(t, "page", runtest.Program(t))
	x := r.machines["hub"].terminal(t, "")
	x.paste(t, "false\ntrue")
	runtest.Eventually(t, "the block ends", x.idle)
	if !strings.Contains(x.out.String(), "@failed: false") {
		t.Errorf("%q", x.out.String())
	}
	x.paste(t, "sleep 1000")
	if x.interrupt(t); strings.Count(x.out.String(), "@failed") > 2 {
		t.Errorf("%q", x.out.String())
	}
}
