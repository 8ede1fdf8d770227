// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// stubborn is a kernel in which somebody makes everything again, so many times.
type stubborn struct {
	*kerneltest.Kernel
	again int
}

func (k *stubborn) Apply(steps []plan.Step) error {
	before, _ := k.Observe()
	if err := k.Kernel.Apply(steps); err != nil || k.again == 0 {
		return err
	}
	k.again--
	if err := k.Make(kerneltest.Link); err != nil {
		return err
	}
	have, _ := k.Observe()
	return k.Kernel.Apply(plan.Diff(have, before))
}

func filled(t *testing.T) *kerneltest.Kernel {
	t.Helper()
	k := kerneltest.New()
	if err := k.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	have, _ := k.Observe()
	if err := k.Apply(plan.Diff(have, kerneltest.State(1))); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRemoval(t *testing.T) {
	whole := len(plan.Diff(kerneltest.State(1), plan.State{}))
	for _, tc := range []struct {
		name  string
		again int
		fail  error
		link  bool
		code  fault.Code
	}{
		{name: "with the link", link: true},
		{name: "without it"},
		{name: "others make it again once", again: 1, link: true},
		{name: "and again", again: routingRemovals + 1, link: true, code: fault.CodeClash},
		{name: "it fails", fail: errBroken, link: true, code: fault.CodeInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := &stubborn{filled(t), tc.again}
			k.Fail = tc.fail
			steps, err := remove(k, tc.link)
			if tc.code != "" {
				if f := fault.From(err); f == nil || f.Code != tc.code || tc.fail != nil && !errors.Is(err, tc.fail) {
					t.Errorf("%v", err)
				}
				return
			}
			want := whole * (tc.again + 1)
			if !tc.link {
				want--
			}
			if err != nil || len(steps) != want {
				t.Errorf("%d steps, %d are expected: %v", len(steps), want, err)
			}
			have, _ := k.Observe()
			if left := len(plan.Diff(plan.State{}, have)); (left > 0) == tc.link {
				t.Errorf("left: %s", k)
			}
			if steps, err := remove(k, tc.link); len(steps) != 0 || err != nil {
				t.Errorf("once more: %v, %v", steps, err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	if got, want := Names(topology.Defaults()), (kernel.Names{Link: "tombolo0", Filter: "tombolo_mesh", Table: 180, Protocol: 180}); got != want {
		t.Errorf("%+v", got)
	}
}
