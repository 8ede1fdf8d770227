// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func newPolicyTestCommand() *cobra.Command {
	var out outputFlag
	var records []string
	var strict bool
	cmd := &cobra.Command{
		Use:   "test PATH... --audit FILE",
		Short: "Say what a policy would refuse or admit of the traffic in audit records",
		Long: `Decides every recorded dial of a hub again by the policies of the paths, and lists
where the verdict differs, the most frequent first. Nothing is dialled. A name
without a recorded address counts as open. Refusals by the agent, and records without
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
			r := rehearsal{policies: policies, differ: map[difference]*replayed{}}
			if err := r.run(records, cmd.ErrOrStderr()); err != nil {
				return err
			}
			answer := r.answer()
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
	cmd.Flags().StringSliceVar(&records, "audit", nil, "audit records: `FILES`, their rotated ones included")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if something that was allowed would be refused")
	out.register(cmd)
	return cmd
}

// rehearsal decides recorded dials by other policies.
type rehearsal struct {
	policies                                []*policy.Policy
	dials, refused, admitted, open, unclear int
	agents, unjudged                        int // not replayed: verdicts of agents, and what has none
	differ                                  map[difference]*replayed
	more                                    int // differences beyond mostDifferences
}

// mostDifferences bounds the table; what a hostile caller asked for is in the records too.
const mostDifferences = 10_000

// difference is one kind of dial whose verdict changes.
type difference struct{ cluster, caller, asked, before, after string }

// replayed is what is told of it.
type replayed struct {
	Cluster string `json:"cluster"`
	Caller  string `json:"caller"`
	Target  string `json:"target"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Rule    string `json:"rule,omitempty"`
	Why     string `json:"why"`
	Dials   int    `json:"dials"`
}

func (r *rehearsal) run(paths []string, warnings io.Writer) error {
	files, err := audit.Files(paths...)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := r.read(file, warnings); err != nil {
			return err
		}
	}
	return nil
}

func (r *rehearsal) read(file string, warnings io.Writer) error {
	in, err := audit.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	records := audit.NewReader(file, in)
	for {
		rec, err := records.Next()
		var broken *audit.Broken
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &broken):
			fmt.Fprintf(warnings, "warning: %v\n", broken)
			continue
		case err != nil:
			return err
		}
		if rec.At == audit.AtHub && rec.Asked != "" && rec.Cluster != "" {
			r.decide(rec)
		}
	}
}

// question is what the hub was asked when it wrote the record.
func question(rec audit.Record) (q policy.Request, ok bool) {
	t, err := policy.ParseTarget(rec.Asked)
	if err != nil {
		return q, false
	}
	q = policy.Request{
		Cluster: rec.Cluster, Caller: rec.Caller, Egress: rec.Egress, Flow: policy.FlowDial, Name: t.Name, Addr: t.Addr,
		Port: t.Port,
	}
	if rec.Peer != nil {
		q.Local, q.UID = true, rec.Peer.UID
	}
	if at, err := netip.ParseAddrPort(rec.Resolved); err == nil {
		q.Addr = at.Addr().Unmap()
	}
	if at, err := netip.ParseAddrPort(rec.Source); err == nil {
		q.Source = at.Addr().Unmap()
	}
	return q, true
}

// kept says whose verdict a record tells that the hub's policy cannot change.
type kept uint8

const (
	byHub   kept = iota // none: it was the hub's policy, or its absence
	byAgent             // the agent's own list refused, or a listener was the hub's own or the agent's
	byNone              // it was turned away before, or for another reason
)

// judged says who decided. A refusal of a hub's policy names the policy's version. A
// hub without a policy lets everything through to the agent, and gives no verdict.
func judged(rec audit.Record) kept {
	denied := rec.Verdict == audit.Deny || rec.Code == string(fault.CodePolicyDenied)
	switch {
	case denied && rec.Policy == "":
		return byAgent
	case rec.Verdict == "" && rec.Resolved == "":
		return byNone
	}
	return byHub
}

func (r *rehearsal) decide(rec audit.Record) {
	q, ok := question(rec)
	if !ok {
		r.unclear++
		return
	}
	switch judged(rec) {
	case byAgent:
		r.agents++
		return
	case byNone:
		r.unjudged++
		return
	}
	r.dials++
	v := policy.Decide(q, r.policies...)
	before, after := admin.VerdictAllowed, admin.VerdictDenied
	if rec.Verdict == audit.Deny {
		before = admin.VerdictDenied
	}
	switch {
	case v.Allow:
		after = admin.VerdictAllowed
	case v.Open:
		r.open++
		return
	}
	if before == after {
		return
	}
	if after == admin.VerdictDenied {
		r.refused++
	} else {
		r.admitted++
	}
	key := difference{rec.Cluster, rec.Caller, rec.Asked, before, after}
	d := r.differ[key]
	if d == nil {
		if len(r.differ) == mostDifferences {
			r.more++
			return
		}
		d = &replayed{
			Cluster: wire.Clean(rec.Cluster), Caller: wire.Clean(rec.Caller), Target: wire.Clean(rec.Asked),
			Before: before, After: after, Rule: v.Rule, Why: v.Why(),
		}
		r.differ[key] = d
	}
	d.Dials++
}

// rehearsed is the answer of policy test.
type rehearsed struct {
	admin.Meta
	Dials       int        `json:"dials"`
	Refused     int        `json:"refused"`  // were allowed
	Admitted    int        `json:"admitted"` // were refused
	Open        int        `json:"open"`     // a name without an address decides nothing
	Unclear     int        `json:"unclear"`  // the destination cannot be read
	Agents      int        `json:"agents"`   // refused by the agent
	Unjudged    int        `json:"unjudged"` // neither a verdict nor a target that was reached
	More        int        `json:"more,omitempty"`
	Differences []replayed `json:"differences"`
}

func (r *rehearsal) answer() rehearsed {
	a := rehearsed{
		Meta: hub.Meta("PolicyTest"), Dials: r.dials, Refused: r.refused, Admitted: r.admitted, Open: r.open,
		Unclear: r.unclear, Agents: r.agents, Unjudged: r.unjudged, More: r.more, Differences: []replayed{},
	}
	for _, d := range r.differ {
		a.Differences = append(a.Differences, *d)
	}
	slices.SortFunc(a.Differences, func(x, y replayed) int {
		return cmp.Or(cmp.Compare(x.After, y.After)*-1, cmp.Compare(y.Dials, x.Dials), cmp.Compare(x.Cluster, y.Cluster),
			cmp.Compare(x.Caller, y.Caller), cmp.Compare(x.Target, y.Target))
	})
	return a
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
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Dials, d.Cluster, d.Caller, d.Target, d.Before, d.After,
			cmp.Or(d.Rule, "-"), d.Why)
	}
	if a.More > 0 {
		fmt.Fprintf(tw, "\nand %d more\n", a.More)
	}
	return tw.Flush()
}
