// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// abandonEnv turns this test binary into a program that builds a lab with a
// process in it and then waits to be killed.
const abandonEnv = "TOMBOLO_LAB_TEST_ABANDON"

func abandon() {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	l, err := lab.New("abandoned")
	fail(err)
	h, err := l.Host("lonely")
	fail(err)
	dir, err := l.Dir()
	fail(err)
	p, err := h.Start(exec.Command("/bin/sleep", "1000"))
	fail(err)
	fmt.Println(p.Pid(), h.Namespace(), dir)
	_ = p.Wait()
	select {}
}

func TestSweepRemovesWhatAKilledRunLeft(t *testing.T) {
	keeper := labtest.New(t, "keeper")
	kept, err := keeper.Host("kept")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), abandonEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		t.Fatalf("the abandoned run says %q", line)
	}
	pid, dir, namespace := fields[0], fields[2], filepath.Join("/run/netns", fields[1])

	// While it lives, a sweep does not touch it.
	swept, err := lab.Sweep()
	if err != nil || slices.Contains(swept, namespace) || slices.Contains(swept, dir) {
		t.Fatalf("swept %q (%v) of a live run", swept, err)
	}
	for _, path := range []string{namespace, dir} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("of a live run: %v", err)
		}
	}

	// Killed and not yet waited for, it is dead already.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	requireGone(t, fmt.Sprint(cmd.Process.Pid))
	requireGone(t, pid)
	if _, err = lab.Sweep(); err != nil { // or somebody else's sweep was faster
		t.Fatal(err)
	}
	for _, path := range []string{namespace, dir} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
	_ = cmd.Wait()
	if _, err := lab.Links(kept); err != nil {
		t.Errorf("the lab that lives: %v", err)
	}
}

func TestSweepTouchesOnlyOurNames(t *testing.T) {
	var foreign []string
	for _, pattern := range []string{
		"tombolo-lab-",             // no owner
		"tombolo-lab-1-2",          // too short
		"tombolo-lab-1-zzz-1-x",    // another pid namespace
		"tombolo-laboratory-1-2-3", // another prefix
	} {
		path, err := os.MkdirTemp("", pattern+"*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
		foreign = append(foreign, path)
	}
	swept, err := lab.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range foreign {
		if slices.Contains(swept, path) {
			t.Errorf("swept %s", path)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
