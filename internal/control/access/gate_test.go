// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

func refs(names ...string) (out []istio.Ref) {
	for _, n := range names {
		out = append(out, istio.Ref{Kind: istio.KindEnvoyFilter, Namespace: "ns", Name: n})
	}
	return out
}

func TestAStepWaitsForTheOneBefore(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	g := gate{settle: 10 * time.Second, began: at(-60)}
	see := func(now int, steps []istio.Step, write, remove []istio.Ref, again int) {
		t.Helper()
		w, r, next := g.due(steps, at(now))
		if !slices.Equal(w, write) || !slices.Equal(r, remove) || again < 0 != next.IsZero() || again >= 0 && next != at(again) {
			t.Fatalf("at %d: write %v, remove %v, again at %v", now, w, r, next.Sub(start))
		}
	}
	data := istio.Step{Write: refs("data"), Await: true}
	ask := istio.Step{Write: refs("ask"), Await: true}
	gone := istio.Step{Remove: refs("old"), Loses: true}
	edit := istio.Step{Write: refs("edit"), Await: true}

	see(0, []istio.Step{data, ask, gone}, refs("data"), nil, 10)
	see(1, []istio.Step{edit, ask, gone}, refs("edit"), nil, 10) // an edit does not wait, and delays nothing for ever
	see(9, []istio.Step{ask, gone}, nil, nil, 10)
	see(10, []istio.Step{ask, gone}, refs("ask"), nil, 20)
	see(11, []istio.Step{gone}, nil, nil, 20)
	see(15, []istio.Step{edit, gone}, refs("edit"), nil, 20)
	see(20, []istio.Step{gone}, nil, refs("old"), -1)
	see(21, nil, nil, nil, -1)

	see(30, []istio.Step{data, gone}, refs("data"), nil, 40)
	g.failed(at(35)) // the data could not be written
	see(36, []istio.Step{data, gone}, refs("data"), nil, 45)
	see(45, []istio.Step{gone}, nil, refs("old"), -1)
}

func TestNothingIsTakenAwayRightAfterAStart(t *testing.T) {
	now := time.Unix(1e9, 0)
	g := gate{settle: 10 * time.Second, began: now}
	steps := []istio.Step{{Write: refs("loses"), Loses: true}}
	if w, _, again := g.due(steps, now); len(w) > 0 || again != now.Add(10*time.Second) {
		t.Errorf("%v, %v", w, again)
	}
	if w, _, _ := g.due(steps, now.Add(10*time.Second)); len(w) != 1 {
		t.Errorf("%v", w)
	}
}
