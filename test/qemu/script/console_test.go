// SPDX-License-Identifier: Apache-2.0

package script_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/qemu/script"
)

// TestAConsoleIsRead: what a guest tells is found between the kernel's lines, also of one that ended early.
func TestAConsoleIsRead(t *testing.T) {
	const passed = "=== RUN   TestOne\n    --- PASS: TestOne/part (0.01s)\r\n--- SKIP: TestOne (1.20s)\r\nFAIL"
	for _, c := range []struct {
		name, console string
		want          script.Report
	}{
		{"nothing", "", script.Report{}},
		{"whole", join("[    0.1] Linux", script.Begin(1), passed, script.Exit(1, 3), script.End()), script.Report{
			Steps: []script.Ran{{Step: 1, Code: 3,
				Tests: []script.Test{{Name: "TestOne/part", Outcome: script.Pass}, {Name: "TestOne", Outcome: script.Skip}},
				Lines: []string{"=== RUN   TestOne", "    --- PASS: TestOne/part (0.01s)", "--- SKIP: TestOne (1.20s)", "FAIL"},
			}},
			Ended: true, Stray: []string{"[    0.1] Linux"},
		}},
		{"cut", join(script.Begin(0), "a"), script.Report{Steps: []script.Ran{{Code: -1, Lines: []string{"a"}}}}},
		{"broken", join(script.Begin(0), script.Broke(errors.New("no\nmodule"))), script.Report{
			Steps: []script.Ran{{Code: -1}}, Broke: "no; module",
		}},
		{"no test", join(script.Begin(0), "--- PASS: x", script.Exit(0, 0)), script.Report{
			Steps: []script.Ran{{Lines: []string{"--- PASS: x"}}},
		}},
	} {
		got, err := script.Read(strings.NewReader(c.console))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	long := strings.Repeat("x", 3*script.MaxLine)
	got, err := script.Read(strings.NewReader(join(script.Begin(0), long, script.End())))
	if err != nil || !got.Ended || len(got.Steps[0].Lines[0]) != script.MaxLine {
		t.Errorf("a long line: ended %v, %v", got.Ended, err)
	}
}

func join(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

// FuzzRead: no console makes it fail, and no test is reported that no step has run.
func FuzzRead(f *testing.F) {
	f.Add(join("x", script.Begin(2), "--- FAIL: TestA/b (0.00s)", script.Exit(2, 1), script.End()))
	f.Add(script.Begin(9999) + "\n" + script.Exit(9999, 9999))
	f.Fuzz(func(t *testing.T, console string) {
		r, err := script.Read(strings.NewReader(console))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Steps {
			if len(s.Tests) > len(s.Lines) || s.Code < -1 || s.Step < 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
