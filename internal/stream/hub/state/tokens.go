// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// PutToken stores a new token and registers its cluster, both or neither.
// Tokens that have been dead for tokenKept are forgotten on the way, and names that
// have been for nodeKept.
func (s *Store) PutToken(t trust.Token, now time.Time) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		err := drop(tx, bucketTokens, func(t trust.Token) bool { return now.Sub(t.Expires) > tokenKept })
		if err != nil {
			return err
		}
		if err := forgetHolders(tx, now); err != nil {
			return err
		}
		if err := addCluster(tx, t.Cluster, now); err != nil {
			return err
		}
		return put(tx, bucketTokens, t.ID, t)
	}))
}

// Use is the wish of an agent or a node to join.
type Use struct {
	TokenID, Secret string
	Cluster         string // the one that the agent was told; empty: any
	KeyHash         string // trust.KeyHash of the agent's key

	Node        bool    // a node wants to join
	Name        id.Node // that it asks for; may be zero
	TrustDomain string
	Issue       func(identity string) (Holder, error) // makes the certificate
	// Again judges a use that repeats an earlier one of the same key; nil lets all be.
	Again func(identity string) error
}

// UseToken checks and consumes one use of a token in one transaction.
func (s *Store) UseToken(u Use, now time.Time) (cluster id.Cluster, name string, err error) {
	fresh, err := trust.NewAgentName()
	if err != nil {
		return cluster, name, err
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		var t trust.Token
		found, err := get(tx, bucketTokens, u.TokenID, &t)
		if err != nil {
			return err
		}
		if !found {
			return trust.UnknownToken()
		}
		if _, _, err := t.Use(u.Secret, u.KeyHash, "", now); err != nil { // first: without the secret, nothing is revealed
			return err
		}
		asked, err := t.NameFor(u.Node, u.Name, fresh)
		if err != nil {
			return err
		}
		after, as, err := t.Use(u.Secret, u.KeyHash, asked, now)
		if err != nil {
			return err
		}
		if u.Cluster != "" && u.Cluster != t.Cluster {
			return fault.New(fault.CodeJoinLine, "the join line names another cluster than its token").
				Hint("copy the line again as 'tombolo token create' printed it; the token has not been used")
		}
		if cluster, err = id.ParseCluster(t.Cluster); err != nil {
			return err
		}
		if name, err = nameOf(u.Node, as); err != nil {
			return err
		}
		who := id.Identity{TrustDomain: u.TrustDomain, Role: id.RoleAgent, Cluster: cluster, Name: name}
		if u.Node {
			who.Role = id.RoleNode
		}
		if err := joinName(tx, who.URI(), t, u, now); err != nil {
			return err
		}
		return put(tx, bucketTokens, u.TokenID, after)
	})
	return cluster, name, wrap(err)
}

// nameOf checks the name in a claim, which the state may have damaged.
func nameOf(node bool, s string) (string, error) {
	var err error
	if node {
		_, err = id.ParseNode(s)
	} else {
		_, err = id.ParseAgent(s)
	}
	return s, err
}

// Tokens lists the tokens, newest first.
func (s *Store) Tokens() ([]trust.Token, error) {
	out, err := list[trust.Token](s, bucketTokens)
	slices.SortFunc(out, func(a, b trust.Token) int { return b.Created.Compare(a.Created) })
	return out, err
}

// DeleteToken forgets a token, so that it can no longer be used.
func (s *Store) DeleteToken(tokenID string) error {
	return wrap(s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketTokens))
		if b.Get([]byte(tokenID)) == nil {
			return fault.Newf(fault.CodeNotFound, "there is no token %q", tokenID).Hint("tombolo token list")
		}
		return b.Delete([]byte(tokenID))
	}))
}
