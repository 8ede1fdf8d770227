// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Holder is who holds the name of an agent or a node: one record for each name, however
// often its certificate was renewed.
type Holder struct {
	Identity string    `json:"identity"` // SPIFFE URI
	KeyHash  string    `json:"keyHash"`
	Serial   string    `json:"serial"` // of the newest certificate
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked,omitzero"`
	// Before is until when certificates of the name were issued that count no more: the
	// holder was revoked, or its certificate ran out and another one has the name.
	Before time.Time `json:"before,omitzero"`
	Token  string    `json:"token,omitempty"` // id of the one by which the holder joined
	// Void is until when tokens were made that do not give the name, because it was revoked.
	Void time.Time `json:"void,omitzero"`
}

// gives decides whether a token may give the name to anybody: after a revocation only one
// that was made since. That voids the claim of the revoked key, too.
func (n Holder) gives(t trust.Token) error {
	void := later(n.Void, n.Revoked) // format 1 has the latter alone
	if void.IsZero() || t.Created.After(void) {
		return nil
	}
	return fault.Newf(fault.CodeCertRevoked, "%s was revoked", n.Identity).
		Whyf("the token was made before that, and does not give the name again").Hint("%s", rejoin(n.Identity))
}

// free decides whether a key may take the name whose last holder n is, and gives
// until when certificates of earlier holders were issued.
func (n Holder) free(keyHash string, now time.Time) (before time.Time, err error) {
	if n.Identity == "" {
		return before, nil
	}
	switch before = n.Before; {
	case n.KeyHash == keyHash && n.Revoked.IsZero():
	case n.Revoked.IsZero() && now.Before(n.Expires):
		return before, fault.Newf(fault.CodeNodeTaken, "the name of %s is taken", n.Identity).
			Whyf("another key holds it, and its certificate lives until %s", n.Expires.UTC().Format(time.RFC3339)).
			Hint("choose another node.name; or, if that node is gone, revoke it first: %s", revokeCommand(n.Identity))
	case n.Revoked.IsZero():
		before = later(before, n.Issued) // it ran out: what could still be renewed cannot be now
	}
	// Certificates tell whole seconds: one of this second could not be told from an old one.
	if !now.Truncate(time.Second).After(before) {
		return before, fault.Newf(fault.CodeNodeTaken, "the name of %s is not free yet", n.Identity).
			Whyf("its certificates until %s do not count", before.UTC().Format(time.RFC3339)).
			Hint("try again in a second; see to the hub's clock if that does not help")
	}
	return before, nil
}

func revokeCommand(identity string) string {
	who, err := id.ParseURI(identity)
	if err != nil {
		return "tombolo revoke --help"
	}
	return fmt.Sprintf("tombolo revoke %s %s/%s", who.Role, who.Cluster, who.Name)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// joinName stores who takes a name, if it is free; make issues the certificate.
// t is the token as it was before this use.
func joinName(tx *bbolt.Tx, identity string, t trust.Token, u Use, now time.Time) error {
	var old Holder
	if _, err := get(tx, bucketNodes, identity, &old); err != nil {
		return err
	}
	if err := old.gives(t); err != nil {
		return err
	}
	before, err := old.free(u.KeyHash, now)
	if err != nil {
		return err
	}
	again := slices.ContainsFunc(t.Claims, func(c trust.Claim) bool { return c.KeyHash == u.KeyHash })
	if again && u.Again != nil {
		if err := u.Again(identity); err != nil {
			return err
		}
	}
	rec, err := u.Issue(identity)
	if err != nil {
		return err
	}
	rec.Identity, rec.KeyHash, rec.Before, rec.Token, rec.Void = identity, u.KeyHash, before, t.ID, old.Void
	return put(tx, bucketNodes, identity, rec)
}

// forgetHolders forgets names that nobody can have any more.
func forgetHolders(tx *bbolt.Tx, now time.Time) error {
	return drop(tx, bucketNodes, func(n Holder) bool { return now.Sub(n.Expires) > nodeKept })
}

// RenewHolder stores the next certificate of an agent or node that has shown one that was
// issued at shown. A state that was restored may not know it: then it does again.
func (s *Store) RenewHolder(rec Holder, shown time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		var old Holder
		if _, err := get(tx, bucketNodes, rec.Identity, &old); err != nil {
			return err
		}
		if old.Refuses(shown) {
			return RevokedHolder(rec.Identity)
		}
		if who, err := id.ParseURI(rec.Identity); err != nil {
			return err
		} else if gone, err := removed(tx, who.Cluster.String(), shown); gone || err != nil {
			if gone {
				err = RemovedCluster(who.Cluster.String())
			}
			return err
		}
		rec.Before, rec.Revoked, rec.Token, rec.Void = old.Before, time.Time{}, old.Token, old.Void
		return put(tx, bucketNodes, rec.Identity, rec)
	}))
}

