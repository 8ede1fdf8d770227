// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// count feeds events in one word each: action package test [output].
func count(verbose bool, lines ...string) (tally, []string) {
	var shown []string
	c := newCounter(verbose, func(format string, args ...any) { shown = append(shown, fmt.Sprintf(format, args...)) })
	for _, line := range lines {
		f := append(strings.SplitN(line, " ", 4), "", "", "")
		fmt.Fprintf(c, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":%q}\n", f[0], f[1], strings.Trim(f[2], "-"), f[3])
	}
	c.cut()
	return c.tally, shown
}

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		name           string
		events         []string
		passed, failed int
		skips          int
	}{
		{"a plain pass", []string{"run p A", "pass p A", "pass p"}, 1, 0, 0},
		{"subtests count, their parent does not", []string{"run p A", "run p A/1", "run p A/2", "pass p A/1", "pass p A/2", "pass p A", "pass p"}, 2, 0, 0},
		{"a failed subtest counts once", []string{"run p A", "run p A/1", "run p A/2", "fail p A/1", "pass p A/2", "fail p A", "fail p"}, 1, 1, 0},
		{"a parent that failed on its own counts too", []string{"run p A", "run p A/1", "pass p A/1", "fail p A", "fail p"}, 1, 1, 0},
		{"a name that begins like another is no child", []string{"run p A", "run p AB", "fail p AB", "pass p A", "fail p"}, 1, 1, 0},
		{"a panic fails the test that did not end", []string{"run p A", "pass p A", "run p B", "fail p"}, 1, 1, 0},
		{"a panic in a subtest counts once", []string{"run p A", "run p A/1", "fail p"}, 0, 1, 0},
		{"a package that does not build fails once", []string{"fail p"}, 0, 1, 0},
		{"a package without tests counts nothing", []string{"skip p"}, 0, 0, 0},
		{"a skip is neither", []string{"run p A", "skip p A", "pass p"}, 0, 0, 1},
		{"an interrupted package keeps what it had", []string{"run p A", "pass p A", "run p B"}, 1, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, verbose := range []bool{false, true} {
				got, _ := count(verbose, tc.events...)
				if got.passed != tc.passed || got.failed != tc.failed || len(got.skips) != tc.skips {
					t.Errorf("verbose %v: %d passed, %d failed, %d skipped; want %d, %d, %d", verbose, got.passed, got.failed, len(got.skips), tc.passed, tc.failed, tc.skips)
				}
			}
		})
	}
}

// TestFiguresAreShown of tests that pass, where each test has a line.
func TestFiguresAreShown(t *testing.T) {
	for _, verbose := range []bool{false, true} {
		var shown []string
		c := newCounter(verbose, func(format string, args ...any) { shown = append(shown, fmt.Sprintf(format, args...)) })
		for _, line := range []string{
			`{"Action":"run","Package":"p","Test":"A"}`, `{"Action":"attr","Package":"p","Test":"A","Key":"figure","Value":"12 ms"}`,
			`{"Action":"attr","Package":"p","Test":"A","Key":"other","Value":"x"}`, `{"Action":"pass","Package":"p","Test":"A"}`, `{"Action":"pass","Package":"p"}`,
		} {
			fmt.Fprintln(c, line)
		}
		if got := slices.Contains(shown, "        12 ms"); got != verbose || slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, "x") }) {
			t.Errorf("verbose %v: %q", verbose, shown)
		}
	}
}

func TestFailureShowsItsOutput(t *testing.T) {
	_, shown := count(false, "run p A", "output p A === RUN A\n", "output p A     x_test.go:3: want 1\n", "fail p A", "fail p")
	if !slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, "x_test.go:3: want 1") }) {
		t.Errorf("the reason is not shown: %q", shown)
	}
	if slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, "=== RUN") }) {
		t.Errorf("framing lines are shown: %q", shown)
	}
}

func TestSkipShowsItsReason(t *testing.T) {
	got, _ := count(false, "run p A", "output p A     x_test.go:3: no root\n", "output p A --- SKIP: A (0.00s)\n", "skip p A", "pass p")
	if want := []string{"p.A: x_test.go:3: no root"}; !slices.Equal(got.skips, want) {
		t.Errorf("got %q, want %q", got.skips, want)
	}
}

func TestWriteTakesPieces(t *testing.T) {
	c := newCounter(false, func(string, ...any) {})
	for _, b := range []byte("{\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"A\"}\n{\"Action\":\"pass\",\"Package\":\"p\"}\nnot json\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if c.passed != 1 {
		t.Errorf("%d passed, want 1", c.passed)
	}
}

// TestTheSlowestAreNamed: of tests alone, whose subtests are in their time.
func TestTheSlowestAreNamed(t *testing.T) {
	c := newCounter(false, func(string, ...any) {})
	for _, e := range []string{`"Test":"A/1","Elapsed":9`, `"Test":"A","Elapsed":9.5`, `"Test":"B","Elapsed":1`, `"Test":"C","Elapsed":12`, `"Elapsed":30`} {
		fmt.Fprintf(c, "{\"Action\":\"pass\",\"Package\":\"p\",%s}\n", e)
	}
	if got := fmt.Sprint(c.slowest(2)); got != "[{p.C 12} {p.A 9.5}]" {
		t.Errorf("got %s", got)
	}
	if got := c.slowest(20); len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
