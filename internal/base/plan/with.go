// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
)

// With returns the state after a step, as in the kernel: it refuses what the kernel would
// refuse. The test twin of package kernel is built on it.
func (s State) With(step Step) (State, error) {
	out := s
	var err error
	switch o := step.On.(type) {
	case Link:
		out.Links, err = put(s.Links, step.Verb, o, func(l Link) string { return l.Name })
		if step.Verb == Remove && err == nil {
			out = out.without(o.Name)
		}
	case Address:
		out.Addresses, err = put(s.Addresses, step.Verb, o, func(a Address) Address { return a })
		err = errors.Join(err, s.needs(o.Link))
	case Route:
		out.Routes, err = put(s.Routes, step.Verb, o, Route.key)
		err = errors.Join(err, s.needs(o.Link))
	case Rule:
		out.Rules, err = put(s.Rules, step.Verb, o, func(r Rule) Rule { return r })
	case Sysctl:
		out.Sysctls, err = put(s.Sysctls, step.Verb, o, func(s Sysctl) string { return s.Path })
		err = errors.Join(err, s.needs(o.Link))
	case TableName:
		out.Tables, err = put(s.Tables, step.Verb, Table{Name: string(o)}, func(t Table) string { return t.Name })
	case SetName:
		out.Tables, err = s.inTable(o.Table, func(t *Table) (err error) {
			if used := t.uses("@" + o.Name); used && step.Verb == Remove {
				return fmt.Errorf("a chain looks at it")
			}
			t.Sets, err = put(t.Sets, step.Verb, Set{Name: o.Name, Family: o.Family}, func(s Set) string { return s.Name })
			return err
		})
	case Elements:
		out.Tables, err = s.inTable(o.Set.Table, func(t *Table) error { return t.elements(o) })
	case ChainIn:
		out.Tables, err = s.inTable(o.Table, func(t *Table) (err error) {
			if used := t.uses(o.Chain.Name); used && step.Verb == Remove {
				return fmt.Errorf("a chain jumps to it")
			}
			t.Chains, err = put(t.Chains, step.Verb, o.Chain, func(c Chain) string { return c.Name })
			return errors.Join(err, t.complete(o.Chain))
		})
	default:
		err = errors.New("nobody knows what it is on")
	}
	if err != nil {
		return s, fmt.Errorf("step %q: %w", step, err)
	}
	return out, nil
}

func put[T any, K comparable](in []T, v Verb, o T, key func(T) K) ([]T, error) {
	at := slices.IndexFunc(in, func(t T) bool { return key(t) == key(o) })
	if (at >= 0) == (v == Add) {
		return in, fmt.Errorf("it is there: %v", at >= 0)
	}
	out := slices.Clone(in)
	switch v {
	case Add:
		return append(out, o), nil
	case Change:
		out[at] = o
		return out, nil
	default:
		return slices.Delete(out, at, at+1), nil
	}
}

// needs refuses an object on a link that does not exist.
func (s State) needs(link string) error {
	if link != "" && !slices.ContainsFunc(s.Links, func(l Link) bool { return l.Name == link }) {
		return fmt.Errorf("there is no link %s", link)
	}
	return nil
}

// without returns the state after a link is removed, with everything on it.
func (s State) without(link string) State {
	s.Addresses = slices.DeleteFunc(slices.Clone(s.Addresses), func(a Address) bool { return a.Link == link })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r Route) bool { return r.Link == link })
	s.Sysctls = slices.DeleteFunc(slices.Clone(s.Sysctls), func(c Sysctl) bool { return c.Link == link })
	return s
}

func (s State) inTable(name string, f func(*Table) error) ([]Table, error) {
	at := slices.IndexFunc(s.Tables, func(t Table) bool { return t.Name == name })
	if at < 0 {
		return s.Tables, fmt.Errorf("there is no table %s", name)
	}
	out := slices.Clone(s.Tables)
	out[at].Sets, out[at].Chains = slices.Clone(out[at].Sets), slices.Clone(out[at].Chains)
	return out, f(&out[at])
}

// uses reports whether a line of the table names a set (with @) or a chain.
func (t *Table) uses(name string) bool {
	for _, c := range t.Chains {
		for _, l := range c.Lines {
			for _, term := range l {
				if term.Arg == name && (name[0] == '@' || term.Key == KeyJump) {
					return true
				}
			}
		}
	}
	return false
}

// complete refuses a chain that refers to a missing set or chain.
func (t *Table) complete(c Chain) error {
	for _, l := range c.Lines {
		for _, term := range l {
			set := len(term.Arg) > 0 && term.Arg[0] == '@'
			if set && !slices.ContainsFunc(t.Sets, func(s Set) bool { return "@"+s.Name == term.Arg }) {
				return fmt.Errorf("there is no set %s", term.Arg)
			}
			if term.Key == KeyJump && !slices.ContainsFunc(t.Chains, func(c Chain) bool { return c.Name == term.Arg }) {
				return fmt.Errorf("there is no chain %s", term.Arg)
			}
		}
	}
	return nil
}

func (t *Table) elements(e Elements) error {
	at := slices.IndexFunc(t.Sets, func(s Set) bool { return s.Name == e.Set.Name })
	if at < 0 {
		return errors.New("there is no such set")
	}
	left := make(map[Range]bool, len(e.Remove))
	for _, r := range e.Remove {
		left[r] = true
	}
	ranges := slices.DeleteFunc(slices.Clone(t.Sets[at].Ranges), func(r Range) bool {
		found := left[r]
		delete(left, r)
		return found
	})
	if len(left) > 0 {
		return errors.New("a range that leaves is not there")
	}
	ranges = append(ranges, e.Add...)
	slices.SortFunc(ranges, compareRanges)
	if !apart(ranges) {
		return errors.New("ranges overlap")
	}
	t.Sets[at].Ranges = ranges
	return nil
}
