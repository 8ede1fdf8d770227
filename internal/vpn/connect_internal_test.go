// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// late is a context whose deadline has passed, and which does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// TestADialThatIsLate: package net may see its end before its context does.
func TestADialThatIsLate(t *testing.T) {
	if f := unreached(late{t.Context()}, "10.0.0.1:443", os.ErrDeadlineExceeded); f.Code != fault.CodeDialTimeout {
		t.Error(f)
	}
}

// TestADrainBeforeAnythingIsServed: a SIGTERM may come as soon as the port is open.
func TestADrainBeforeAnythingIsServed(t *testing.T) {
	c := &connect{Server: &Server{}, cfg: &connectConfig{Listen: "127.0.0.1:0"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := c.listen(ctx, ctx); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.drain(ctx)
	if err := c.live.Wait(); err != nil {
		t.Error(err)
	}
}
