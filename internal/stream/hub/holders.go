// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto"
	"crypto/x509"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// holders knows the names of agents and nodes of which certificates count no more, and
// the clusters of which none does.
type holders struct {
	mu      sync.RWMutex
	refuse  map[string]state.Holder // by identity
	removed map[string]state.Removed
}

// learn takes over what the state knows of a name. It reads that itself, so that of two
// changes the later one stands here, too.
func (n *holders) learn(s *state.Store, identity string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	rec, err := s.Holder(identity)
	if err == nil {
		n.put(rec)
	}
	return err
}

func (n *holders) set(rec state.Holder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(rec)
}

func (n *holders) put(rec state.Holder) {
	if rec.Before.IsZero() && rec.Revoked.IsZero() {
		return
	}
	if n.refuse == nil {
		n.refuse = map[string]state.Holder{}
	}
	n.refuse[rec.Identity] = rec
}

// remove takes over that a cluster was removed, with all of its names.
func (n *holders) remove(c state.Removed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.removed == nil {
		n.removed = map[string]state.Removed{}
	}
	n.removed[c.Name] = c
	maps.DeleteFunc(n.refuse, func(identity string, _ state.Holder) bool {
		who, err := id.ParseURI(identity)
		return err == nil && who.Cluster.String() == c.Name
	})
}

// refusal says why a certificate that was issued at that time counts no more; nil if it does.
func (n *holders) refusal(who id.Identity, issued time.Time) *fault.Fault {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if rec, ok := n.refuse[who.URI()]; ok && rec.Refuses(issued) {
		return state.RevokedHolder(who.URI())
	}
	if c, ok := n.removed[who.Cluster.String()]; ok && c.Refuses(issued) {
		return state.RemovedCluster(c.Name)
	}
	return nil
}

// all lists them in no particular order.
func (n *holders) all() []state.Holder {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Collect(maps.Values(n.refuse))
}

// issuedAt is when a certificate of ours was issued, in whole seconds: its begin is
// set back (trust.Authority).
func issuedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(limit.ClockTolerance) }

// enrolAs consumes one use of a token and issues a certificate of the role, both or neither.
func (h *Hub) enrolAs(role id.Role, use state.Use, key crypto.PublicKey, peer string) (admin.JoinAnswer, error) {
	var leaf *x509.Certificate
	var rec state.Holder
	use.TrustDomain = h.ca.TrustDomain()
	use.Again = h.mayRenew
	use.Issue = func(identity string) (_ state.Holder, err error) {
		who, err := id.ParseURI(identity)
		if err != nil {
			return state.Holder{}, err
		}
		if leaf, err = h.issueHolder(who, key); err != nil {
			return state.Holder{}, err
		}
		rec = recordOf(who, leaf, use.KeyHash)
		return rec, nil
	}
	cluster, name, err := h.state.UseToken(use, h.now())
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	h.clusters.add(cluster)
	// An earlier holder of the name may not renew any more.
	if err := h.holders.learn(h.state, rec.Identity); err != nil {
		return admin.JoinAnswer{}, err
	}
	h.log.Info(string(role)+" joined", telemetry.AttrCluster, cluster, attrOf(role), name, telemetry.AttrPeer, peer)
	return h.joined(cluster, name, leaf), nil
}

// mayRenew is nil if an agent or a node may have another certificate now.
func (h *Hub) mayRenew(identity string) error {
	return h.renewals.take(identity, time.Now(), h.settings.Load().agentLife)
}

// nodeUse adds to a use of a token what a node asks for.
func nodeUse(q admin.JoinRequest, use *state.Use) (err error) {
	if q.Role != string(id.RoleNode) {
		return fault.Newf(fault.CodeRequest, "nobody joins as %q", clip(q.Role, 32)).Whyf("agents, without a role, and nodes do")
	}
	use.Node = true
	if q.Node != "" {
		if use.Name, err = id.ParseNode(q.Node); err != nil {
			return fault.New(fault.CodeRequest, "the node's name is not usable").Because(err)
		}
	}
	return nil
}

// attrOf is the name of a log attribute for who has the role.
func attrOf(role id.Role) string {
	if role == id.RoleNode {
		return telemetry.AttrNode
	}
	return telemetry.AttrAgent
}

func (h *Hub) issueHolder(who id.Identity, key crypto.PublicKey) (*x509.Certificate, error) {
	return h.ca.Issue(trust.Request{Identity: who, Key: key, Life: h.settings.Load().agentLife}, h.now())
}

func recordOf(who id.Identity, leaf *x509.Certificate, keyHash string) state.Holder {
	return state.Holder{
		Identity: who.URI(), KeyHash: keyHash, Serial: trust.Serial(leaf),
		Issued: issuedAt(leaf).UTC(), Expires: leaf.NotAfter.UTC(),
	}
}

// renewHolder issues the next certificate to an agent or node that has shown its last one.
func (h *Hub) renewHolder(who id.Identity, shown time.Time, key crypto.PublicKey) (admin.JoinAnswer, error) {
	keyHash, err := trust.KeyHash(key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	if err := h.mayRenew(who.URI()); err != nil {
		return admin.JoinAnswer{}, err
	}
	leaf, err := h.issueHolder(who, key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	if err := h.state.RenewHolder(recordOf(who, leaf, keyHash), shown); err != nil {
		return admin.JoinAnswer{}, err
	}
	h.clusters.add(who.Cluster)
	h.log.Info(string(who.Role)+" renewed its certificate", telemetry.AttrCluster, who.Cluster, attrOf(who.Role), who.Name)
	return h.joined(who.Cluster, who.Name, leaf), nil
}

func holderInfo(n state.Holder) admin.CertificateInfo {
	return admin.CertificateInfo{Serial: n.Serial, Identity: n.Identity, Issued: n.Issued, Expires: n.Expires, Revoked: n.Revoked, Token: n.Token}
}
