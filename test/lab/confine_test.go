// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestConfinedProcessHasNoRights(t *testing.T) {
	l := labtest.New(t, "confined")
	h, err := l.Host("only")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	other := filepath.Join(dir, "other")
	for _, d := range []string{state, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, 65532, 65532); err != nil {
			t.Fatal(err)
		}
	}
	script := `cat /proc/self/status; id -u; id -G
		echo x >` + state + `/file && echo STATE-WRITABLE
		(echo x >` + other + `/file) 2>/dev/null && echo OTHER-WRITABLE
		(echo x >/tmp/tombolo-lab-confined) 2>/dev/null && echo TMP-WRITABLE
		(echo x >/dev/shm/tombolo-lab-confined) 2>/dev/null && echo SHM-WRITABLE
		true`
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := lab.StartConfined(h, cmd, lab.Confinement{UID: 65532, GID: 65532, Writable: []string{state}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	got := out.String()
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "STATE-WRITABLE",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the process's words", want)
		}
	}
	for _, bad := range []string{"OTHER-WRITABLE", "TMP-WRITABLE", "SHM-WRITABLE"} {
		if strings.Contains(got, bad) {
			t.Errorf("%s: the root file system is not read-only", bad)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if err := os.WriteFile(filepath.Join(other, "file"), nil, 0o600); err != nil {
		t.Errorf("the confinement leaked into this process: %v", err)
	}
}
