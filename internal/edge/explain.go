// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// explain says what this edge decides about a source: cluster, flow and from, and maybe name and port.
func (e *Edge) explain(asked url.Values) (out admin.EdgeExplanation, err error) {
	q := policy.Request{Cluster: asked.Get("cluster"), Flow: asked.Get("flow")}
	t := e.tenants.Get(q.Cluster)
	switch {
	case t == nil:
		return out, NoTenant(q.Cluster)
	case !slices.Contains(policy.EdgeFlows(), q.Flow):
		return out, fault.Newf(fault.CodeRequest, "%q is no flow of an edge", q.Flow).
			Hint("write one of %s", strings.Join(policy.EdgeFlows(), ", "))
	}
	if q.Source, err = netip.ParseAddr(asked.Get("from")); err != nil || q.Source.Zone() != "" {
		return out, fault.New(fault.CodeRequest, "the source cannot be read").Hint("write an IP address")
	}
	if name := asked.Get("name"); name != "" {
		if q.Name, err = hostname.Parse(name); err != nil {
			return out, fault.New(fault.CodeRequest, "the server name cannot be read").Because(err)
		}
	}
	if port := asked.Get("port"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return out, fault.New(fault.CodeRequest, "the port cannot be read").Hint("write a number")
		}
		q.Port = uint16(n)
	}
	q.Protected = t.Protected
	r := e.judge(q)
	out = admin.EdgeExplanation{
		Meta:    admin.Meta{APIVersion: v1alpha1.Version, Kind: "EdgeExplanation"},
		Cluster: q.Cluster, Flow: q.Flow, Name: q.Name, Port: q.Port, Source: q.Source.Unmap().String(),
		Verdict: admin.VerdictDenied, Why: r.Why(), Rule: r.Rule, Group: r.Group, Default: admin.VerdictDenied,
	}
	if r.Judged {
		out.Version = r.Version.String()
	}
	if r.Allow {
		out.Verdict = admin.VerdictAllowed
	}
	switch {
	case e.table.Protects(q.Cluster, q.Flow):
		out.Protected = "rules of the policy"
	case q.Protected:
		out.Protected = "the tenant"
	default:
		out.Default = admin.VerdictAllowed
	}
	if !slices.ContainsFunc(t.Ways, func(w tenant.Way) bool { return w.Flow == q.Flow }) {
		out.Notes = append(out.Notes, "the tenant has no way with the flow "+q.Flow)
	}
	return out, nil
}
