// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Check, explain and compare access policies", Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(), newPolicyExplainCommand(), newPolicyTestCommand(), newPolicyDiffCommand(),
		newPolicyVerifyCommand())
	return cmd
}

// policySet is what the files of some paths hold.
type policySet struct {
	files    []string
	policies []*policy.Policy
	findings []policy.Finding
	overlaps []finding
	note     string // what was not looked at, and why
	looked   string // for whom the rules of an edge were looked at
}

// readPolicies reads files and folders. Mistakes are findings, not errors.
func readPolicies(paths []string) (s policySet, err error) {
	if s.files, err = policyfile.List(paths); err != nil {
		return s, fault.From(err).Hint("name files that can be read, or folders of them")
	}
	first := map[string]string{}
	for _, file := range s.files {
		p, findings, err := policyfile.Read(file)
		if err != nil {
			return s, err
		}
		s.findings = append(s.findings, findings...)
		s.policies = append(s.policies, p)
		place := placer(file)
		for i, r := range p.Rules() {
			if other, twice := first[r.Name]; twice {
				s.findings = append(s.findings, policy.Finding{Warning: true, Problem: place(fmt.Sprintf("rules[%d].name", i),
					fmt.Sprintf("%s has a rule %s too: a verdict does not tell which of them it names", other, r.Name))})
			}
			first[r.Name] = file
		}
	}
	return s, nil
}

// placer finds the line of what is found only when more than the file is known. It
// reads the file when it is needed first.
func placer(file string) func(path, message string) conf.Problem {
	var doc *conf.Document
	return func(path, message string) conf.Problem {
		if doc == nil {
			data, err := private.ReadPublic(file, limit.ConfigFile)
			if err != nil { // it was read a moment ago
				return conf.Problem{File: file, Path: path, Message: message}
			}
			doc = conf.Decode(file, data, &v1alpha1.AccessPolicy{})
		}
		return doc.Place(path, message)
	}
}

// good gives the policies if no file has a mistake.
func (s policySet) good() ([]*policy.Policy, error) {
	for _, file := range s.files {
		var of []policy.Finding
		for _, f := range s.findings {
			if f.File == file {
				of = append(of, f)
			}
		}
		if err := policyfile.Fault(file, of); err != nil {
			return nil, err
		}
	}
	return s.policies, nil
}

func newPolicyExplainCommand() *cobra.Command {
	var remote remoteFlags
	var out outputFlag
	var e explainFlags
	cmd := &cobra.Command{
		Use:   "explain CLUSTER HOST:PORT | CLUSTER PORT --as AGENT | CLUSTER/FLOW --from IP",
		Short: "Say what hub and agents would decide about a dial, or an edge about a source, and by which rule",
		Long: `Of a dial (CLUSTER HOST:PORT) it asks the running hub, or with --policy reads files
instead. Nothing is dialled and no name is resolved: where only the address of a name
decides, the verdict is open. With an agent in --as it is about a port of the hub, by its
name.

Of a connection at an edge (CLUSTER/FLOW, a flow being api, vpn, proxy or ingress) it
asks the edge that runs here (env TOMBOLO_EDGE_SOCKET), or reads the files of --policy,
and with --tenants those of the tenants: verdict, rule with its group, from files with
its place, and what holds where no rule decides.

The exit code is 0 whatever the verdict is.`,
		Example: `  tombolo policy explain c1 10.96.0.10:443 --as unix:c1/connect
  tombolo policy explain c1 db.svc:5432 --policy ./policies
  tombolo policy explain c1 registry --as spiffe://tombolo.internal/cluster/c1/agent/agent-1
  tombolo policy explain c1/api --from 203.0.113.9 --policy ./policies --tenants ./tenants`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && strings.Contains(args[0], "/") {
				return nil
			}
			return exactArgs("CLUSTER", "HOST:PORT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				answer, err := e.explainEdge(cmd, remote.socket, args[0])
				if err != nil {
					return err
				}
				return out.print(cmd.OutOrStdout(), answer, answer.text)
			}
			for _, flag := range []string{"name", "port", "tenants"} {
				if cmd.Flags().Changed(flag) {
					return usage("--"+flag+" is about an edge", "name cluster and flow: tombolo policy explain "+args[0]+"/api")
				}
			}
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
	fl.StringVar(&e.name, "name", "", "the server `NAME` that a client of an edge asks for, where rules tell names apart")
	fl.Uint16Var(&e.port, "port", 0, "the `PORT` of an edge, where rules tell ports apart")
	fl.StringSliceVar(&e.paths, "policy", nil, "decide by these `PATHS` instead of asking hub or edge")
	e.tenants.register(cmd, "files and folders of an edge's tenants, `PATHS`: which are protected, and their names")
	remote.register(cmd)
	out.register(cmd)
	return cmd
}

// explainFlags say who would dial, or connect to an edge.
type explainFlags struct {
	caller, uid, egress, from, name string
	port                            uint16
	paths                           []string // of policies; empty: those of the running hub
	tenants                         tenantsFlag
}

func (e explainFlags) explain(cmd *cobra.Command, remote remoteFlags,
	args []string) (answer admin.Explanation, err error) {
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
	fmt.Fprintf(w, "%s to %s in %s: %s\n\n", cmp.Or(e.Caller, "anybody"), e.Target, e.Cluster, e.Verdict)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "HOP\tNAME\tVERDICT\tRULE\tWHY")
	for _, h := range e.Hops {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", h.Place, h.Name, h.Verdict, cmp.Or(h.Rule, "-"), h.Why)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, h := range e.Hops {
		if h.Version != "" {
			fmt.Fprintf(w, "\n%s decides by policy version %s\n", h.Place, h.Version)
		}
	}
	return nil
}
