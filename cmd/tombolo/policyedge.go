// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// tenantsFlag names the tenants of an edge; without it the table is nil.
type tenantsFlag struct{ paths []string }

func (f *tenantsFlag) register(cmd *cobra.Command, use string) {
	cmd.Flags().StringSliceVar(&f.paths, "tenants", nil, use)
}

func (f *tenantsFlag) read() (*tenant.Table, error) {
	if len(f.paths) == 0 {
		return nil, nil
	}
	table := tenant.NewTable()
	files := tenantfile.New(tenantfile.Options{
		Paths: func() []string { return f.paths }, Table: table, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Reloaded: func(error) {},
	})
	return table, files.Load()
}

// protectedIn reports which clusters are protected by their tenant.
func protectedIn(table *tenant.Table) func(string) bool {
	return func(cluster string) bool {
		if table == nil {
			return false
		}
		t := table.Get(cluster)
		return t != nil && t.Protected
	}
}

// tenantNames lists the tenants, nil without a table.
func tenantNames(table *tenant.Table) (out []string) {
	if table == nil {
		return nil
	}
	for _, t := range table.All() {
		out = append(out, t.Name)
	}
	return out
}

// edgeExplanation is what an edge would decide about a connection.
type edgeExplanation struct{ admin.EdgeExplanation }

// askEdge asks the edge that runs here.
func (e explainFlags) askEdge(cmd *cobra.Command, socket string, w policy.EdgeWay) (out edgeExplanation, err error) {
	query := url.Values{"cluster": {w.Cluster}, "flow": {w.Flow}, "from": {e.from}}
	if w.Name != "" {
		query.Set("name", w.Name)
	}
	if w.Port != 0 {
		query.Set("port", fmt.Sprint(w.Port))
	}
	at := edgeSocketFlag{edge.AdminSocket(edge.DefaultRunDir)}
	if cmd.Flags().Changed("admin-socket") {
		at.path = socket
	}
	return out, at.ask(cmd, "/v1/explain?"+query.Encode(), &out.EdgeExplanation)
}

// explainEdge decides by files, or asks the edge that runs here.
func (e explainFlags) explainEdge(cmd *cobra.Command, socket, arg string) (edgeExplanation, error) {
	out := edgeExplanation{admin.EdgeExplanation{Meta: hub.Meta("EdgeExplanation")}}
	w, source, err := e.way(cmd, arg)
	if err != nil {
		return out, err
	}
	if len(e.paths) == 0 {
		return e.askEdge(cmd, socket, w)
	}
	table, err := e.tenants.read()
	if err != nil {
		return out, err
	}
	s, err := readPolicies(e.paths)
	if err != nil {
		return out, err
	}
	policies, err := s.good()
	if err != nil {
		return out, err
	}
	rules, protected := policy.NewEdgeRules(policies...), protectedIn(table)(w.Cluster)
	v := rules.Decide(w, source, protected)
	out.Cluster, out.Flow, out.Name, out.Port, out.Source = w.Cluster, w.Flow, w.Name, w.Port, source.Unmap().String()
	out.Why, out.Rule, out.Group = v.Why(), v.Rule, v.Group
	out.Verdict, out.Default = verdictOf(v.Allow), verdictOf(true)
	if v.Rule != "" {
		out.At = line(s.placeOf(v.Rule, w, source))
	}
	if guard := rules.Guard(w.Cluster, w.Flow); guard != "" {
		out.Default, out.Protected = verdictOf(false), fmt.Sprintf("rule %q (%s)", guard, line(s.placeOf(guard, w, source)))
	} else if protected {
		out.Default, out.Protected = verdictOf(false), "the tenant: protected: true"
	}
	out.Notes = e.notes(rules, table, w)
	return out, nil
}

