// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func newPolicyDiffCommand() *cobra.Command {
	var out outputFlag
	var tenants tenantsFlag
	cmd := &cobra.Command{
		Use: "diff A B", Short: "List the rules and ranges that differ between two policies, files or folders",
		Args: exactArgs("A", "B"),
		Long: `Compares rules and lists by their names, whatever their file and order. Of the flows of
an edge it also lists for which clusters and sources the verdict changes, whichever
rules say so; --tenants says which clusters are protected in any case. The exit code is
0 whether or not something differs. 'tombolo policy test' shows the effect on recorded
traffic.`,
		Example:     "  tombolo policy diff /etc/tombolo/policies ./policies",
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2]side
			for i, path := range args {
				s, err := readSide(path)
				if err != nil {
					return err
				}
				sides[i] = s
			}
			table, err := tenants.read()
			if err != nil {
				return err
			}
			answer := compare(sides[0], sides[1])
			answer.edge(policy.EdgeChanges(sides[0].policies, sides[1].policies, tenantNames(table), protectedIn(table)))
			return out.print(cmd.OutOrStdout(), answer, answer.text)
		},
	}
	tenants.register(cmd, "files and folders of an edge's tenants, `PATHS`: which are protected, and their names")
	out.register(cmd)
	return cmd
}

// side is one policy: rules and lists by name. Files may have the same names; the
// second gets a number.
type side struct {
	policies []*policy.Policy
	order    []string
	rules    map[string]policy.Rule
	lists    map[string][]string
}

func readSide(path string) (out side, err error) {
	s, err := readPolicies([]string{path})
	if err != nil {
		return out, err
	}
	policies, err := s.good()
	if err != nil {
		return out, err
	}
	out = side{policies: policies, rules: map[string]policy.Rule{}, lists: map[string][]string{}}
	for i, p := range policies {
		for _, r := range p.Rules() {
			name := free(out.rules, r.Name)
			out.rules[name] = r
			out.order = append(out.order, name)
		}
		lists, err := policyfile.Lists(s.files[i])
		if err != nil {
			return out, err
		}
		for _, l := range lists {
			out.lists[free(out.lists, l.Name)] = l.Ranges
		}
	}
	return out, nil
}

func free[V any](m map[string]V, name string) string {
	for n, tried := 2, name; ; n++ {
		if _, taken := m[tried]; !taken {
			return tried
		}
		tried = fmt.Sprintf("%s#%d", name, n)
	}
}

// compared is the answer of policy diff.
type compared struct {
	admin.Meta
	Rules []ruleChange `json:"rules"`
	Lists []listChange `json:"lists"`
	Edge  []edgeChange `json:"edge"`
	More  int          `json:"more,omitempty"` // changes at an edge that are not listed
}

// edgeChange are sources that get another verdict on a way through an edge.
type edgeChange struct {
	policy.EdgeWay
	Sources []string `json:"sources"`
	Before  string   `json:"before"`
	After   string   `json:"after"`
	Rule    string   `json:"rule,omitempty"` // that decides afterwards
}

// The bounds of what is listed of an edge.
const (
	mostEdgeChanges = 1000
	mostSources     = 8 // of a change, as text
)

func (c *compared) edge(changes []policy.EdgeChange) {
	c.Edge = []edgeChange{}
	for _, x := range changes[:min(len(changes), mostEdgeChanges)] {
		e := edgeChange{
			EdgeWay: x.EdgeWay, Before: verdictOf(x.Before.Allow), After: verdictOf(x.After.Allow), Rule: x.After.Rule,
		}
		for _, r := range x.Sources {
			e.Sources = append(e.Sources, r.String())
		}
		c.Edge = append(c.Edge, e)
	}
	c.More = len(changes) - len(c.Edge)
}

