// SPDX-License-Identifier: Apache-2.0

package network

import (
	"os"
	"os/exec"
	"testing"
)

func TestOwnerInNames(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	name := prefix + me.String() + "-a1b2c3-word-host"
	if got, ok := parseOwner(name); !ok || got != me {
		t.Errorf("%s: got %+v, %v; want %+v", name, got, ok, me)
	}
	for _, bad := range []string{
		"", "tombolo", prefix, prefix + me.String(), prefix + me.String() + "-", // no more than an owner
		"x" + name,              // another prefix
		prefix + "1-0-1-x",      // pid 0
		prefix + "1--1-1-x",     // a negative pid
		prefix + "1-zzzzzzzz-1", // a pid that is too large
		prefix + "!-1-1-x",      // no number
	} {
		if got, ok := parseOwner(bad); ok {
			t.Errorf("%q: got %+v, want none", bad, got)
		}
	}
}

func TestOwnerIsDead(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/bin/sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	start, _, err := processStart(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := owner{pidns: me.pidns, pid: child.Process.Pid, start: start}
	reused := owner{pidns: me.pidns, pid: os.Getpid(), start: me.start + 1}
	foreign := owner{pidns: me.pidns + 1, pid: reused.pid, start: reused.start}
	for _, c := range []struct {
		name string
		of   owner
		want bool
	}{
		{"this process", me, false},
		{"a live process", other, false},
		{"a pid that is used again", reused, true},
		{"another pid namespace", foreign, false},
	} {
		if got := c.of.dead(me); got != c.want {
			t.Errorf("%s: dead is %v, want %v", c.name, got, c.want)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if !other.dead(me) {
		t.Error("a process that has ended is not dead")
	}
}
