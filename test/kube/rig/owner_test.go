// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestOwnerDead guards the rule that keeps a sweep off everything that is not a dead rig's.
func TestOwnerDead(t *testing.T) {
	own, err := newID()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := startTime(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := fmt.Sprintf("%s%d.%s.ab", prefix, child.Process.Pid, strconv.FormatUint(start, 36))
	if _, dead := ownerDead(other); dead {
		t.Errorf("the owner of %s runs, but counts as dead", other)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, dead := awaitDeath(other); !dead {
		t.Errorf("the owner of %s is a zombie, but counts as alive", other)
	}
	_ = child.Wait() // killed
	for name, want := range map[string]bool{
		other:              true,
		other + "-c1-node": true,
		own:                false,
		own + "-hub":       false,
		// Our pid with another start time: the pid was given out again.
		fmt.Sprintf("%s%d.1.ab-wan", prefix, os.Getpid()): true,
		// Names of others, and names that are nearly ours.
		"cni-1234": false, "tmbk": false, "tmbk-": false, "tmbk-1.2": false, "tmbk-x.y.z": false,
		"tmbk-0.1.ab": false, "tmbk--1.1.ab": false, "tmbk-1.2.3.4": false, "xtmbk-1.1.ab": false,
	} {
		id, dead := ownerDead(name)
		if dead != want {
			t.Errorf("ownerDead(%q) = %v, want %v", name, dead, want)
		}
		if dead && (!strings.HasPrefix(name, id) || strings.Count(id, "-") != 1) {
			t.Errorf("ownerDead(%q) names the rig %q", name, id)
		}
	}
}

// awaitDeath asks until a killed process is one: the signal takes a moment.
func awaitDeath(name string) (id string, dead bool) {
	for range 1000 {
		if id, dead = ownerDead(name); dead {
			return id, true
		}
		exec.Command("true").Run()
	}
	return id, false
}
