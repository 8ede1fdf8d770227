// SPDX-License-Identifier: Apache-2.0

package kerneltest_test

import (
	"errors"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
)

func TestTheTwinKeepsTheContract(t *testing.T) {
	kerneltest.Contract(t, func(*testing.T) kerneltest.Subject { return kerneltest.New() })
}

// A kernel that fails after any number of steps is mended by the next try.
func TestATwinThatFails(t *testing.T) {
	broken := errors.New("broken")
	for n := 0; ; n++ {
		k := kerneltest.New()
		if err := k.Make(kerneltest.Link); err != nil {
			t.Fatal(err)
		}
		k.Fail, k.Left = broken, n
		have, _ := k.Observe()
		steps := plan.Diff(have, kerneltest.State(1))
		err := k.Apply(steps)
		if n >= len(steps) {
			if err != nil {
				t.Errorf("after all steps: %v", err)
			}
			return
		}
		if !errors.Is(err, broken) || len(k.Log) != n {
			t.Fatalf("after %d steps: %v, %d done", n, err, len(k.Log))
		}
		k.Fail = nil
		have, _ = k.Observe()
		if err := k.Apply(plan.Diff(have, kerneltest.State(1))); err != nil {
			t.Fatal(err)
		}
		have, _ = k.Observe()
		if left := plan.Diff(have, kerneltest.State(1)); len(left) != 0 {
			t.Fatalf("after %d steps and another try: %s", n, plan.Print(left))
		}
	}
}
