// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto"
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/hub/state"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/internal/trust"
)

// nodeNames knows until when the certificates of a node were issued that count no more.
type nodeNames struct {
	mu     sync.RWMutex
	before map[string]state.Node // by identity, those with something to refuse
}

func (n *nodeNames) know(rec state.Node) {
	if rec.Before.IsZero() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.before == nil {
		n.before = map[string]state.Node{}
	}
	n.before[rec.Identity] = rec
}

func (n *nodeNames) refuse(who id.Identity, leaf *x509.Certificate) bool {
	return n.refusesIssued(who.URI(), issuedAt(leaf))
}

func (n *nodeNames) refusesIssued(identity string, at time.Time) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	rec, ok := n.before[identity]
	return ok && rec.Refuses(at)
}

// issuedAt is when a certificate of ours was issued, in whole seconds: its begin is
// set back (trust.Authority).
func issuedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(limit.ClockTolerance) }

// enrolNode consumes one use of a token and issues a node's certificate, both or neither.
func (h *Hub) enrolNode(r *http.Request, q admin.JoinRequest, use state.Use, key crypto.PublicKey) (admin.JoinAnswer, error) {
	if q.Role != string(id.RoleNode) {
		return admin.JoinAnswer{}, fault.Newf(fault.CodeRequest, "nobody joins as %q", clip(q.Role, 32)).Whyf("agents, without a role, and nodes do")
	}
	if q.Node != "" {
		name, err := id.ParseNode(q.Node)
		if err != nil {
			return admin.JoinAnswer{}, fault.New(fault.CodeRequest, "the node's name is not usable").Because(err)
		}
		use.Name = name
	}
	var leaf *x509.Certificate
	use.Node, use.TrustDomain = true, h.ca.TrustDomain()
	var rec state.Node
	use.Issue = func(identity string) (_ state.Node, err error) {
		who, err := id.ParseURI(identity)
		if err != nil {
			return state.Node{}, err
		}
		if leaf, err = h.issueNode(who, key); err != nil {
			return state.Node{}, err
		}
		rec = recordOf(who, leaf, use.KeyHash)
		return rec, nil
	}
	cluster, name, err := h.state.UseToken(use, h.now())
	if err != nil {
		h.log.Warn("join refused", tell.AttrPeer, r.RemoteAddr, tell.AttrCode, fault.From(err).Code, tell.AttrReason, err)
		return admin.JoinAnswer{}, err
	}
	h.clusters.add(cluster)
	if err := h.knowNode(rec.Identity); err != nil {
		return admin.JoinAnswer{}, err
	}
	h.log.Info("node joined", tell.AttrCluster, cluster, tell.AttrNode, name, tell.AttrPeer, r.RemoteAddr)
	return h.joined(cluster, name, leaf), nil
}

// knowNode takes over what the state knows of a name that was taken anew: an earlier
// holder may not renew any more.
func (h *Hub) knowNode(identity string) error {
	rec, err := h.state.Node(identity)
	if err == nil {
		h.names.know(rec)
	}
	return err
}

func (h *Hub) issueNode(who id.Identity, key crypto.PublicKey) (*x509.Certificate, error) {
	return h.ca.Issue(trust.Request{Identity: who, Key: key, Life: h.settings.Load().agentLife}, h.now())
}

func recordOf(who id.Identity, leaf *x509.Certificate, keyHash string) state.Node {
	return state.Node{
		Identity: who.URI(), KeyHash: keyHash, Serial: trust.Serial(leaf),
		Issued: issuedAt(leaf).UTC(), Expires: leaf.NotAfter.UTC(),
	}
}

// renewNode issues the next certificate to a node that has shown its last one.
func (h *Hub) renewNode(who id.Identity, shown time.Time, key crypto.PublicKey) (admin.JoinAnswer, error) {
	keyHash, err := trust.KeyHash(key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	leaf, err := h.issueNode(who, key)
	if err != nil {
		return admin.JoinAnswer{}, err
	}
	if err := h.state.RenewNode(recordOf(who, leaf, keyHash), shown); err != nil {
		return admin.JoinAnswer{}, err
	}
	h.clusters.add(who.Cluster)
	h.log.Info("node renewed its certificate", tell.AttrCluster, who.Cluster, tell.AttrNode, who.Name)
	return h.joined(who.Cluster, who.Name, leaf), nil
}

func nodeInfo(n state.Node) admin.CertificateInfo {
	return admin.CertificateInfo{Serial: n.Serial, Identity: n.Identity, Issued: n.Issued, Expires: n.Expires, Revoked: n.Revoked}
}

// revokeNode puts a revocation into force: no certificate of the node counts any
// more, and its connections to the relay end.
func (h *Hub) revokeNode(rec state.Node) admin.CertificateInfo {
	h.names.know(rec)
	n := h.endRelayed(rec.Identity)
	h.log.Info("certificate revoked", "identity", rec.Identity, "serial", rec.Serial, "connections", n)
	return nodeInfo(rec)
}
