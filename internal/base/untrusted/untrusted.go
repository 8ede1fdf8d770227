// SPDX-License-Identifier: Apache-2.0

// Package untrusted makes texts of peers fit to be shown, logged and kept. It
// does not judge them: whoever needs a name to be exact compares it with its Text.
package untrusted

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is at most so many bytes of a text of a peer, without what does not print:
// control characters, line separators, marks that turn the direction of writing
// and invalid UTF-8. It cannot forge lines of a log, headers or a screen. What
// replaces a character is never longer, so that a cut text stays a prefix.
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

// Clip is at most so many bytes of a text, cut between two characters.
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
