// SPDX-License-Identifier: Apache-2.0

package untrusted_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

func TestText(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		most int
		want string
	}{
		"plain":             {"node-1 (Berlin)", 100, "node-1 (Berlin)"},
		"other letters":     {"größe 東京", 100, "größe 東京"},
		"a forged line":     {"x\nlevel=ERROR\r\n\ty", 100, "x level=ERROR   y"},
		"a steered screen":  {"\x1b[31mred\u009b0m", 100, "?[31mred?0m"},
		"turned writing":    {"a\u202eb\u2028c\ufeffd", 100, "a?b c?d"},
		"a hard space":      {"a\u00a0b", 100, "a b"},
		"invalid UTF-8":     {"a\xffb\xc3", 100, "a?b?"},
		"the replacement":   {"a\ufffdb", 100, "a?b"},
		"cut":               {"abcdef", 3, "abc"},
		"not within a rune": {"aüü", 4, "aü"},
		"what gets shorter": {strings.Repeat("\u2028", 10), 5, "   "},
		"nothing":           {"abc", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untrusted.Text(c.in, c.most); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	if !untrusted.Printable("größe 1") || untrusted.Printable("a\nb") || untrusted.Printable("a\xff") {
		t.Error("Printable is not what Text leaves as it is")
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\u202e\x1b\xff", 7)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(0, most%1000)
		got := untrusted.Text(s, most)
		if len(got) > most || !utf8.ValidString(got) || untrusted.Text(got, most) != got {
			t.Fatalf("%q of %d bytes", got, len(got))
		}
		if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q does not print", got)
		}
	})
}
