// SPDX-License-Identifier: Apache-2.0

package house

// Exceptions lists who may break which law, and why.
func Exceptions() []Exception {
	return []Exception{
		{"floors", "internal/demo/", "test/lab",
			"the demonstration is the lab told as a story; the lab imports no testing package, see its doc.go"},
		{"error-text", "internal/conf/conf.go", "",
			"the YAML library tells the place of a syntax error in its text only; a test beside it holds the form"},
	}
}
