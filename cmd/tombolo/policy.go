// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/conf"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/hub"
	"github.com/tombolo-io/tombolo/internal/policy"
)

func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Check, explain and compare access policies", Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(), newPolicyExplainCommand(), newPolicyTestCommand(), newPolicyDiffCommand())
	return cmd
}

// policySet is what the files of some paths hold.
type policySet struct {
	files    []string
	policies []*policy.Policy
	findings []policy.Finding
	overlaps []finding
}

// readPolicies reads files and folders. Mistakes are findings, not errors.
func readPolicies(paths []string) (s policySet, err error) {
	if s.files, err = hub.PolicyFiles(paths); err != nil {
		return s, fault.From(err).Hint("name files that can be read, or folders of them")
	}
	first := map[string]string{}
	for _, file := range s.files {
		p, findings, err := hub.ReadPolicy(file)
		if err != nil {
			return s, err
		}
		s.findings = append(s.findings, findings...)
		s.policies = append(s.policies, p)
		for _, r := range p.Rules() {
			if other, twice := first[r.Name]; twice {
				s.findings = append(s.findings, policy.Finding{Warning: true, Problem: inFile(file,
					fmt.Sprintf("%s has a rule %s too: a verdict does not tell which of them it names", other, r.Name))})
			}
			first[r.Name] = file
		}
	}
	return s, nil
}

// inFile is a problem of a file as a whole.
func inFile(file, message string) conf.Problem { return conf.Problem{File: file, Message: message} }

// good gives the policies if no file has a mistake.
func (s policySet) good() ([]*policy.Policy, error) {
	for _, file := range s.files {
		var of []policy.Finding
		for _, f := range s.findings {
			if f.File == file {
				of = append(of, f)
			}
		}
		if err := hub.PolicyFault(file, of); err != nil {
			return nil, err
		}
	}
	return s.policies, nil
}

func newPolicyCheckCommand() *cobra.Command {
	var out outputFlag
	var known []string
	var strict, overlaps bool
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "List every problem of policies with file:line:column",
		Long: "Reads files of kind AccessPolicy, and folders of them, and lists what is wrong (error) and what was hardly meant\n" +
			"(warning), such as a rule that changes no verdict because another one of its file covers it. The exit code is 2 if\n" +
			"there is an error, or with --strict a warning.",
		Example:     "  tombolo policy check /etc/tombolo/policies\n  tombolo policy check c1.yaml --known c1,c2 --strict --overlaps",
		Args:        atLeastOne("PATH"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readPolicies(args)
			if err != nil {
				return err
			}
			if len(known) > 0 {
				s.strangers(known)
			}
			if overlaps {
				s.overlap()
			}
			return s.report(cmd, out, strict)
		},
	}
	cmd.Flags().StringSliceVar(&known, "known", nil, "warn of rules for clusters that are none of these `NAMES`")
	cmd.Flags().BoolVar(&strict, "strict", false, "take a warning for an error")
	cmd.Flags().BoolVar(&overlaps, "overlaps", false, "list where an allow and a deny rule of a file meet, so that deny wins there")
	out.register(cmd)
	return cmd
}

// strangers warns of rules that speak of no known cluster.
func (s *policySet) strangers(known []string) {
	for i, p := range s.policies {
		for _, name := range p.Unreached(known) {
			s.findings = append(s.findings, policy.Finding{Warning: true,
				Problem: inFile(s.files[i], fmt.Sprintf("rule %s is about no known cluster", name))})
		}
	}
}

// overlap lists where rules meet, which is no mistake.
func (s *policySet) overlap() {
	for i, p := range s.policies {
		for _, o := range p.Overlaps() {
			s.overlaps = append(s.overlaps, finding{Severity: "information", File: s.files[i],
				Message: fmt.Sprintf("allow rule %s and deny rule %s meet at %s: deny wins", o.Allow, o.Deny, o.At)})
		}
	}
}

// checked is the answer of policy check.
type checked struct {
	admin.Meta
	Files    int       `json:"files"`
	Rules    int       `json:"rules"`
	Findings []finding `json:"findings"`
}

type finding struct {
	Severity string `json:"severity"` // error, warning or information
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

func (s policySet) report(cmd *cobra.Command, out outputFlag, strict bool) error {
	answer := checked{Meta: hub.Meta("PolicyCheck"), Files: len(s.files), Findings: []finding{}}
	for _, p := range s.policies {
		answer.Rules += len(p.Rules())
	}
	bad := 0
	for _, f := range s.findings {
		severity := "error"
		if f.Warning {
			severity = "warning"
		}
		if !f.Warning || strict {
			bad++
		}
		answer.Findings = append(answer.Findings, finding{severity, f.File, f.Line, f.Column, f.Path, f.Message})
	}
	answer.Findings = append(answer.Findings, s.overlaps...)
	err := out.print(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		for i, f := range s.findings {
			fmt.Fprintf(w, "%s: %s\n", answer.Findings[i].Severity, f.String())
		}
		for _, o := range s.overlaps {
			fmt.Fprintf(w, "%s: %s: %s\n", o.Severity, o.File, o.Message)
		}
		_, err := fmt.Fprintf(w, "%d files, %d rules, %d findings\n", answer.Files, answer.Rules, len(answer.Findings))
		return err
	})
	if err == nil && bad > 0 {
		return fault.Newf(fault.CodeConfig, "the policy has %d problems", bad).Hint("correct the lines named")
	}
	return err
}

func newPolicyExplainCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var e explainFlags
	cmd := &cobra.Command{
		Use:   "explain CLUSTER HOST:PORT",
		Short: "Say what the hub and each agent would decide about a dial, and by which rule",
		Long: "Asks the running hub, or with --policy reads files instead. Nothing is dialled and no name is resolved: where only\n" +
			"the address of a name decides, the verdict is open. The exit code is 0 whatever the verdict is.",
		Example: "  tombolo policy explain c1 10.96.0.10:443 --as unix:c1/connect\n  tombolo policy explain c1 db.svc:5432 --policy ./policies",
		Args:    exactArgs("CLUSTER", "HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := e.explain(cmd, remote, args)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), answer, func(w io.Writer) error { return printExplanation(w, answer) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&e.caller, "as", "", "the `CALLER`: unix:<cluster>/<protocol>, a SPIFFE URI, or operator")
	fl.StringVar(&e.uid, "uid", "", "the user `ID` of a caller at a unix socket")
	fl.StringVar(&e.egress, "egress", "", "the type of the egress selection")
	fl.StringVar(&e.from, "from", "", "the `IP` address of the caller")
	fl.StringSliceVar(&e.paths, "policy", nil, "decide by these `PATHS` instead of asking the hub")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// explainFlags say who would dial.
type explainFlags struct {
	caller, uid, egress, from string
	paths                     []string // of policies; empty: those of the running hub
}

func (e explainFlags) explain(cmd *cobra.Command, remote remoteFlags, args []string) (answer admin.Explanation, err error) {
	query := url.Values{"target": {args[1]}, "as": {e.caller}, "uid": {e.uid}, "egress": {e.egress}, "from": {e.from}}
	q, err := hub.Question(args[0], query)
	if err != nil {
		return answer, err
	}
	if len(e.paths) > 0 {
		s, err := readPolicies(e.paths)
		if err != nil {
			return answer, err
		}
		policies, err := s.good()
		if err != nil {
			return answer, err
		}
		return hub.Explain(q, policies...), nil
	}
	client, err := remote.client()
	if err != nil {
		return answer, err
	}
	path := "/v1/clusters/" + url.PathEscape(args[0]) + "/explain?" + query.Encode()
	return answer, client.Call(cmd.Context(), http.MethodGet, path, nil, &answer)
}

func printExplanation(w io.Writer, e admin.Explanation) error {
	fmt.Fprintf(w, "%s to %s in %s: %s\n\n", or(e.Caller, "anybody"), e.Target, e.Cluster, e.Verdict)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "HOP\tNAME\tVERDICT\tRULE\tWHY")
	for _, h := range e.Hops {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", h.Place, h.Name, h.Verdict, or(h.Rule, "-"), h.Why)
	}
	return tw.Flush()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func newPolicyDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff A B", Short: "List the rules that differ between two policies, files or folders", Args: exactArgs("A", "B"),
		Example:     "  tombolo policy diff /etc/tombolo/policies ./policies",
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2]map[string]policy.Rule
			var order [2][]string
			for i, path := range args {
				s, err := readPolicies([]string{path})
				if err != nil {
					return err
				}
				policies, err := s.good()
				if err != nil {
					return err
				}
				sides[i] = map[string]policy.Rule{}
				for _, p := range policies {
					for _, r := range p.Rules() {
						sides[i][r.Name] = r
						order[i] = append(order[i], r.Name)
					}
				}
			}
			printPolicyDiff(cmd.OutOrStdout(), sides, order)
			return nil
		},
	}
}

func printPolicyDiff(w io.Writer, sides [2]map[string]policy.Rule, order [2][]string) {
	for _, name := range order[0] {
		now, there := sides[1][name]
		switch before := sides[0][name]; {
		case !there:
			fmt.Fprintf(w, "- %s\n", ruleLine(before))
		case !reflect.DeepEqual(before, now):
			fmt.Fprintf(w, "- %s\n+ %s\n", ruleLine(before), ruleLine(now))
		}
	}
	for _, name := range order[1] {
		if _, there := sides[0][name]; !there {
			fmt.Fprintf(w, "+ %s\n", ruleLine(sides[1][name]))
		}
	}
}

// ruleLine is a rule in one line.
func ruleLine(r policy.Rule) string {
	var b strings.Builder
	b.WriteString(r.Name)
	action := "allow"
	if r.Deny {
		action = "deny"
	}
	for _, part := range []struct {
		what string
		list []string
	}{{"clusters", r.Cluster}, {"callers", r.Caller}, {"egress", r.Egress}, {"flows", r.Flow}, {"sources", r.Source}, {action, r.Destination}} {
		if part.list != nil {
			fmt.Fprintf(&b, " %s=%s", part.what, strings.Join(part.list, ","))
		}
	}
	return b.String()
}
