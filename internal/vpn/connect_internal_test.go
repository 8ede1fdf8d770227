// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"testing"
)

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
