// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// Of compiles what an AccessPolicy says that is no file: an object of the Kubernetes API, or one that a program made.
// Problems have the path of their field. Its lists cannot name files. If any problem is not a warning, the policy is
// nil.
func Of(w v1alpha1.AccessContent) (*Policy, []Problem) {
	var out []Problem
	r := reader{add: func(path, format string, args ...any) {
		if len(out) < mostProblems {
			out = append(out, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
		}
	}}
	r.open = func(string) ([]byte, error) { return nil, fmt.Errorf("an object cannot name files") }
	rules, lists := r.contents(w)
	p, problems := Compile(rules, lists)
	out = append(out, problems...)
	if slices.ContainsFunc(out, func(p Problem) bool { return !p.Warning }) {
		return nil, out
	}
	return p, out
}
