// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/replay"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func newPolicyTestCommand() *cobra.Command {
	var out outputFlag
	var records []string
	var strict bool
	var tenants tenantsFlag
	cmd := &cobra.Command{
		Use:   "test PATH... --audit FILE",
		Short: "Say what a policy would refuse or admit of the traffic in audit records",
		Long: `Decides every recorded dial of a hub, and every recorded connection at an edge, again by
the policies of the paths, and lists where the verdict differs, the most frequent
first. Nothing is dialled. A name without a recorded address counts as open, and at an
edge, whose records have no port, what a rule with ports decides. --tenants says which
clusters of an edge are protected in any case. Refusals by the agent, and records without
a verdict, such as a failure or a refusal by a limit, are counted separately. With
--strict the exit code is 4 if something that was allowed would be refused.`,
		Example:     "  tombolo policy test ./policies --audit /var/log/tombolo/audit.jsonl",
		Args:        atLeastOne("PATH"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(records) == 0 {
				return usage("--audit is missing", "name the records: --audit FILE")
			}
			s, err := readPolicies(args)
			if err != nil {
				return err
			}
			policies, err := s.good()
			if err != nil {
				return err
			}
			table, err := tenants.read()
			if err != nil {
				return err
			}
			r := replay.New(policies, protectedIn(table))
			if err := readAudit(cmd, records, audit.Filter{}, func(rec audit.Record) error {
				r.Add(rec)
				return nil
			}); err != nil {
				return err
			}
			answer := rehearsed{hub.Meta("PolicyTest"), r.Result()}
			if err := out.print(cmd.OutOrStdout(), answer, answer.text); err != nil {
				return err
			}
			if strict && answer.Refused > 0 {
				return fault.Newf(fault.CodePolicyDenied, "%d dials that were allowed would be refused", answer.Refused).
					Hint("the list names the rules")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&records, "audit", nil, "audit records: `FILES` with their rotated ones, or - for stdin")
	tenants.register(cmd, "files and folders of an edge's tenants, `PATHS`: which are protected")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if something that was allowed would be refused")
	out.register(cmd)
	return cmd
}

// rehearsed is the answer of policy test.
type rehearsed struct {
	admin.Meta
	replay.Result
}

func (a rehearsed) text(w io.Writer) error {
	fmt.Fprintf(w, "%d dials: %d that were allowed would be refused, %d that were refused would be allowed, %d are open\n",
		a.Dials, a.Refused, a.Admitted, a.Open)
	if a.Unclear > 0 {
		fmt.Fprintf(w, "%d records have a destination that cannot be read\n", a.Unclear)
	}
	if a.Agents > 0 {
		fmt.Fprintf(w, "%s refused by the agent, which the hub's policy does not change\n", counted(a.Agents, "more dial"))
	}
	if a.Unjudged > 0 {
		fmt.Fprintf(w, "%s without a verdict, such as failures and refusals by a limit\n", counted(a.Unjudged, "more dial"))
	}
	if len(a.Differences) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DIALS\tCLUSTER\tCALLER\tTARGET\tBEFORE\tAFTER\tRULE\tWHY")
	for _, d := range a.Differences {
		if d.Flow != "" {
			d.Cluster += "/" + d.Flow
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Dials, d.Cluster, d.Caller, d.Target, d.Before, d.After,
			cmp.Or(d.Rule, "-"), d.Why)
	}
	if a.More > 0 {
		fmt.Fprintf(tw, "\nand %d more\n", a.More)
	}
	return tw.Flush()
}
