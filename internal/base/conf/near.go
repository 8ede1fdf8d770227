// SPDX-License-Identifier: Apache-2.0

package conf

import "strings"

// Near returns the known word that was probably meant, "" if none is close.
func Near(word string, known ...string) string {
	best, least := "", max(1, len(word)/3)+1 // beyond that it is another word
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// Meant is Near as the end of a sentence, "" if there is none.
func Meant(word string, known ...string) string {
	if near := Near(word, known...); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// distance is the number of insertions, deletions, substitutions and transpositions
// between two words. Both are truncated, for the cost is the product of their lengths.
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
