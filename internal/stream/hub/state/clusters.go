// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Removed remembers a cluster that an operator removed. Certificates of its agents, nodes
// and clients are good for long after that, so it is kept as long as the CA can live.
type Removed struct {
	Name string `json:"name"`
	// Before is until when certificates were issued that count no more.
	Before time.Time `json:"before"`
}

// Refuses says whether a certificate that was issued at that time is of the removed cluster,
// not of one of the same name that was registered later.
func (r Removed) Refuses(issued time.Time) bool { return !issued.After(r.Before) }

// RemovedCluster is the refusal of a certificate of a cluster that was removed.
func RemovedCluster(name string) *fault.Fault {
	return fault.Newf(fault.CodeCertRevoked, "cluster %s was removed from this hub", name).
		Hint("if it shall come back, join anew: tombolo token create --cluster %s", name)
}

// Removal is what was removed with a cluster.
type Removal struct {
	Removed
	Tokens, Agents, Nodes int
	Clients               []Certificate
}

// RemoveCluster removes a cluster with its tokens, names, client certificates, sockets, and its address and keys of
// WireGuard.
func (s *Store) RemoveCluster(c id.Cluster, now time.Time) (out Removal, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		out = Removal{Removed: Removed{Name: c.String(), Before: now.UTC().Truncate(time.Second)}}
		gone := map[string][]string{bucketClusters: {c.String()}, bucketWireGuard: {c.String()}}
		if err := each(tx, bucketTokens, func(key string, t trust.Token) {
			if t.Cluster == c.String() {
				gone[bucketTokens] = append(gone[bucketTokens], key)
			}
		}); err != nil {
			return err
		}
		if err := each(tx, bucketNodes, func(key string, n Holder) {
			if who, err := id.ParseURI(n.Identity); err == nil && who.Cluster == c {
				gone[bucketNodes] = append(gone[bucketNodes], key)
				out.Before = later(out.Before, n.Issued)
				if who.Role == id.RoleNode {
					out.Nodes++
				} else {
					out.Agents++
				}
			}
		}); err != nil {
			return err
		}
		if err := each(tx, bucketCertificates, func(key string, k Certificate) {
			if who, err := id.ParseURI(k.Identity); err == nil && who.Cluster == c {
				gone[bucketCertificates] = append(gone[bucketCertificates], key)
				out.Before = later(out.Before, k.Issued)
				out.Clients = append(out.Clients, k)
			}
		}); err != nil {
			return err
		}
		out.Tokens = len(gone[bucketTokens])
		for bucket, keys := range gone {
			for _, key := range keys {
				if err := tx.Bucket([]byte(bucket)).Delete([]byte(key)); err != nil {
					return err
				}
			}
		}
		if err := forgetRemoved(tx, now); err != nil {
			return err
		}
		return put(tx, bucketRemoved, c.String(), out.Removed)
	})
	return out, wrap(err)
}

// forgetRemoved forgets clusters of which no certificate can live any more.
func forgetRemoved(tx *bbolt.Tx, now time.Time) error {
	return drop(tx, bucketRemoved, func(r Removed) bool { return now.Sub(r.Before) > limit.Authority })
}

// RemovedClusters lists the clusters that were removed.
func (s *Store) RemovedClusters() ([]Removed, error) { return list[Removed](s, bucketRemoved) }

// removed says whether a certificate was issued before its cluster was removed.
func removed(tx *bbolt.Tx, cluster string, issued time.Time) (bool, error) {
	var r Removed
	found, err := get(tx, bucketRemoved, cluster, &r)
	return found && r.Refuses(issued), err
}

func addCluster(tx *bbolt.Tx, name string, now time.Time) error {
	var rec Cluster
	if found, err := get(tx, bucketClusters, name, &rec); found || err != nil {
		return err
	}
	// Certificates tell whole seconds: one of this second could not be told from an old one.
	if gone, err := removed(tx, name, now.Truncate(time.Second)); gone || err != nil {
		if gone {
			err = fault.Newf(fault.CodeClusterInUse, "cluster %s was removed a moment ago", name).
				Hint("try again in a second; see to the hub's clock if that does not help")
		}
		return err
	}
	return put(tx, bucketClusters, name, Cluster{Name: name, Created: now.UTC()})
}

// SetBackend notes what carries the dials of a cluster; empty: what the configuration says.
func (s *Store) SetBackend(c id.Cluster, backend string, now time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		if err := addCluster(tx, c.String(), now); err != nil { // the configuration alone may name it
			return err
		}
		var rec Cluster
		if _, err := get(tx, bucketClusters, c.String(), &rec); err != nil {
			return err
		}
		rec.Backend = backend
		return put(tx, bucketClusters, c.String(), rec)
	}))
}
