// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Keeper renews a certificate before it expires, and stores it.
type Keeper struct {
	Client  Client
	Dir     string
	Current func() *Identity                // the present one, joined
	Hubs    func(*Identity) []string        // the addresses to ask
	Tried   func(next *Identity, err error) // called with the next identity, already stored, or with the error
}

// RenewAt is the time at which to renew the certificate.
func (i *Identity) RenewAt() time.Time {
	return RenewAt(i.Cert.NotBefore.Add(limit.ClockTolerance), i.Cert.NotAfter)
}

// Run renews at two thirds of the certificate's lifetime, and at once if it has
// expired, until ctx ends.
func (k Keeper) Run(ctx context.Context) error {
	for k.Due(ctx) {
		if wait := k.Renew(ctx); !run.Wait(ctx, wait) {
			break
		}
	}
	return ctx.Err()
}

// Due waits until the certificate is due for renewal; false if ctx ends first.
func (k Keeper) Due(ctx context.Context) bool {
	for {
		wait := k.Current().RenewAt().Sub(k.Client.Now())
		if wait <= 0 {
			return ctx.Err() == nil
		}
		// In slices, to notice clock jumps and a machine that slept.
		if !run.Wait(ctx, min(wait, time.Minute)) {
			return false
		}
	}
}

// Renew tries once, and returns how long to wait until the next try.
func (k Keeper) Renew(ctx context.Context) (again time.Duration) {
	me, log := k.Current(), k.Client.Log
	next, err := k.Client.Renew(ctx, me, k.Hubs(me))
	if err == nil {
		err = next.Save(k.Dir)
	}
	if err == nil {
		log.Info("certificate renewed", "identity", next.Who.URI(), "certificateEnd", next.Cert.NotAfter)
		k.Tried(next, nil)
		return 0
	}
	if ctx.Err() != nil {
		return 0
	}
	f := fault.From(err)
	again = max(RenewRetry(k.Client.Now(), me.Cert.NotAfter), f.Again)
	if f.Code == fault.CodeCertRevoked {
		again = limit.AttachRefused // a refusal does not change soon
	}
	log.Warn("certificate not renewed", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain(),
		"certificateEnd", me.Cert.NotAfter, "retryIn", again)
	k.Tried(nil, err)
	return again
}

// Begin makes the key for a join and stores it, so that a join whose answer was lost can
// be repeated with the same key.
func Begin(dir string, hubs []string) (*Identity, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	me := &Identity{Key: key, Hubs: hubs}
	return me, me.Save(dir)
}

// Fits reports whether a join line is for the hub and cluster of the identity: the same
// command can be run again, and does not move an agent to another cluster by accident.
func (i *Identity) Fits(line trust.Join) bool {
	return i.Who.Cluster == line.Cluster && trust.Pin(i.CA) == line.Pin
}
