// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// connectOnce opens one more tunnel. One to a server that the agent has already is closed: there may be a load balancer
// in front of them.
func (a *Agent) connectOnce(ctx context.Context, g *run.Group, d *directory) error {
	at, err := d.next(ctx, a.Hosts, a.Port, a.places())
	if err != nil {
		return err
	}
	u, closer, err := a.reach(ctx, at)
	if err != nil {
		return err
	}
	if !a.add(u) {
		u.Close()
		closer()
		return nil
	}
	a.Log.Info("connected to a server", "server", u.ServerID, telemetry.AttrPeer, at.address, "servers", u.Count)
	g.Do(func(context.Context) {
		defer closer()
		err := u.Serve()
		a.remove(u)
		a.Log.Warn("a server is gone", "server", u.ServerID, telemetry.AttrReason, fault.From(err).Explain())
	})
	return nil
}

func (a *Agent) token() (string, error) {
	if a.Options.Token == "" {
		return "", nil
	}
	text, err := private.ReadPublic(a.Options.Token, limit.PrivateFile)
	if err != nil {
		return "", fault.New(fault.CodeConfig, "the agent's token cannot be read").Because(err).
			Hint("correct --service-account-token-path")
	}
	return strings.TrimSpace(string(text)), nil
}

// add keeps a tunnel unless the agent has one to that server.
func (a *Agent) add(u *konnectivity.Upstream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.servers[u.ServerID] != nil {
		return false
	}
	a.servers[u.ServerID], a.said = u, u.Count
	if a.drained {
		u.Drain()
	}
	return true
}

func (a *Agent) remove(u *konnectivity.Upstream) {
	a.mu.Lock()
	delete(a.servers, u.ServerID)
	a.mu.Unlock()
	a.counts()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// countLeases asks for them; what is known stays if there is no answer.
func (a *Agent) countLeases(ctx context.Context) {
	if a.leases == nil {
		return
	}
	begin := time.Now()
	n, err := a.leases(ctx)
	code, reason := "200", ""
	if err != nil {
		code, reason = strconv.Itoa(kube.Answered(err)), string(fault.From(err).Code)
		a.Log.Warn("the leases of servers cannot be counted", telemetry.AttrReason, err)
	}
	a.metrics.LeaseLists.WithLabelValues(code, reason).Inc()
	a.metrics.LeaseListSeconds.WithLabelValues(code).Observe(time.Since(begin).Seconds())
	if err == nil {
		a.mu.Lock()
		a.leased = n
		a.mu.Unlock()
	}
}
