// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/limit"
)

// Node is who holds the name of a node: one record for each name, however often its
// certificate was renewed.
type Node struct {
	Identity string    `json:"identity"` // SPIFFE URI
	KeyHash  string    `json:"keyHash"`
	Serial   string    `json:"serial"` // of the newest certificate
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked,omitzero"`
	// Before is until when certificates of the name were issued that count no more: the
	// node was revoked, or its certificate ran out and another one has the name.
	Before time.Time `json:"before,omitzero"`
}

// free decides whether a key may take the name whose last holder n is, and gives
// until when certificates of earlier holders were issued.
func (n Node) free(keyHash string, now time.Time) (before time.Time, err error) {
	if n.Identity == "" {
		return before, nil
	}
	switch before = n.Before; {
	case n.KeyHash == keyHash && n.Revoked.IsZero():
	case n.Revoked.IsZero() && now.Before(n.Expires):
		return before, fault.Newf(fault.CodeNodeTaken, "the name of %s is taken", n.Identity).
			Whyf("another key holds it, and its certificate lives until %s", n.Expires.UTC().Format(time.RFC3339)).
			Hint("choose another node.name; or, if that node is gone, revoke its certificate first: tombolo certificate revoke %s", n.Serial)
	case n.Revoked.IsZero():
		before = later(before, n.Issued) // it ran out: what could still be renewed cannot be now
	}
	// Certificates tell whole seconds: one of this second could not be told from an old one.
	if !now.Truncate(time.Second).After(before) {
		return before, fault.Newf(fault.CodeNodeTaken, "the name of %s is not free yet", n.Identity).
			Whyf("its certificates until %s do not count", before.UTC().Format(time.RFC3339)).Hint("try again in a second; see to the hub's clock if that does not help")
	}
	return before, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// joinNode stores who takes a name, if it is free; make issues the certificate.
func joinNode(tx *bbolt.Tx, identity string, u Use, now time.Time) error {
	var old Node
	if _, err := get(tx, bucketNodes, identity, &old); err != nil {
		return err
	}
	before, err := old.free(u.KeyHash, now)
	if err != nil {
		return err
	}
	rec, err := u.Issue(identity)
	if err != nil {
		return err
	}
	rec.Identity, rec.KeyHash, rec.Before = identity, u.KeyHash, before
	return put(tx, bucketNodes, identity, rec)
}

// forgetNodes forgets names that nobody can have any more.
func forgetNodes(tx *bbolt.Tx, now time.Time) error {
	var gone []string
	err := each(tx, bucketNodes, func(key string, n Node) {
		if now.Sub(n.Expires) > limit.NodeKept {
			gone = append(gone, key)
		}
	})
	if err != nil {
		return err
	}
	for _, key := range gone {
		if err := tx.Bucket([]byte(bucketNodes)).Delete([]byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// RenewNode stores the next certificate of a node that has shown one that was issued
// at shown. A state that was restored may not know the node: then it does again.
func (s *Store) RenewNode(rec Node, shown time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		var old Node
		if _, err := get(tx, bucketNodes, rec.Identity, &old); err != nil {
			return err
		}
		if old.Refuses(shown) {
			return RevokedNode(rec.Identity)
		}
		rec.Before, rec.Revoked = old.Before, time.Time{}
		return put(tx, bucketNodes, rec.Identity, rec)
	}))
}

// Refuses says whether a certificate of the name that was issued at that time counts no more.
func (n Node) Refuses(issued time.Time) bool { return !n.Before.IsZero() && !issued.After(n.Before) }

// RevokedNode is the refusal of a certificate of a node that was revoked.
func RevokedNode(identity string) *fault.Fault {
	return fault.Newf(fault.CodeCertRevoked, "the certificate of %s was revoked", identity).
		Hint("remove the node's identity and join again with a new token: tombolo token create --node")
}

// Nodes lists the nodes by identity.
func (s *Store) Nodes() ([]Node, error) {
	out, err := list[Node](s, bucketNodes)
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Identity, b.Identity) })
	return out, err
}

// RevokeNode revokes all certificates of the node whose newest has the serial number.
func (s *Store) RevokeNode(serial string, now time.Time) (rec Node, found bool, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		err := each(tx, bucketNodes, func(_ string, n Node) {
			if n.Serial == serial {
				rec, found = n, true
			}
		})
		if err != nil || !found {
			return err
		}
		if rec.Revoked.IsZero() {
			rec.Revoked = now.UTC()
		}
		rec.Before = later(later(rec.Before, rec.Issued), now.UTC().Truncate(time.Second))
		return put(tx, bucketNodes, rec.Identity, rec)
	})
	return rec, found, wrap(err)
}

// nodeIdentity is the key of a node's record.
func nodeIdentity(trustDomain string, c id.Cluster, name string) string {
	return id.Identity{TrustDomain: trustDomain, Role: id.RoleNode, Cluster: c, Name: name}.URI()
}

// Node gives the record of a name; one without an identity if there is none.
func (s *Store) Node(identity string) (rec Node, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		_, err := get(tx, bucketNodes, identity, &rec)
		return err
	})
	return rec, wrap(err)
}
