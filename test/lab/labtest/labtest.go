// SPDX-License-Identifier: Apache-2.0

// Package labtest gives tests a lab that goes with them. It does not build
// networks; package lab does.
package labtest

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Main runs the tests of a package that uses labs: refuses to pass where labs
// cannot be built, cleans up on a signal, and fails when something is left.
//
//	func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }
func Main(m *testing.M) int { return main(m.Run) }

func main(run func() int) int {
	if err := lab.Check(); err != nil {
		fmt.Fprintf(os.Stderr, "error: the lab tests cannot run: %v\nhint: run them as root: sudo make test\n", err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		sig := <-signals
		fmt.Fprintf(os.Stderr, "\n%v: removing the lab\n", sig)
		// Processes die with us (Pdeathsig), names do not.
		if _, err := lab.SweepOwn(); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
		}
		os.Exit(130)
	}()
	code := run()
	left, err := lab.Leftovers()
	if err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests left behind: %q (%v)\n", left, err)
		if _, err := lab.SweepOwn(); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
		}
		return 1
	}
	return code
}

// New returns a lab that is closed when the test ends.
func New(t testing.TB, word string) *lab.Lab {
	t.Helper()
	l, err := lab.New(word)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	return l
}

// World returns a world of a fresh lab.
func World(t testing.TB, word string, sites, agents int) (*lab.Lab, *lab.World) {
	t.Helper()
	l := New(t, word)
	w, err := l.NewWorld(sites, agents)
	if err != nil {
		t.Fatal(err)
	}
	return l, w
}

// gridEnv asks for the whole grid in place of the covering part: make lab sets it.
const gridEnv = "TOMBOLO_LAB_GRID"

// Pairs returns the pairs of kinds that a test of the grid is to play: a covering
// part in make test, all of them in make lab.
func Pairs() []lab.Pair {
	if os.Getenv(gridEnv) == "whole" {
		return lab.Pairs()
	}
	return lab.Covering()
}
