// SPDX-License-Identifier: Apache-2.0

// Package untrusted makes texts of peers safe to show, log and keep. It does not validate
// them: to require a clean text, compare it with its Text, or use Printable.
package untrusted

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns at most most bytes of a peer's text, with control characters, line
// separators, bidirectional marks and invalid UTF-8 replaced. The result cannot forge log
// lines, headers or terminal output. A replacement is never longer than the original, so
// that a truncated text stays a prefix.
func Text(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s[:min(len(s), most+utf8.UTFMax)])
	return Clip(s, most)
}

// Clip returns at most most bytes of a text, cut between two characters.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// Printable reports whether a text can be shown as it is.
func Printable(s string) bool { return Text(s, len(s)) == s }
