// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// nothingLeft takes the rig down and looks for what it forgot.
func (x *cluster) nothingLeft(t *testing.T) {
	before, err := rig.Leftovers(x.rig.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) < 10 { // otherwise the search below could not fail
		t.Errorf("the search for leftovers does not even find the running rig: %q", before)
	}
	if err := x.rig.Close(); err != nil {
		t.Error(err)
	}
	after, err := rig.Leftovers(x.rig.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) > 0 {
		t.Errorf("the rig left behind:\n%s", strings.Join(after, "\n"))
	}
}

// ownerVariable makes the test binary the owner of a rig that is about to be killed.
const ownerVariable = "TOMBOLO_KUBE_TEST_OWNER"

// TestKilledOwner kills the owner of a rig with SIGKILL. The kernel ends every process of the rig at once, and
// the next rig removes the rest, but nothing of an owner that lives.
func TestKilledOwner(t *testing.T) {
	if os.Getenv(ownerVariable) != "" {
		own(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledOwner$", "-test.v")
	cmd.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // the owner ends when it closes, should this test die first
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // where the test ends early
	defer cmd.Process.Kill()
	var id string
	scan := bufio.NewScanner(out)
	for id == "" && scan.Scan() {
		t.Log(scan.Text())
		id, _ = strings.CutPrefix(scan.Text(), "up: ")
		if !strings.HasPrefix(scan.Text(), "up: ") {
			id = ""
		}
	}
	if id == "" {
		t.Fatal("the owner's rig did not come up")
	}
	sweep := func() []string {
		if err := rig.Sweep(ctx, func(line string) { t.Log(line) }); err != nil {
			t.Error(err)
		}
		left, err := rig.Leftovers(id)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	if left := sweep(); len(left) < 10 {
		t.Errorf("the sweep took from a rig whose owner lives; there is left: %q", left)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed: its status says nothing
	runtest.Eventually(t, "all processes of the rig end with its owner", func() bool {
		left, err := rig.Leftovers(id)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(left, func(line string) bool { return strings.HasPrefix(line, "process ") })
	})
	if left := sweep(); len(left) > 0 {
		t.Errorf("after its owner was killed and swept up, the rig left behind:\n%s", strings.Join(left, "\n"))
	}
}

// own brings a cluster up and waits for its end.
func own(t *testing.T) {
	r, err := rig.New(t.Context(), rig.Options{Minor: os.Getenv("TOMBOLO_KUBE_VERSION")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // where nobody kills: the parent is gone
	c, err := r.StartCluster(t.Context(), "c1", rig.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeployWorkload(t.Context()); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("up: %s\n", r.ID)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
