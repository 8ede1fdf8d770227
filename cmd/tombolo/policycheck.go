// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func newPolicyCheckCommand() *cobra.Command {
	var out outputFlag
	var remote remoteFlags
	var known []string
	var strict, overlaps bool
	var tenants tenantsFlag
	var locked lockoutFlags
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "List every problem of policies with file:line:column",
		Long: `Reads files of kind AccessPolicy, and folders of them, and lists what is wrong
(error) and what was hardly intended (warning), such as a rule that changes no
verdict because another one of its file covers it, or one for a cluster that does not
exist. --known names the clusters, else the hub is asked; if none answers, a note
says that this is not checked. If no rule names a cluster, as between nodes of a
mesh, no hub is asked. --tenants names those of an edge, and no hub is asked either.

Rules for an edge that lock out the caller's own address (--from, otherwise that of the
SSH session), from the API server of a cluster that they protect, or the cluster's nodes
(--nodes) from API server, VPN or proxy, are an error, with --force a warning.

The exit code is 2 if there is an error, or with --strict a warning.`,
		Example: `  tombolo policy check /etc/tombolo/policies
  tombolo policy check c1.yaml --known c1,c2 --strict --overlaps
  tombolo policy check ./policies --tenants ./tenants --from 203.0.113.9 --nodes c1=192.0.2.0/24`,
		Args:        atLeastOne("PATH"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readPolicies(args)
			if err != nil {
				return err
			}
			table, err := tenants.read()
			if err != nil {
				return err
			}
			if known = append(known, tenantNames(table)...); table == nil || len(known) > 0 {
				if known, err = s.clusters(cmd, remote, known); err != nil {
					return err
				}
			}
			if known != nil {
				s.unknownClusters(known)
			}
			if overlaps {
				s.overlap()
			}
			if err := locked.check(&s, known); err != nil {
				return err
			}
			return s.report(cmd, out, strict)
		},
	}
	cmd.Flags().StringSliceVar(&known, "known", nil,
		"warn of rules for clusters that are none of these `NAMES`, without asking a hub")
	cmd.Flags().BoolVar(&strict, "strict", false, "take a warning for an error")
	cmd.Flags().BoolVar(&overlaps, "overlaps", false,
		"list where an allow and a deny rule of a file meet, so that deny wins there")
	tenants.register(cmd, "take the tenants in these files and folders, `PATHS`, for the clusters that exist")
	locked.register(cmd)
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// named says whether some rule names a cluster.
func (s *policySet) named() bool {
	return slices.ContainsFunc(s.policies, func(p *policy.Policy) bool {
		return slices.ContainsFunc(p.Rules(), func(r policy.Rule) bool { return len(r.Cluster) > 0 })
	})
}

// clusters lists those that there are, nil if nobody says, or if no rule names one. A hub
// that was named has to answer; one that nobody named is asked if it is there.
func (s *policySet) clusters(cmd *cobra.Command, remote remoteFlags, known []string) ([]string, error) {
	if len(known) > 0 {
		return known, nil
	}
	asked := slices.ContainsFunc([]string{"admin-socket", "hub", "operator"}, cmd.Flags().Changed)
	if !asked && !s.named() {
		return nil, nil
	}
	client, err := remote.client()
	if err != nil {
		return nil, err
	}
	var st admin.Status
	if err := client.Call(cmd.Context(), http.MethodGet, "/v1/status", nil, &st); err != nil {
		if asked {
			return nil, err
		}
		s.note = "no hub answers at " + remote.socket +
			", so clusters were not looked at: name them with --known, or the hub with --hub or --admin-socket"
		return nil, nil
	}
	known = []string{} // a hub without clusters knows none
	for _, c := range st.Clusters {
		known = append(known, c.Name)
	}
	return known, nil
}

// unknownClusters warns about rules that match no known cluster, and of names in them that
// none has.
func (s *policySet) unknownClusters(known []string) {
	for i, p := range s.policies {
		strange := map[string]bool{}
		for _, name := range p.Unreached(known) {
			strange[name] = true
		}
		place := placer(s.files[i])
		warn := func(path, format string, args ...any) {
			s.findings = append(s.findings, policy.Finding{Warning: true, Problem: place(path, fmt.Sprintf(format, args...))})
		}
		for j, r := range p.Rules() {
			if strange[r.Name] {
				warn(fmt.Sprintf("rules[%d].clusters", j), "rule %s never counts: it is about no known cluster", r.Name)
				continue
			}
			for k, text := range r.Cluster {
				if !policy.AnyMatches(text, known) {
					warn(fmt.Sprintf("rules[%d].clusters[%d]", j, k), "no known cluster is %s", text)
				}
			}
		}
	}
}

// overlap lists where rules meet, which is no mistake.
func (s *policySet) overlap() {
	for i, p := range s.policies {
		place, index := placer(s.files[i]), map[string]int{}
		for j, r := range p.Rules() {
			index[r.Name] = j
		}
		for _, o := range p.Overlaps() {
			at := place(fmt.Sprintf("rules[%d]", index[o.Allow]),
				fmt.Sprintf("allow rule %s and deny rule %s meet at %s: deny wins", o.Allow, o.Deny, o.At))
			s.overlaps = append(s.overlaps, finding{"information", at.File, at.Line, at.Column, at.Path, at.Message})
		}
	}
}

// checked is the answer of policy check.
type checked struct {
	admin.Meta
	Files    int       `json:"files"`
	Rules    int       `json:"rules"`
	Note     string    `json:"note,omitempty"`   // what was not looked at, and why
	Looked   string    `json:"looked,omitempty"` // whether somebody is locked out of an edge: for whom it was looked at
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
	answer := checked{Meta: hub.Meta("PolicyCheck"), Files: len(s.files), Note: s.note, Looked: s.looked,
		Findings: []finding{}}
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
			fmt.Fprintf(w, "%s: %s\n", o.Severity, conf.Problem{File: o.File, Line: o.Line, Column: o.Column, Path: o.Path,
				Message: o.Message})
		}
		for _, note := range []string{s.note, s.looked} {
			if note != "" {
				fmt.Fprintf(w, "note: %s\n", note)
			}
		}
		_, err := fmt.Fprintf(w, "%s, %s, %s\n", counted(answer.Files, "file"), counted(answer.Rules, "rule"),
			counted(len(answer.Findings), "finding"))
		return err
	})
	if err == nil && bad > 0 {
		return fault.Newf(fault.CodeConfig, "the policy has %s", counted(bad, "problem")).Hint("correct the lines named")
	}
	return err
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