// way reads CLUSTER/FLOW and the flags that go with it.
func (e explainFlags) way(cmd *cobra.Command, arg string) (w policy.EdgeWay, source netip.Addr, err error) {
	cluster, flow, _ := strings.Cut(arg, "/")
	if _, err := id.ParseCluster(cluster); err != nil {
		return w, source, err
	}
	w = policy.EdgeWay{Cluster: cluster, Flow: flow, Port: e.port}
	for _, flag := range []string{"as", "uid", "egress"} {
		if cmd.Flags().Changed(flag) {
			return w, source, usage("--"+flag+" has no meaning at an edge", "an edge knows a source: --from IP")
		}
	}
	switch known := policy.EdgeFlows(); {
	case flow == policy.FlowDial || flow == policy.FlowRoute:
		return w, source, usage("a dial has a destination", "tombolo policy explain "+cluster+" HOST:PORT")
	case !slices.Contains(known, flow):
		meant := conf.Meant(flow, known...)
		return w, source, usage(fmt.Sprintf("%q is none of %s%s", flow, strings.Join(known, ", "), meant),
			"tombolo policy explain "+cluster+"/api --from IP --policy PATHS")
	case e.from == "":
		return w, source, usage("--from is missing", "say where the connection would come from: --from IP")
	case len(e.paths) == 0 && len(e.tenants.paths) > 0:
		return w, source, usage("--tenants needs --policy", "without both, the edge that runs here is asked")
	}
	if source, err = netip.ParseAddr(e.from); err != nil || source.Zone() != "" {
		return w, source, usage(fmt.Sprintf("%q is no IP address", e.from), "write one address: --from 203.0.113.9")
	}
	if e.name != "" {
		if w.Name, err = hostname.Parse(e.name); err != nil {
			return w, source, usage(fmt.Sprintf("--name: %v", err), "write the server name that the client asks for")
		}
	}
	return w, source, nil
}

// notes say what could make the edge decide otherwise.
func (e explainFlags) notes(rules *policy.EdgeRules, table *tenant.Table, w policy.EdgeWay) (out []string) {
	named, ported := false, false
	for _, other := range rules.Ways(w.Cluster, w.Flow) {
		named, ported = named || other.Name != "", ported || other.Port != 0
	}
	if named && w.Name == "" {
		out = append(out, "rules tell server names apart: without --name the verdict is that of a name which none names")
	}
	if ported && w.Port == 0 {
		out = append(out, "rules tell ports of the edge apart: without --port the verdict is that of a port which none names")
	}
	if table == nil {
		return append(out, "tenants were not read: one with 'protected: true' is closed by default; name them with --tenants")
	}
	t := table.Get(w.Cluster)
	switch {
	case t == nil:
		return append(out, "no tenant is called "+w.Cluster+": the edge refuses every connection to it")
	case !slices.ContainsFunc(t.Ways, func(x tenant.Way) bool { return x.Flow == w.Flow }):
		out = append(out, "the tenant has no way with the flow "+w.Flow)
	case w.Name != "":
		r, ok := table.ByName(w.Name, nil)
		if !ok {
			out = append(out, "no tenant has the name "+w.Name)
		} else if r.Tenant != t || r.Way.Flow != w.Flow {
			out = append(out, fmt.Sprintf("the name %s leads to %s/%s", w.Name, r.Tenant.Name, r.Way.Flow))
		}
	}
	return out
}

// placeOf is where a rule is. If files have a rule of that name each, it is the one that decides so alone.
func (s policySet) placeOf(name string, w policy.EdgeWay, source netip.Addr) (found conf.Problem) {
	for i, p := range s.policies {
		for j, r := range p.Rules() {
			if r.Name != name {
				continue
			}
			at := placer(s.files[i])(fmt.Sprintf("rules[%d]", j), "")
			if policy.NewEdgeRules(p).Decide(w, source, false).Rule == name {
				return at
			}
			if found.File == "" {
				found = at
			}
		}
	}
	return found
}

func line(p conf.Problem) string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

func verdictOf(allow bool) string {
	if allow {
		return admin.VerdictAllowed
	}
	return admin.VerdictDenied
}

func (e edgeExplanation) text(w io.Writer) error {
	way := policy.EdgeWay{Cluster: e.Cluster, Flow: e.Flow, Name: e.Name, Port: e.Port}
	fmt.Fprintf(w, "%s from %s: %s\n\n", way, e.Source, e.Verdict)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "why:\t%s\n", e.Why)
	switch {
	case e.At != "":
		fmt.Fprintf(tw, "rule:\t%s (%s)\n", e.Rule, e.At)
	case e.Rule != "":
		fmt.Fprintf(tw, "rule:\t%s\n", e.Rule)
	}
	if e.Group != "" {
		fmt.Fprintf(tw, "group:\t%s\n", e.Group)
	}
	if e.Protected == "" {
		fmt.Fprintf(tw, "default:\t%s: no rule names both the cluster and this flow\n", e.Default)
	} else {
		fmt.Fprintf(tw, "default:\t%s: protected by %s\n", e.Default, e.Protected)
	}
	if e.Version != "" {
		fmt.Fprintf(tw, "policy:\tversion %s of the edge that runs here\n", e.Version)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(tw, "note:\t%s\n", n)
	}
	return tw.Flush()
}