// Refuses says whether a certificate of the name that was issued at that time counts no more.
func (n Holder) Refuses(issued time.Time) bool {
	return !n.Revoked.IsZero() || !n.Before.IsZero() && !issued.After(n.Before)
}

// RevokedHolder is the refusal of a certificate of an agent or node that was revoked.
func RevokedHolder(identity string) *fault.Fault {
	return fault.Newf(fault.CodeCertRevoked, "%s was revoked", identity).Hint("%s", rejoin(identity))
}

// rejoin says how who was revoked comes back.
func rejoin(identity string) string {
	who, err := id.ParseURI(identity)
	if err == nil && who.Role == id.RoleNode {
		return fmt.Sprintf("if it shall come back, give it a new join line: tombolo token create --cluster %s --node",
			who.Cluster)
	}
	return fmt.Sprintf("if it shall come back, remove its state and start it with a new join line: tombolo token "+
		"create --cluster %s", who.Cluster)
}

// Holders lists the agents and nodes by identity.
func (s *Store) Holders() ([]Holder, error) {
	out, err := list[Holder](s, bucketNodes)
	slices.SortFunc(out, func(a, b Holder) int { return strings.Compare(a.Identity, b.Identity) })
	return out, err
}

// RevokeHolder revokes all certificates of a name. known says that it is there although
// there is no record of it, as after a restore; else found is false for such a name.
func (s *Store) RevokeHolder(who id.Identity, known bool, now time.Time) (rec Holder, found bool, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if found, err = get(tx, bucketNodes, who.URI(), &rec); err != nil || !found && !known {
			return err
		}
		if !found {
			rec = Holder{Identity: who.URI(), Expires: now.UTC()}
		}
		if rec.Revoked.IsZero() {
			rec.Revoked = now.UTC()
		}
		rec.Before = later(later(rec.Before, rec.Issued), now.UTC().Truncate(time.Second))
		rec.Void = later(rec.Void, now.UTC())
		// Whatever the clock did: all tokens that there are were made before.
		err := each(tx, bucketTokens, func(_ string, t trust.Token) {
			if t.Cluster == who.Cluster.String() {
				rec.Void = later(rec.Void, t.Created)
			}
		})
		if err != nil {
			return err
		}
		return put(tx, bucketNodes, rec.Identity, rec)
	})
	return rec, found, wrap(err)
}

// HolderBySerial finds whose newest certificate has the serial number.
func (s *Store) HolderBySerial(serial string) (rec Holder, found bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		return each(tx, bucketNodes, func(_ string, n Holder) {
			if n.Serial == serial {
				rec, found = n, true
			}
		})
	})
	return rec, found, wrap(err)
}

// Holder gives the record of a name; one without an identity if there is none.
func (s *Store) Holder(identity string) (rec Holder, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		_, err := get(tx, bucketNodes, identity, &rec)
		return err
	})
	return rec, wrap(err)
}
