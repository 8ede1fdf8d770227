// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func (ap *api) apiIssue(r *http.Request) (any, error) {
	var q admin.CertificateRequest
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	who := id.Identity{TrustDomain: ap.credentials.CA().TrustDomain(), Role: id.Role(q.Role), Name: q.Name}
	switch who.Role {
	case id.RoleClient, id.RoleRoute, id.RoleVPNServer, id.RoleVPNClient:
		cluster, err := parseCluster(q.Cluster)
		if err != nil {
			return nil, err
		}
		if _, err := ap.clusters.get(cluster); err != nil {
			return nil, err
		}
		who.Cluster = cluster
	case id.RoleOperator, id.RoleEdge, id.RoleEndpoint:
	default:
		return nil, fault.Newf(fault.CodeRequest, "no certificate is issued for the role %q", clip(q.Role, 32)).
			Whyf("client, route, vpn-server, vpn-client, operator, edge and endpoint are possible")
	}
	hosts, err := certifiable(who.Role, q.Hosts)
	if err != nil {
		return nil, err
	}
	if _, err := id.ParseURI(who.URI()); err != nil {
		return nil, fault.New(fault.CodeRequest, "the name is not usable").Because(err)
	}
	key, err := trust.ParseCSR([]byte(q.CSR))
	if err != nil {
		return nil, err
	}
	rec, leaf, err := ap.credentials.Issue(who, key, ap.settings.Load().clientLife, hosts...)
	if err != nil {
		return nil, err
	}
	ap.log.Info("certificate issued", "identity", rec.Identity, "serial", rec.Serial, "expires", rec.Expires)
	return admin.Certificate{
		Meta: meta("Certificate"), Serial: rec.Serial, Identity: rec.Identity, Expires: rec.Expires,
		Certificate: string(trust.EncodeCertificate(leaf.Raw)), CA: string(ap.credentials.CA().CertificatePEM()),
		Advertise: ap.advertise,
	}, nil
}

// certifiable are the names and addresses for a certificate of a party that is dialled.
func certifiable(role id.Role, hosts []string) ([]string, error) {
	if len(hosts) > 0 && role != id.RoleVPNServer {
		return nil, fault.Newf(fault.CodeRequest, "a certificate for the role %s has no hosts", role).
			Whyf("only a vpn-server is dialled")
	}
	if len(hosts) > certifiedHosts {
		return nil, fault.Newf(fault.CodeRequest, "%d hosts are too many", len(hosts)).Whyf("at most %d", certifiedHosts)
	}
	for _, h := range hosts {
		if t, err := policy.ParseTarget(net.JoinHostPort(h, "443")); err != nil || t.Name != "" && t.Name != h {
			return nil, fault.Newf(fault.CodeRequest, "%q is no name or address of a host", clip(h, 64))
		}
	}
	return hosts, nil
}
