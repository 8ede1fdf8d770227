// SPDX-License-Identifier: Apache-2.0

package paste

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pages are README.md and the howtos, by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/howto/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(file, "../../")] = string(text)
	}
	return out
}

// TestEveryBlockIsRunOrMarked is the law; the lab runs what it lets through.
func TestEveryBlockIsRunOrMarked(t *testing.T) {
	for name, text := range pages(t) {
		_, problems := Read(text)
		for _, p := range problems {
			t.Errorf("%s: %s", name, p)
		}
	}
}

func TestTheLawCanFail(t *testing.T) {
	block := func(language, text string) string { return "```" + language + "\n" + text + "\n```\n" }
	for name, tc := range map[string]struct {
		page, want string // of the problem; empty: there is none
	}{
		"run":                     {"<!-- run: hub, terminal 2, goes on, with PIN LINE -->\n" + block("sh", "x"), ""},
		"marked":                  {"<!-- not run: it needs a moon -->\n" + block("sh", "x"), ""},
		"output":                  {block("", "x"), ""},
		"a configuration":         {block("yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig"), ""},
		"neither":                 {block("sh", "x"), "line 1: a block of sh is neither run nor marked"},
		"a part of yaml":          {block("yaml", "x: 1"), "neither run nor marked"},
		"somebody else's yaml":    {block("yaml", "apiVersion: v1\nkind: Pod"), "neither run nor marked"},
		"a comment further above": {"<!-- run: hub -->\n\n" + block("sh", "x"), "no block follows"},
		"an unknown machine":      {"<!-- run: moon -->\n" + block("sh", "x"), `no machine "moon"`},
		"an unknown word":         {"<!-- run: hub, with MOON -->\n" + block("sh", "x"), `in place of "MOON"`},
		"an unknown way":          {"<!-- run: hub, twice -->\n" + block("sh", "x"), `"twice" is unknown`},
		"a comment with no sense": {"<!-- ran: hub -->\n" + block("sh", "x"), "none of those"},
	} {
		_, problems := Read(tc.page)
		if got := strings.Join(problems, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestFill(t *testing.T) {
	s := Step{Text: "x --pin PIN LINE NODE # PINS", Words: []string{"PIN", "LINE", "NODE"}}
	got, err := s.fill("CA pin old\nCA pin new\ntombolo://a.b@h/c\n")
	if want := "x --pin new tombolo://a.b@h/c node-2 # PINS"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.fill("CA pin x"); err == nil {
		t.Error("a word is left as it is")
	}
}
