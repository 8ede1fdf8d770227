// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

func newEdgeCoverageCommand() *cobra.Command {
	var out outputFlag
	var socket edgeSocketFlag
	var tenants, policies []string
	var strict bool
	cmd := &cobra.Command{
		Use:   "coverage [CLUSTER]",
		Short: "List every way into the clusters of an edge, and the rules that guard it",
		Long: `List every way by which the clusters of the edge that runs here can be reached, and what
guards it:

  rules      rules of the policy name the cluster and the flow: what none allows is denied
  tenant     no rule does, and the tenant is protected: everything is denied
  open       nothing, and no rule names the cluster in any flow
  unguarded  nothing, although rules name the cluster in other flows: an alarm

With --tenants, and --policies if there are any, files are asked instead of a running
edge. With --strict the exit code is 4 if a way is unguarded.`,
		Example: `  tombolo edge coverage
  tombolo edge coverage c1 -o json
  tombolo edge coverage --tenants tenants/ --policies policies/`,
		Args: atMostOne("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster := strings.Join(args, "")
			var c admin.EdgeCoverage
			var err error
			switch {
			case len(tenants) > 0:
				c, err = coverageOfFiles(tenants, policies, cluster)
			case len(policies) > 0:
				return usage("--policies stands without --tenants", "name the files of the tenants, too")
			default:
				err = socket.ask(cmd, "/v1/coverage?cluster="+url.QueryEscape(cluster), &c)
			}
			if err != nil {
				return err
			}
			if err := out.print(cmd.OutOrStdout(), c, func(w io.Writer) error { return printCoverage(w, c) }); err != nil {
				return err
			}
			if n := c.Guards[admin.GuardUnguarded]; strict && n > 0 {
				return fault.Newf(fault.CodePolicyDenied, "%s past the rules of clusters", plural(n, "way")).
					Hint("write a rule for the cluster and flow of each, or set protected in its tenant")
			}
			return nil
		},
	}
	socket.register(cmd)
	fl := cmd.Flags()
	fl.StringSliceVar(&tenants, "tenants", nil, "files and folders of tenants (kind EdgeTenant), `PATH,...`")
	fl.StringSliceVar(&policies, "policies", nil, "files and folders of policies (kind AccessPolicy), `PATH,...`")
	fl.BoolVar(&strict, "strict", false, "fail if a way is unguarded")
	out.register(cmd)
	return cmd
}

// coverageOfFiles refuses what an edge would refuse: a list without it would not be whole.
func coverageOfFiles(tenants, policies []string, cluster string) (c admin.EdgeCoverage, err error) {
	table, rules, log := tenant.NewTable(), authz.NewTable(), slog.New(slog.DiscardHandler)
	ps := policyfile.New(policyfile.Options{
		Paths: func() []string { return policies }, Table: rules, Log: log, Now: time.Now, Reloaded: func(error) {},
	})
	if err := ps.Load(); err != nil {
		return c, err
	}
	ts := tenantfile.New(tenantfile.Options{
		Paths: func() []string { return tenants }, Table: table, Log: log, Now: time.Now, Reloaded: func(error) {},
	})
	if err := ts.Load(); err != nil {
		return c, err
	}
	if c = edge.Coverage(table.All(), rules, cluster); cluster != "" && c.Tenants == 0 {
		return c, edge.NoTenant(cluster)
	}
	return c, nil
}

func printCoverage(w io.Writer, c admin.EdgeCoverage) error {
	fmt.Fprintf(w, "%s: ways guarded by rules %d, by the tenant %d, open %d, unguarded %d\n", plural(c.Tenants, "tenant"),
		c.Guards[admin.GuardRules], c.Guards[admin.GuardTenant], c.Guards[admin.GuardOpen], c.Guards[admin.GuardUnguarded])
	if len(c.Ways) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CLUSTER\tFLOW\tGUARD\tRULES\tREACHED BY")
	for _, way := range c.Ways {
		rules := make([]string, 0, len(way.Rules))
		for _, r := range way.Rules {
			name := r.Rule
			if r.Group != "" {
				name = r.Group + "/" + name
			}
			if r.Deny {
				name += " (deny)"
			}
			rules = append(rules, name)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", way.Cluster, way.Flow, way.Guard,
			word(strings.Join(rules, ", "), "-"), reachedBy(way))
	}
	if c.More > 0 {
		fmt.Fprintf(t, "and %d more\t\t\t\t\n", c.More)
	}
	return t.Flush()
}

// reachedBy says by what a client names a way.
func reachedBy(w admin.EdgeWay) string {
	by := append(w.Names, w.Destinations...)
	if len(w.Protocols) == 0 {
		return strings.Join(by, ", ")
	}
	protocols := "protocol " + strings.Join(w.Protocols, " or ")
	if len(by) == 0 {
		return protocols + " and no known name"
	}
	return strings.Join(by, ", ") + " with " + protocols
}
