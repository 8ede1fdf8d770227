// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestADialWithoutTracingPaysNothing runs what the spans add to a dial.
func TestADialWithoutTracingPaysNothing(t *testing.T) {
	h := &dialer{parts: &parts{access: authz.NewTable()}}
	c, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	d := wire.Dial{Network: "tcp", Address: "10.0.0.1:443", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	before := d.Trace
	q := policy.Request{Cluster: "c1", Caller: "unix:c1/connect", Port: 443}
	if n := testing.AllocsPerRun(1000, func() {
		ctx, span := h.beginTrace(t.Context(), c, "connect", &d)
		if h.decideFirst(ctx, q, nil) != nil {
			t.Error("nobody denies")
		}
		otlp.Of(ctx).Child("pick", otlp.Internal).End("")
		otlp.Of(ctx).Child("ask", otlp.Client).End("")
		endSpan(span, nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if d.Trace != before {
		t.Error("the caller's trace has changed on its way")
	}
}
