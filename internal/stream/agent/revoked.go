// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// heard notes whether the hub has revoked this agent. If the agent has a join line with
// another token than the one it joined with, it joins again, and heard returns true.
func (a *Agent) heard(ctx context.Context, err error) (again bool) {
	f := fault.From(err)
	if f == nil || f.Code != fault.CodeCertRevoked {
		if f == nil {
			a.revoked.Store(nil)
		}
		return false
	}
	a.revoked.Store(f)
	line := a.spare
	if line == nil {
		return false
	}
	a.spare = nil
	key, err := trust.NewKey()
	if err == nil {
		err = a.join(ctx, &enrol.Identity{Key: key, Hubs: line.Hubs}, *line)
	}
	if err != nil && ctx.Err() == nil {
		f := fault.From(err)
		a.log.Error("this agent was revoked, and its join line is refused", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
	}
	return err == nil
}
