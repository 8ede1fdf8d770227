// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/kube"
)

// leaseCounter counts the leases of servers that have not run out.
func (a *Agent) leaseCounter() (func(context.Context) (int, error), error) {
	load := func() (kube.Access, error) { return kube.Load(a.Kubeconfig, a.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	client := kube.NewClientOf(load, nil)
	return func(ctx context.Context) (n int, err error) {
		all, err := client.Leases(ctx, a.LeaseNamespace, a.LeaseLabel)
		for _, l := range all {
			if l.Valid(time.Now()) {
				n++
			}
		}
		return n, err
	}, nil
}
