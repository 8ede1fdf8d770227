// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
)

// Problem is a mistake in rules or lists.
type Problem struct {
	Index   int    // of the rule or list
	Path    string // such as rules[3].allow[2]; in an agent's list [2]
	Warning bool   // the policy is usable
	Message string
}

// mostProblems bounds the listed problems: nobody reads more at once.
const mostProblems = 1000

// Compile reads rules, and warns about those that change no verdict. If any problem is not a
// warning, the policy is nil.
func Compile(rules []Rule, lists []List) (*Policy, []Problem) {
	c := newCompiler()
	c.readLists(lists)
	for i := range rules {
		c.index = i
		c.rule(fmt.Sprintf("rules[%d]", i), rules[i])
	}
	c.unused(lists)
	if slices.ContainsFunc(c.problems, func(p Problem) bool { return !p.Warning }) {
		return nil, c.listed()
	}
	c.analyse()
	c.p.digest = digestOf(rules, lists)
	return c.p, c.listed()
}

// CompileAllow reads an agent's own list: each text is a rule, named by the text, that allows one
// destination to every caller. Entries with a mistake are left out.
func CompileAllow(texts []string) (*Policy, []Problem) {
	c := newCompiler()
	c.p.texts = []string{}
	flows := dials() // of all of them: there may be a million
	for i, text := range texts {
		c.index = i
		path := fmt.Sprintf("[%d]", i)
		d, err := parseDestination(text)
		if err == nil && (d.any || d.list != "") {
			err = fmt.Errorf("%q is neither a CIDR, an address nor a name", text)
		}
		if err != nil {
			c.add(path, "%s", err)
			continue
		}
		r := &rule{name: text, flow: flows}
		c.p.rules, c.p.texts = append(c.p.rules, r), append(c.p.texts, text)
		c.insert(c.p.shared, r, d)
	}
	c.p.digest = digestOf([]Rule{{Name: "allow", Destination: c.p.texts}}, nil)
	return c.p, c.problems
}

type compiler struct {
	p        *Policy
	lists    map[string][]netip.Prefix
	used     map[string]bool
	names    map[string]string // rule name to the path of its first rule
	combined map[*set]map[combination]group
	problems []Problem
	unlisted int // problems beyond mostProblems
	index    int // of the current rule or list
}

func newCompiler() *compiler {
	return &compiler{
		p:     &Policy{shared: newSet(), cluster: map[string]*set{}},
		lists: map[string][]netip.Prefix{}, used: map[string]bool{}, names: map[string]string{},
		combined: map[*set]map[combination]group{},
	}
}

func newSet() *set { return &set{names: map[string][]entry{}, groups: make([][]entry, 1)} }

func (c *compiler) add(path, format string, args ...any) { c.problem(path, false, format, args...) }

func (c *compiler) warn(path, format string, args ...any) { c.problem(path, true, format, args...) }

func (c *compiler) problem(path string, warning bool, format string, args ...any) {
	if len(c.problems) < mostProblems {
		c.problems = append(c.problems, Problem{c.index, path, warning, fmt.Sprintf(format, args...)})
		return
	}
	c.unlisted++
	if !warning { // an error must not get lost behind warnings
		c.problems[mostProblems-1] = Problem{c.index, path, warning, fmt.Sprintf(format, args...)}
	}
}

// listed returns the problems, and the number of those left out as the last one.
func (c *compiler) listed() []Problem {
	if c.unlisted == 0 {
		return c.problems
	}
	last := c.problems[len(c.problems)-1]
	return append(c.problems, Problem{last.Index, last.Path, true, fmt.Sprintf("and %d more", c.unlisted)})
}

func (c *compiler) readLists(lists []List) {
	for i, l := range lists {
		c.index = i
		path := fmt.Sprintf("lists[%d]", i)
		if err := checkName(l.Name); err != nil {
			c.add(path+".name", "%s", err)
			continue
		}
		if _, twice := c.lists[l.Name]; twice {
			c.add(path+".name", "there are two lists %s", l.Name)
			continue
		}
		if len(l.Ranges) == 0 {
			c.add(path+".ranges", "list %s is empty", l.Name)
		}
		ranges := make([]netip.Prefix, 0, len(l.Ranges))
		for j, text := range l.Ranges {
			p, err := parseRange(text)
			if err != nil {
				c.add(fmt.Sprintf("%s.ranges[%d]", path, j), "%s", err)
				continue
			}
			ranges = append(ranges, p)
		}
		c.lists[l.Name] = ranges
	}
}

func (c *compiler) unused(lists []List) {
	for i, l := range lists {
		c.index = i
		if !c.used[l.Name] {
			c.warn(fmt.Sprintf("lists[%d]", i), "no rule uses list %s", l.Name)
		}
	}
}

// checkName accepts names that fit into a log line, a metric label and a file name.
func checkName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("the name is missing")
	case len(s) > 63:
		return fmt.Errorf("the name has %d characters; at most 63 are accepted", len(s))
	case strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" || strings.Trim(s, "-._") == "":
		return fmt.Errorf("name %q may have small letters, digits, '-', '.' and '_'", s)
	}
	return nil
}

