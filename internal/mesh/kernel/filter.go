// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// marker is a chain that says that a table is ours: a table itself bears no mark.
const marker = "made-by-tombolo"

// hooks are the kernel's numbers of the hooks of family inet.
func hooks() map[string]*nftables.ChainHook {
	return map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
		"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
	}
}

// tables reads our table, if it is ours.
func (k *Kernel) tables(s *plan.State) error {
	if k.names.Filter == "" {
		return nil
	}
	chains, theirs, err := k.chains()
	if err != nil || theirs || chains == nil {
		return err
	}
	t := plan.Table{Name: k.names.Filter}
	sets, err := k.nft.GetSets(k.table())
	if err != nil {
		return reading("sets of nftables", err)
	}
	for _, set := range sets {
		read, err := k.set(set)
		if err != nil {
			return err
		}
		t.Sets = append(t.Sets, read)
	}
	for _, c := range chains {
		if c.Name == marker {
			continue
		}
		read, err := k.chain(c)
		if err != nil {
			return err
		}
		t.Chains = append(t.Chains, read)
	}
	s.Tables = append(s.Tables, t)
	return nil
}

// chains returns those of our table, not nil if it is there, and whether it belongs to another owner.
func (k *Kernel) chains() (out []*nftables.Chain, theirs bool, err error) {
	tables, err := k.nft.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, false, reading("tables of nftables", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == k.names.Filter }) {
		return nil, false, nil
	}
	all, err := k.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, false, reading("chains of nftables", err)
	}
	out = []*nftables.Chain{}
	for _, c := range all {
		if c.Table.Name == k.names.Filter {
			out = append(out, c)
		}
	}
	return out, !slices.ContainsFunc(out, func(c *nftables.Chain) bool { return c.Name == marker }), nil
}

func (k *Kernel) set(set *nftables.Set) (plan.Set, error) {
	out := plan.Set{Name: set.Name, Family: plan.IPv4}
	if set.KeyType.Bytes == 16 {
		out.Family = plan.IPv6
	}
	set.Table = k.table()
	elements, err := k.nft.GetSetElements(set)
	if err != nil {
		return plan.Set{}, reading("set "+set.Name+" of nftables", err)
	}
	out.Ranges = rangesOf(elements, out.Family)
	return out, nil
}

// rangesOf reads an interval set: a key where a range begins, another behind its
// last address. One without an end goes to the last address of all.
func rangesOf(elements []nftables.SetElement, f plan.Family) []plan.Range {
	type edge struct {
		at  netip.Addr
		end bool
	}
	edges := make([]edge, 0, len(elements))
	for _, e := range elements {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			edges = append(edges, edge{a, e.IntervalEnd})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return -1
		}
		return 1
	})
	var out []plan.Range
	for i, e := range edges {
		if e.end {
			continue
		}
		r := plan.Range{From: e.at, To: last(f)}
		if i+1 < len(edges) && edges[i+1].end {
			r.To = edges[i+1].at.Prev()
		}
		out = append(out, r)
	}
	return out
}

func last(f plan.Family) netip.Addr {
	if f == plan.IPv4 {
		return plan.RangeOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0)).To
	}
	return plan.RangeOf(netip.PrefixFrom(netip.IPv6Unspecified(), 0)).To
}

// edges are the elements of ranges.
func edges(ranges []plan.Range) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, 2*len(ranges))
	for _, r := range ranges {
		out = append(out, nftables.SetElement{Key: r.From.AsSlice()})
		if next := r.To.Next(); next.IsValid() {
			out = append(out, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

// head is a chain of the kernel without its lines.
func head(c *nftables.Chain) plan.Chain {
	out := plan.Chain{Name: c.Name, Type: string(c.Type)}
	if c.Hooknum == nil || c.Priority == nil || c.Type == "" {
		return out
	}
	out.Priority = int(*c.Priority)
	for name, hook := range hooks() {
		if *hook == *c.Hooknum {
			out.Hook = name
		}
	}
	return out
}

func (k *Kernel) chain(c *nftables.Chain) (plan.Chain, error) {
	return k.chainIn(k.table(), c)
}

func (k *Kernel) chainIn(t *nftables.Table, c *nftables.Chain) (plan.Chain, error) {
	out := head(c)
	rules, err := k.nft.GetRules(t, c)
	if err != nil {
		return plan.Chain{}, reading("chain "+c.Name+" of nftables", err)
	}
	for _, r := range rules {
		out.Lines = append(out.Lines, lineOf(r))
	}
	return out, nil
}

// Count is what met a line that counts, since its chain was written.
type Count struct {
	Chain   string
	Line    plan.Line
	Packets uint64
}

// Counts reads the lines of our table that count.
func (k *Kernel) Counts() ([]Count, error) {
	chains, theirs, err := k.chains()
	if err != nil || theirs {
		return nil, err
	}
	var out []Count
	for _, c := range chains {
		rules, err := k.nft.GetRules(k.table(), c)
		if err != nil {
			return nil, reading("chain "+c.Name+" of nftables", err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if n, ok := e.(*expr.Counter); ok {
					out = append(out, Count{c.Name, lineOf(r), n.Packets})
				}
			}
		}
	}
	return out, nil
}

// lineOf returns the line that a rule bears as its comment, if it does what that says.
func lineOf(r *nftables.Rule) plan.Line {
	text, ok := userdata.GetString(r.UserData, userdata.TypeComment)
	if !ok {
		return plan.Unknown()
	}
	line, err := plan.ParseLine(text)
	if err != nil {
		return plan.Unknown()
	}
	want, err := encode(line)
	if err != nil || !same(want, r.Exprs) {
		return plan.Unknown()
	}
	return line
}

// tableFault explains why a transaction was refused. Nothing of it is in force.
func (n Names) tableFault(what string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	err = fold(err)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fault.New(n.taken(), what).Whyf("another program has made a table of that name: %v", err).
			Hint("look at it with nft list table inet NAME, and remove it, or choose another name")
	case crowded(err):
		return fault.New(fault.CodeLimit, what).
			Whyf("the buffers of the socket to nftables are too small, and whether it is in force is not known: %v", err).
			Hint("it is compared and tried again in smaller parts; " +
				"raise net.core.wmem_max and net.core.rmem_max if this continues")
	case denied(err), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return unsupported(what, err)
	}
	return refused(what, err)
}
