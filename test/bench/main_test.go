// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/test/roles"
)

// asProgram in the environment makes the test program the benchmark itself.
const asProgram = "TOMBOLO_BENCH_PROGRAM"

// TestMain lets the driver start this program again: in a role, as the driver
// always does, or as a whole.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == roles.Flag || os.Getenv(asProgram) != "" {
		main()
		return
	}
	// With the race detector a process waits a second before it ends; ours are many.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	goleak.VerifyTestMain(m)
}

func TestParseOptions(t *testing.T) {
	o, err := parseOptions([]string{"-only", "bulk1,ping", "-transports", "tls,mux2", "-rounds", "3", "-seconds", "0.5", "-profile"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.only, []string{"bulk1", "ping"}) || !slices.Equal(o.transports, []string{"tls", "mux2"}) ||
		o.rounds != 3 || o.window != 500*time.Millisecond || !o.profile || o.quick || o.lanes < 2 {
		t.Errorf("got %+v", o)
	}
	full, err := parseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := parseOptions([]string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	if full.rounds < 6 || quick.window >= full.window || quick.rounds < 3 {
		t.Errorf("full %+v, quick %+v", full, quick)
	}
	b := &bench{options: quick}
	given := &bench{options: o}
	if got := b.roundsOf(measurement{}); got != quick.rounds {
		t.Errorf("%d rounds, want the run's %d", got, quick.rounds)
	}
	if got := b.roundsOf(measurement{rounds: 9}); got != 9 {
		t.Errorf("%d rounds, want the measurement's 9", got)
	}
	if got := given.roundsOf(measurement{rounds: 9}); got != 3 {
		t.Errorf("%d rounds, want the command line's 3", got)
	}
	for _, bad := range [][]string{
		{"-only", "nothing"}, {"-transports", "quic"}, {"-transports", "mux0"}, {"-transports", "tls4"}, {"-rounds", "-1"},
		{"-seconds", "-1"}, {"-lanes", "0"}, {"extra"},
	} {
		if _, err := parseOptions(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseTransport(t *testing.T) {
	for name, want := range map[string]transport{
		"tcp": {Kind: kindTCP}, "tls": {Kind: kindTLS},
		"mux": {Kind: kindMux, Connections: 1, Sessions: 1}, "mux4": {Kind: kindMux, Connections: 4, Sessions: 1},
		"yamux1": {Kind: kindYamux, Connections: 1, Sessions: 1}, "yamux4": {Kind: kindYamux, Connections: 1, Sessions: 4},
	} {
		got, err := parseTransport(name)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// TestPlan: what -only and -transports leave, and each measurement is told apart.
func TestPlan(t *testing.T) {
	plan := func(args ...string) (out []string) {
		o, err := parseOptions(args)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{options: o, left: map[string]error{}, stderr: os.Stderr}
		for _, m := range b.plan() {
			out = append(out, fmt.Sprint(m.name, m.transports))
		}
		return out
	}
	for _, c := range []struct{ args, want []string }{
		{[]string{"-only", "bulk1,ping", "-transports", "tls,mux2"}, []string{"bulk1[tls mux2]", "ping[tls mux2]"}},
		{[]string{"-only", "ping,e2eping", "-transports", "tls,relay"}, []string{"ping[tls]", "e2eping[relay]"}},
		{[]string{"-only", "ping,e2eping", "-transports", "relay"}, []string{"e2eping[relay]"}},
		{[]string{"-only", "ping", "-quick", "-lanes", "3"}, []string{"ping[tls mux3]"}},
	} {
		if got := plan(c.args...); !slices.Equal(got, c.want) {
			t.Errorf("%q plans %q, want %q", c.args, got, c.want)
		}
	}
	all := names()
	if slices.Sort(all); len(slices.Compact(all)) != len(measurements()) {
		t.Errorf("two measurements share a name: %q", all)
	}
}
