// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto"
	"crypto/x509"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// Credentials says whose certificates count, and issues them.
type Credentials struct {
	Options
	ca       *trust.Authority
	roots    *x509.CertPool
	revoked  serials
	holders  holders
	renewals renewals
}

// Options are what credentials need.
type Options struct {
	Store       *state.Store
	TrustDomain string               // of a CA that is made now
	Now         func() time.Time     // the clock of certificates
	Life        func() time.Duration // of an agent's or a node's certificate
}

// New takes over the CA and the revocations of the state.
func New(o Options) (*Credentials, error) {
	ca, err := o.Store.Authority(o.TrustDomain, o.Now())
	if err != nil {
		return nil, err
	}
	c := &Credentials{Options: o, ca: ca, roots: ca.Roots()}
	certs, err := o.Store.Certificates()
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if !cert.Revoked.IsZero() {
			c.revoked.add(cert.Serial)
		}
	}
	holders, err := o.Store.Holders()
	if err != nil {
		return nil, err
	}
	removed, err := o.Store.RemovedClusters()
	if err != nil {
		return nil, err
	}
	for _, r := range removed {
		c.holders.remove(r)
	}
	for _, n := range holders {
		c.holders.put(n)
	}
	return c, nil
}

// CA is the hub's authority.
func (c *Credentials) CA() *trust.Authority { return c.ca }

// Roots holds the CA's certificate.
func (c *Credentials) Roots() *x509.CertPool { return c.roots }

// Verify says whose certificate it is, if it counts now; grace is for one that has run out.
func (c *Credentials) Verify(chain []*x509.Certificate, grace time.Duration) (id.Identity, error) {
	who, err := trust.Check{
		Roots: c.roots, TrustDomain: c.ca.TrustDomain(), Now: c.Now(), Grace: grace, Revoked: c.revoked.has,
	}.Verify(chain)
	if err != nil {
		return who, err
	}
	if f := c.holders.refusal(who, IssuedAt(chain[0])); f != nil {
		return id.Identity{}, f
	}
	return who, nil
}

// Authentic says whose certificate it is, if our CA has issued it and whatever became of it
// since. What any other certificate says is nobody's word.
func (c *Credentials) Authentic(chain []*x509.Certificate) (id.Identity, bool) {
	if len(chain) == 0 {
		return id.Identity{}, false
	}
	who, err := trust.Check{Roots: c.roots, TrustDomain: c.ca.TrustDomain(), Now: chain[0].NotAfter}.Verify(chain)
	return who, err == nil
}

// Refusal says why a certificate of an agent or a node that was issued at that time counts no
// more; nil if it does. Who has verified one asks again once it is known to a revocation.
func (c *Credentials) Refusal(who id.Identity, issued time.Time) *fault.Fault {
	return c.holders.refusal(who, issued)
}

// Revoked says whether a serial number was revoked.
func (c *Credentials) Revoked(serial string) bool { return c.revoked.has(serial) }

// RevokedHolders lists the agents and nodes of which certificates count no more, in no order.
func (c *Credentials) RevokedHolders() []state.Holder { return c.holders.all() }

// Enrol consumes one use of a token and issues a certificate of the role, both or neither.
func (c *Credentials) Enrol(role id.Role, use state.Use,
	key crypto.PublicKey) (cluster id.Cluster, name string, leaf *x509.Certificate, err error) {
	var rec state.Holder
	use.TrustDomain = c.ca.TrustDomain()
	use.Again = c.mayRenew
	use.Issue = func(identity string) (_ state.Holder, err error) {
		who, err := id.ParseURI(identity)
		if err != nil {
			return state.Holder{}, err
		}
		if leaf, err = c.issue(who, key, c.Life()); err != nil {
			return state.Holder{}, err
		}
		rec = recordOf(who, leaf, use.KeyHash)
		return rec, nil
	}
	if cluster, name, err = c.Store.UseToken(use, c.Now()); err != nil {
		return cluster, name, nil, err
	}
	// An earlier holder of the name may not renew any more.
	return cluster, name, leaf, c.holders.reload(c.Store, rec.Identity)
}

// mayRenew is nil if an agent or a node may have another certificate now.
func (c *Credentials) mayRenew(identity string) error {
	return c.renewals.take(identity, time.Now(), c.Life())
}

func (c *Credentials) issue(who id.Identity, key crypto.PublicKey, life time.Duration,
	hosts ...string) (*x509.Certificate, error) {
	return c.ca.Issue(trust.Request{Identity: who, Key: key, Life: life, Hosts: hosts}, c.Now())
}

// Renew issues the next certificate to an agent or a node that has shown its last one, which
// was issued at that time.
func (c *Credentials) Renew(who id.Identity, shown time.Time, key crypto.PublicKey) (*x509.Certificate, error) {
	keyHash, err := trust.KeyHash(key)
	if err != nil {
		return nil, err
	}
	if err := c.mayRenew(who.URI()); err != nil {
		return nil, err
	}
	leaf, err := c.issue(who, key, c.Life())
	if err != nil {
		return nil, err
	}
	return leaf, c.Store.RenewHolder(recordOf(who, leaf, keyHash), shown)
}

// Issue issues a certificate to a client or an operator.
func (c *Credentials) Issue(who id.Identity, key crypto.PublicKey,
	life time.Duration, hosts ...string) (state.Certificate, *x509.Certificate, error) {
	leaf, err := c.issue(who, key, life, hosts...)
	if err != nil {
		return state.Certificate{}, nil, err
	}
	rec := state.Certificate{Serial: trust.Serial(leaf), Identity: who.URI(), Issued: c.Now().UTC(),
		Expires: leaf.NotAfter.UTC()}
	return rec, leaf, c.Store.PutCertificate(rec, c.Now())
}

// RevokeHolder revokes all certificates of an agent or a node. known says whether there is a
// record of it; unknown makes one if there is not.
func (c *Credentials) RevokeHolder(who id.Identity, unknown bool) (rec state.Holder, known bool, err error) {
	if rec, known, err = c.Store.RevokeHolder(who, unknown, c.Now()); err != nil || !known && !unknown {
		return rec, known, err
	}
	return rec, known, c.holders.reload(c.Store, rec.Identity)
}

// Revoke revokes the certificate of a client or an operator with the serial number, or all of
// them if that is empty.
func (c *Credentials) Revoke(who id.Identity, serial string) ([]state.Certificate, error) {
	certs, err := c.Store.Revoke(who.URI(), serial, c.Now())
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		c.revoked.add(cert.Serial)
	}
	return certs, nil
}

// RemoveCluster removes a cluster from the state: from then on no certificate of it counts.
func (c *Credentials) RemoveCluster(name id.Cluster) (state.Removal, error) {
	gone, err := c.Store.RemoveCluster(name, c.Now())
	if err == nil {
		c.holders.remove(gone.Removed)
	}
	return gone, err
}

func recordOf(who id.Identity, leaf *x509.Certificate, keyHash string) state.Holder {
	return state.Holder{
		Identity: who.URI(), KeyHash: keyHash, Serial: trust.Serial(leaf),
		Issued: IssuedAt(leaf).UTC(), Expires: leaf.NotAfter.UTC(),
	}
}

// serials is the set of revoked serial numbers.
type serials struct {
	mu  sync.RWMutex
	set map[string]struct{}
}

func (r *serials) has(serial string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.set[serial]
	return ok
}

func (r *serials) add(serial string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil {
		r.set = map[string]struct{}{}
	}
	r.set[serial] = struct{}{}
}
