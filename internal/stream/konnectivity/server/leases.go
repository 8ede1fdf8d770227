// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// leaseKeeper publishes this server's lease and removes those of servers that are gone.
type leaseKeeper struct {
	*Server
	client *kube.Client
	own    string
}

func (s *Server) leaseKeeper() (*leaseKeeper, error) {
	load := func() (kube.Access, error) { return kube.Load(s.Kubeconfig, s.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	return &leaseKeeper{s, kube.NewClientOf(load, nil), "konnectivity-proxy-server-" + s.ServerID}, nil
}

// run keeps the lease until ctx ends, and removes it then: agents need not wait for its end.
func (k *leaseKeeper) run(ctx context.Context) error {
	k.keep(ctx)
	err := run.Every(ctx, leaseRenew, func() { k.keep(ctx) })
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseLeave)
	defer cancel()
	k.remove(last, k.own)
	return err
}

func (k *leaseKeeper) keep(ctx context.Context) {
	now := time.Now()
	err := k.client.PutLease(ctx, k.LeaseNamespace, kube.Lease{Name: k.own, Labels: k.labels, Holder: k.ServerID,
		Renewed: now, Life: leaseLife})
	if err != nil {
		k.Log.Warn("the lease of this server is not renewed", telemetry.AttrReason, err)
	}
	all, err := k.client.Leases(ctx, k.LeaseNamespace, k.LeaseLabel)
	code, reason := answered(err)
	k.metrics.LeaseLists.WithLabelValues(code, reason).Inc()
	k.metrics.LeaseListSeconds.WithLabelValues(code).Observe(time.Since(now).Seconds())
	for _, l := range all {
		if !l.Valid(now.Add(-leaseLife)) && l.Name != k.own { // well past its end: clocks differ
			k.remove(ctx, l.Name)
			k.metrics.Culled.Inc()
		}
	}
}

func (k *leaseKeeper) remove(ctx context.Context, name string) {
	begin := time.Now()
	code, reason := answered(k.client.DeleteLease(ctx, k.LeaseNamespace, name))
	k.metrics.LeaseDeletes.WithLabelValues(code, reason).Inc()
	k.metrics.LeaseDeleteSeconds.WithLabelValues(code).Observe(time.Since(begin).Seconds())
}

// answered is how a call at the API ended, as the metrics have it: the code is 0 if there was no answer.
func answered(err error) (code, reason string) {
	if err == nil {
		return strconv.Itoa(200), ""
	}
	return strconv.Itoa(kube.Answered(err)), string(fault.From(err).Code)
}