func (e edgeChange) String() string {
	sources, by := e.Sources, "no rule decides"
	if len(sources) > mostSources {
		sources = append(slices.Clone(sources[:mostSources]), fmt.Sprintf("and %d more", len(e.Sources)-mostSources))
	}
	if e.Rule != "" {
		by = "rule " + e.Rule
	}
	from := strings.Join(sources, ", ")
	return fmt.Sprintf("at an edge, %s from %s: %s -> %s: %s", e.EdgeWay, from, e.Before, e.After, by)
}

// ruleChange is a rule that differs: Before is empty for a new rule, After for a removed
// one.
type ruleChange struct {
	Name   string `json:"name"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

type listChange struct {
	Name    string   `json:"name"`
	Removed []string `json:"removed"`
	Added   []string `json:"added"`
}

func compare(a, b side) compared {
	out := compared{Meta: hub.Meta("PolicyDiff"), Rules: []ruleChange{}, Lists: []listChange{}}
	for _, name := range a.order {
		after, there := b.rules[name]
		switch before := a.rules[name]; {
		case !there:
			out.Rules = append(out.Rules, ruleChange{Name: name, Before: ruleLine(before)})
		case !reflect.DeepEqual(before, after):
			out.Rules = append(out.Rules, ruleChange{name, ruleLine(before), ruleLine(after)})
		}
	}
	for _, name := range b.order {
		if _, there := a.rules[name]; !there {
			out.Rules = append(out.Rules, ruleChange{Name: name, After: ruleLine(b.rules[name])})
		}
	}
	names := maps.Clone(a.lists)
	maps.Copy(names, b.lists)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := listChange{name, without(a.lists[name], b.lists[name]), without(b.lists[name], a.lists[name])}
		if len(l.Removed)+len(l.Added) > 0 {
			out.Lists = append(out.Lists, l)
		}
	}
	return out
}

// without returns the elements of a that are not in b, in the order of a.
func without(a, b []string) []string {
	in := make(map[string]bool, len(b))
	for _, s := range b {
		in[s] = true
	}
	out := []string{}
	for _, s := range a {
		if !in[s] {
			out = append(out, s)
		}
	}
	return out
}

func (c compared) text(w io.Writer) error {
	for _, r := range c.Rules {
		if r.Before != "" {
			fmt.Fprintf(w, "- %s\n", r.Before)
		}
		if r.After != "" {
			fmt.Fprintf(w, "+ %s\n", r.After)
		}
	}
	for _, l := range c.Lists {
		for _, s := range l.Removed {
			fmt.Fprintf(w, "- list %s: %s\n", l.Name, s)
		}
		for _, s := range l.Added {
			fmt.Fprintf(w, "+ list %s: %s\n", l.Name, s)
		}
	}
	for _, e := range c.Edge {
		fmt.Fprintf(w, "~ %s\n", e)
	}
	if c.More > 0 {
		fmt.Fprintf(w, "~ and %d more changes at an edge\n", c.More)
	}
	if len(c.Rules)+len(c.Lists)+len(c.Edge) == 0 {
		fmt.Fprintln(w, "no rule and no list differs")
	}
	return nil
}

// ruleLine renders a complete rule in one line.
func ruleLine(r policy.Rule) string {
	var b strings.Builder
	b.WriteString(r.Name)
	action := "allow"
	if r.Deny {
		action = "deny"
	}
	var users []string
	for _, u := range r.UID {
		users = append(users, fmt.Sprint(u))
	}
	for _, part := range []struct {
		what string
		list []string
	}{
		{"clusters", r.Cluster}, {"callers", r.Caller}, {"uids", users}, {"egress", r.Egress},
		{"flows", r.Flow}, {"sources", r.Source}, {action, r.Destination},
	} {
		if part.list != nil {
			fmt.Fprintf(&b, " %s=%s", part.what, strings.Join(part.list, ","))
		}
	}
	if r.Comment != "" {
		fmt.Fprintf(&b, " # %s", r.Comment)
	}
	return b.String()
}
