// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestAFailureIsExplainedByItsCause(t *testing.T) {
	step := errors.New("hub: it broke")
	for name, c := range map[string]struct {
		err    error
		screen Screen
		told   bool
		code   fault.Code
		above  bool
	}{
		"a step":                    {err: step, code: fault.CodeDemo},
		"a step with logs":          {err: step, told: true, code: fault.CodeDemo, above: true},
		"what has a code":           {err: errors.Join(step, fault.New(fault.CodeStateAccess, "x")), code: fault.CodeStateAccess},
		"nobody watches":            {err: step, screen: Screen{failed: io.ErrClosedPipe}, code: fault.CodeOutput},
		"nobody watched it succeed": {screen: Screen{failed: io.ErrClosedPipe}, code: fault.CodeOutput},
	} {
		f := fault.From(explain(c.err, &c.screen, c.told))
		if f.Code != c.code || strings.Contains(f.Next, "above") != c.above {
			t.Errorf("%s: %s", name, f.Explain())
		}
	}
}

func TestAnInterruptedDemoSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt signal received"))
	var out, logs strings.Builder
	err := Run(ctx, Options{Program: "/nonexistent", Rootless: true, Screen: &Screen{Out: &out}, Errors: &logs})
	if f := fault.From(err); f.Code != fault.CodeInterrupted || f.Why != "interrupt signal received" {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "interrupted, and everything that it made is gone") || logs.Len() > 0 {
		t.Errorf("%q, %q", out.String(), logs.String())
	}
}

func TestAMeshNeedsNamespaces(t *testing.T) {
	err := Run(t.Context(), Options{Rootless: true, Mesh: true, Screen: &Screen{Out: io.Discard}})
	if f := fault.From(err); f.Code != fault.CodeUsage || !strings.Contains(f.Next, "--rootless") {
		t.Errorf("%s", f.Explain())
	}
}
