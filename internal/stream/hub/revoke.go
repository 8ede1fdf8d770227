// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// apiRevoke revokes an agent or a node with all of its certificates, or certificates of
// a client or an operator. What they have open ends.
func (ap *api) apiRevoke(r *http.Request) (any, error) {
	var q admin.RevocationRequest
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	who, serial, err := ap.whomToRevoke(q)
	if err != nil {
		return nil, err
	}
	var out admin.Revocation
	if who.Role == id.RoleAgent || who.Role == id.RoleNode {
		out, err = ap.revokeHolder(r, who, q.Unknown)
	} else {
		out, err = ap.revokeCertificates(r, who, serial)
	}
	if err != nil {
		return nil, err
	}
	out.Meta, out.Identity = meta("Revocation"), who.URI()
	ap.log.Info("revoked", "identity", out.Identity, "serials", out.Serials, "connections", out.Connections)
	ap.record.Change(ap.operator(r, who.Cluster), audit.KindRevocation, out.Identity,
		fmt.Sprintf("%s was revoked; connections that ended: %d", who, out.Connections))
	return out, nil
}

// whomToRevoke finds whose name or serial number it is. serial is empty for a name.
func (ap *api) whomToRevoke(q admin.RevocationRequest) (who id.Identity, serial string, err error) {
	role := id.Role(q.Role)
	known := []id.Role{id.RoleAgent, id.RoleNode, id.RoleClient, id.RoleRoute, id.RoleOperator, id.RoleEdge,
		id.RoleEndpoint}
	if !slices.Contains(known, role) {
		return who, "", fault.Newf(fault.CodeRequest, "the role %q cannot be revoked", clip(q.Role, 32)).
			Whyf("agent, node, client, route, operator, edge and endpoint can")
	}
	if q.Serial == "" {
		who = id.Identity{TrustDomain: ap.credentials.CA().TrustDomain(), Role: role, Name: q.Name}
		if role.InCluster() {
			if who.Cluster, err = parseCluster(q.Cluster); err != nil {
				return who, "", err
			}
		}
		if _, err := id.ParseURI(who.URI()); err != nil {
			return who, "", fault.Newf(fault.CodeRequest, "the name of the %s is not usable", role).Because(err)
		}
		return who, "", nil
	}
	identity, err := ap.identityOf(q.Serial)
	if err != nil {
		return who, "", err
	}
	if who, err = id.ParseURI(identity); err != nil {
		return who, "", err
	}
	if who.Role != role {
		return who, "", fault.Newf(fault.CodeNotFound, "%s is not the serial number of a %s", clip(q.Serial, 64), role).
			Whyf("it is that of %s", who).Hint("tombolo revoke %s %s", who.Role, clip(q.Serial, 64))
	}
	return who, q.Serial, nil
}

func (ap *api) identityOf(serial string) (string, error) {
	holder, found, err := ap.state.HolderBySerial(serial)
	if found || err != nil {
		return holder.Identity, err
	}
	certs, err := ap.state.Certificates()
	for _, c := range certs {
		if c.Serial == serial {
			return c.Identity, nil
		}
	}
	if err == nil {
		err = fault.Newf(fault.CodeNotFound, "there is no certificate %q", clip(serial, 64)).
			Hint("'tombolo certificate list' shows them; of an agent or a node the newest, so name it by CLUSTER/NAME")
	}
	return "", err
}

// revokeHolder puts the revocation of an agent or a node into force: none of its
// certificates counts any more, and its sessions or its place in the relay end.
func (ap *api) revokeHolder(r *http.Request, who id.Identity, unknown bool) (out admin.Revocation, err error) {
	if !unknown {
		if unknown, err = ap.wasHere(who); err != nil {
			return out, err
		}
	}
	rec, known, err := ap.credentials.RevokeHolder(who, unknown)
	if err != nil {
		return out, err
	}
	if !known && !unknown {
		return out, fault.Newf(fault.CodeNotFound, "this hub knows no %s", who).
			Hint("'tombolo certificate list' shows who joined; --unknown revokes a name that was lost, as after a restore")
	}
	out.Revoked, out.Token = rec.Revoked, rec.Token
	if out.Warning, err = ap.stillOpen(rec.Token); err != nil {
		return out, err
	}
	if rec.Serial != "" {
		out.Serials = []string{rec.Serial}
	}
	if who.Role == id.RoleAgent {
		out.Connections = ap.agents.endAgent(r.Context(), who) + ap.clients.CloseAll(who.URI(), "")
	} else {
		out.Connections = ap.relays.endRelayed(who)
	}
	return out, nil
}

// stillOpen warns of a token with which somebody can still join, if under another name.
func (ap *api) stillOpen(token string) (string, error) {
	tokens, err := ap.state.Tokens()
	for _, t := range tokens {
		if t.ID == token && ap.now().Before(t.Expires) && len(t.Claims) < t.Uses {
			return fmt.Sprintf("the token %s, by which it joined, has uses left, and gives other names: "+
				"tombolo token revoke %s", token, token), nil
		}
	}
	return "", err
}

// wasHere says whether an agent or a node was seen of which there may be no record: it
// joined before this hub kept any, or after the backup that was restored.
func (ap *api) wasHere(who id.Identity) (bool, error) {
	if who.Role == id.RoleNode {
		c, err := ap.clusters.get(who.Cluster)
		return err == nil && c.relay.Find([]byte(who.Name)) != nil, nil
	}
	if c, err := ap.clusters.get(who.Cluster); err == nil &&
		slices.ContainsFunc(c.agents(), func(a admin.AgentStatus) bool { return a.ID == who.Name }) {
		return true, nil
	}
	tokens, err := ap.state.Tokens()
	for _, t := range tokens {
		for _, c := range t.Claims {
			if !t.Nodes && t.Cluster == who.Cluster.String() && c.Agent == who.Name {
				return true, nil
			}
		}
	}
	return false, err
}

// revokeCertificates revokes the certificate with the serial number, or all of the
// client, operator or edge, and ends the connections that use them.
func (ap *api) revokeCertificates(r *http.Request, who id.Identity, serial string) (out admin.Revocation, err error) {
	certs, err := ap.credentials.Revoke(who, serial)
	if err != nil {
		return out, err
	}
	for _, c := range certs {
		// An operator who revokes itself gets an answer; its next request is refused.
		out.Connections += ap.clients.CloseAll(c.Serial, r.RemoteAddr)
		out.Serials = append(out.Serials, c.Serial)
		out.Revoked = c.Revoked
	}
	return out, nil
}

// revokedIdentities lists who is revoked, the newest first, of one cluster unless that is empty.
func (ap *api) revokedIdentities(certs []state.Certificate, cluster string) (out []admin.RevokedIdentity, more int) {
	add := func(identity, serial string, at time.Time) {
		who, err := id.ParseURI(identity)
		if err == nil && !at.IsZero() && (cluster == "" || who.Cluster.String() == cluster) {
			out = append(out, admin.RevokedIdentity{
				Role: string(who.Role), Cluster: who.Cluster.String(), Name: who.Name, Serial: serial, Revoked: at,
			})
		}
	}
	for _, rec := range ap.credentials.RevokedHolders() {
		add(rec.Identity, "", rec.Revoked)
	}
	for _, c := range certs {
		add(c.Identity, c.Serial, c.Revoked)
	}
	slices.SortFunc(out, func(a, b admin.RevokedIdentity) int { return b.Revoked.Compare(a.Revoked) })
	if more = len(out) - revokedListed; more > 0 {
		return out[:revokedListed], more
	}
	return out, 0
}
