// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestTheTableIsAVocabulary(t *testing.T) {
	seen := map[fault.Code]bool{}
	form := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, e := range fault.Table() {
		if !form.MatchString(string(e.Code)) {
			t.Errorf("code %q is not of lower-case words with underscores", e.Code)
		}
		if seen[e.Code] {
			t.Errorf("code %s stands twice", e.Code)
		}
		seen[e.Code] = true
		if fault.ClassOf(e.Code) != e.Class {
			t.Errorf("code %s: the class is not found", e.Code)
		}
		if e.Meaning == "" || e.Meaning[len(e.Meaning)-1] != '.' {
			t.Errorf("code %s: the meaning %q is no sentence", e.Code, e.Meaning)
		}
	}
	if fault.ClassOf("of_a_later_version") != fault.Internal {
		t.Error("an unknown code must count as internal")
	}
}

func TestRendering(t *testing.T) {
	for name, c := range map[string]struct {
		f              *fault.Fault
		short, explain string
	}{
		"what alone":                {fault.New("c", "what"), "c: what", "c: what"},
		"what and why":              {fault.New("c", "what").Whyf("%d reasons", 2), "c: what: 2 reasons", "c: what: 2 reasons"},
		"all three":                 {fault.Newf("c", "wh%s", "at").Because(io.EOF).Hint("do %s", "it"), "c: what: EOF", "c: what: EOF; do it"},
		"a next step without a why": {fault.New("c", "what").Hint("do it"), "c: what", "c: what; do it"},
		"a code alone":              {fault.New("c", ""), "c", "c"},
		"no cause":                  {fault.New("c", "what").Because(nil), "c: what", "c: what"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.f.Error() != c.short || c.f.Explain() != c.explain {
				t.Errorf("%q and %q, want %q and %q", c.f.Error(), c.f.Explain(), c.short, c.explain)
			}
		})
	}
}

func TestAFaultIsFoundInAChain(t *testing.T) {
	inner := fault.New(fault.CodeNoAgent, "none").Because(io.ErrClosedPipe)
	for name, err := range map[string]error{
		"itself": inner, "wrapped": fmt.Errorf("cluster c1: %w", inner),
		"joined": errors.Join(io.EOF, inner), "the cause of an error": fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)),
	} {
		t.Run(name, func(t *testing.T) {
			if fault.From(err) != inner || !fault.Has(err, fault.CodeNoAgent) || fault.Has(err, fault.CodeDraining) {
				t.Error("it is not found, or under another code")
			}
			if !errors.Is(err, io.ErrClosedPipe) || !errors.Is(err, fault.New(fault.CodeNoAgent, "")) || errors.Is(err, fault.New(fault.CodeUsage, "none")) {
				t.Error("errors.Is does not go by cause and code")
			}
		})
	}
	if fault.From(nil) != nil || fault.Has(nil, fault.CodeInternal) {
		t.Error("no error became a fault")
	}
	if f := fault.From(io.EOF); f.Code != fault.CodeInternal || !errors.Is(f, io.EOF) || f.Why != "EOF" {
		t.Errorf("a plain error became %v", f)
	}
}
