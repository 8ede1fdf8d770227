// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// lockoutFlags say who must get in through an edge whatever the rules are.
type lockoutFlags struct {
	from, nodes []string
	force       bool
}

func (f *lockoutFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.from, "from", nil,
		"your own `IP` addresses, which an edge must not lock out; default: where the SSH session comes from")
	cmd.Flags().StringSliceVar(&f.nodes, "nodes", nil,
		"ranges of nodes, `[CLUSTER=]CIDR`, which an edge must not lock out of their cluster")
	cmd.Flags().BoolVar(&f.force, "force", false, "take a lock-out from an edge for a warning")
}

// mostLockouts bounds what is listed: a policy may be about thousands of clusters.
const mostLockouts = 20

// check adds a finding for each cluster and flow out of which somebody is locked, at the rule that refuses or protects.
func (f lockoutFlags) check(s *policySet, known []string) error {
	insiders, err := f.insiders(s)
	if err != nil {
		return err
	}
	policies, err := s.good()
	if err != nil {
		return nil // they are listed, and not in force anywhere
	}
	all := policy.NewEdgeRules(policies...).Lockouts(insiders, known)
	for _, l := range all[:min(len(all), mostLockouts)] {
		message := fmt.Sprintf("%s/%s locks out %s: %s; let %s in, or repeat with --force",
			l.Cluster, l.Flow, l.Who, l.Why, l.Source)
		s.findings = append(s.findings, policy.Finding{Warning: f.force, Problem: s.placeOf(l.Rule, l.EdgeWay, l.Source)})
		s.findings[len(s.findings)-1].Message = message
	}
	if more := len(all) - mostLockouts; more > 0 {
		last := s.findings[len(s.findings)-1]
		last.Message = fmt.Sprintf("and %d more ways are closed to them", more)
		s.findings = append(s.findings, last)
	}
	return nil
}

// insiders reads the flags, and says what was looked at, if rules are about an edge at all.
func (f lockoutFlags) insiders(s *policySet) (out []policy.Insider, err error) {
	from, how := f.from, "--from"
	if len(from) == 0 {
		from, how = sshClient()
	}
	var looked []string
	for _, text := range from {
		in, err := policy.InsiderAt("your own address", "", text, policy.FlowAPI)
		if err != nil || strings.Contains(text, "/") {
			return nil, usage(fmt.Sprintf("%s: %q is no IP address", how, text), "name your own: --from 203.0.113.9")
		}
		out, looked = append(out, in), append(looked, fmt.Sprintf("%s (%s)", in.Who, how))
	}
	for _, text := range f.nodes {
		cluster, rest, named := strings.Cut(text, "=")
		if !named {
			cluster, rest = "", text
		} else if _, err := id.ParseCluster(cluster); err != nil {
			return nil, err
		}
		in, err := policy.InsiderAt("the nodes", cluster, rest, policy.FlowAPI, policy.FlowVPN, policy.FlowProxy)
		if err != nil {
			return nil, usage(fmt.Sprintf("--nodes: %v", err), "write [CLUSTER=]CIDR: --nodes c1=192.0.2.0/24")
		}
		out, looked = append(out, in), append(looked, "the nodes "+text)
	}
	switch {
	case len(policy.NewEdgeRules(s.policies...).Clusters()) == 0: // nobody can be locked out
	case len(looked) > 0:
		s.looked = "looked whether an edge would lock out " + strings.Join(looked, ", ")
		if len(f.nodes) == 0 {
			s.looked += "; not for nodes: name their ranges with --nodes"
		}
	default:
		s.looked = "did not look whether an edge would lock you out: name your own address with --from"
	}
	return out, nil
}

// sshClient is the address from which the SSH session of this shell comes, and what says so.
func sshClient() ([]string, string) {
	for _, name := range []string{"SSH_CLIENT", "SSH_CONNECTION"} {
		if fields := strings.Fields(os.Getenv(name)); len(fields) > 0 {
			address, _, _ := strings.Cut(fields[0], "%") // a zone of this machine
			return []string{address}, name
		}
	}
	return nil, ""
}
