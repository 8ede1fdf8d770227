// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

// WireGuard lists what is kept of clusters in the WireGuard network, by name.
func (s *Store) WireGuard() (out []wireguard.Cluster, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		out, err = wireGuardOf(tx)
		return err
	})
	return out, wrap(err)
}

func wireGuardOf(tx *bbolt.Tx) (out []wireguard.Cluster, err error) {
	var problem error
	bad := func(path, format string, args ...any) {
		problem = fault.New(fault.CodeStateCorrupt, "what is kept of a cluster's WireGuard cannot be read").
			Whyf("%s: %s", path, fmt.Sprintf(format, args...))
	}
	err = each(tx, bucketWireGuard, func(_ string, raw v1alpha1.ClusterState) {
		out = append(out, wireguard.ParseState(raw, bad))
	})
	if err == nil {
		err = problem
	}
	return out, err
}

// ChangeWireGuard stores what decide makes of the clusters there are, and registers the cluster if it is new. Nothing
// is written if that is stored already, or, unless keep, if there is nothing to say.
func (s *Store) ChangeWireGuard(c id.Cluster, keep bool, now time.Time,
	decide func(all []wireguard.Cluster) (wireguard.Cluster, error)) (out wireguard.Cluster, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		all, err := wireGuardOf(tx)
		if err != nil {
			return err
		}
		if out, err = decide(all); err != nil {
			return err
		}
		if before, stored := wireguard.Entry(all, c.String()); before.Same(out) && (stored || !keep) {
			return nil
		}
		if err := addCluster(tx, c.String(), now); err != nil {
			return err
		}
		return put(tx, bucketWireGuard, c.String(), wireguard.StateOf(out))
	})
	return out, wrap(err)
}