// rule compiles one rule; path is its place.
func (c *compiler) rule(path string, w Rule) {
	before := len(c.problems)
	if err := checkName(w.Name); err != nil {
		c.add(path+".name", "%s", err)
	} else if first, twice := c.names[w.Name]; twice {
		c.add(path+".name", "%s has the name %s already", first, w.Name)
	} else {
		c.names[w.Name] = path
	}
	r := &rule{name: w.Name, group: w.Group, deny: w.Deny, written: &w}
	if w.Group != "" {
		if err := checkName(w.Group); err != nil {
			c.add(path+".group", "%s", err)
		}
	}
	r.cluster = c.patterns(path+".clusters", w.Cluster)
	r.caller = c.patterns(path+".callers", w.Caller)
	r.egress = c.patterns(path+".egress", w.Egress)
	if r.flow = c.patterns(path+".flows", w.Flow); w.Flow == nil {
		r.flow = dials()
	}
	r.edge, r.back = flowSetOf(r.flow), backOf(w, r.flow)
	c.knownFlows(path+".flows", w)
	if r.uid = w.UID; w.UID != nil && len(w.UID) == 0 {
		c.add(path+".uids", "the list is empty: leave it out for any")
	}
	r.source = c.sources(path+".sources", w.Source)
	at := path + ".allow"
	if w.Deny {
		at = path + ".deny"
	}
	destinations := c.destinations(at, w.Destination)
	if r.edge != 0 {
		c.edgeRule(path, at, w, destinations)
	}
	if r.back && r.edge == 0 || slices.Contains(w.Flow, FlowBack) {
		c.backRule(path, at, r, destinations)
	}
	if slices.ContainsFunc(c.problems[min(before, len(c.problems)):], func(p Problem) bool { return !p.Warning }) {
		return
	}
	c.p.rules = append(c.p.rules, r)
	c.p.guards.add(r)
	for _, s := range c.sets(r) {
		for _, d := range destinations {
			c.insert(s, r, d)
		}
	}
}

func (c *compiler) patterns(path string, texts []string) patterns {
	if texts == nil {
		return nil
	}
	if len(texts) == 0 {
		c.add(path, "the list is empty: leave it out for any")
	}
	out := make(patterns, 0, len(texts))
	for i, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			c.add(fmt.Sprintf("%s[%d]", path, i), "%s", err)
			continue
		}
		if slices.Contains(out, p) {
			c.warn(fmt.Sprintf("%s[%d]", path, i), "%q is listed twice", text)
		}
		out = append(out, p)
	}
	return out
}

// knownFlows refuses patterns that match no existing flow. In an allow rule none matches FlowBack.
func (c *compiler) knownFlows(path string, w Rule) {
	for i, text := range w.Flow {
		p, err := parsePattern(text)
		known := flows()
		if p.wild && !w.Deny {
			known = slices.DeleteFunc(known, func(s string) bool { return s == FlowBack })
		}
		if err == nil && !p.among(known) {
			c.add(fmt.Sprintf("%s[%d]", path, i), "there is no flow %q; known: %s", text, strings.Join(flows(), ", "))
		}
	}
}

// fewSources is the number up to which a linear search is about as fast as a trie, which takes more
// memory.
const fewSources = 16

func (c *compiler) sources(path string, texts []string) sources {
	if texts == nil {
		return sources{}
	}
	if len(texts) == 0 {
		c.add(path, "the list is empty: leave it out for any")
	}
	all := make([]netip.Prefix, 0, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if name, ok := strings.CutPrefix(text, "@"); ok {
			all = append(all, c.list(at, name)...)
			continue
		}
		p, err := parseRange(text)
		if err != nil {
			c.add(at, "%s", err)
			continue
		}
		all = append(all, p)
	}
	if len(all) <= fewSources {
		return sources{few: all}
	}
	many := new(bart.Lite)
	for _, p := range all {
		many.Insert(p)
	}
	return sources{many: many}
}

func (c *compiler) list(path, name string) []netip.Prefix {
	ranges, ok := c.lists[name]
	if !ok {
		c.add(path, "there is no list %q", name)
	}
	c.used[name] = true
	return ranges
}

func (c *compiler) destinations(path string, texts []string) []destination {
	if len(texts) == 0 {
		c.add(path, "there is no destination: write \"*\" for any")
	}
	out := make([]destination, 0, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		d, err := parseDestination(text)
		if err != nil {
			c.add(at, "%s", err)
			continue
		}
		if slices.Contains(texts[:i], text) {
			c.warn(at, "%q is listed twice", text)
		}
		if d.list == "" {
			out = append(out, d)
			continue
		}
		for _, p := range c.list(at, d.list) {
			out = append(out, destination{prefix: p, ports: d.ports})
		}
	}
	return out
}
