// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// filterSteps counts the steps on nftables at the beginning.
func filterSteps(steps []plan.Step) int {
	n := slices.IndexFunc(steps, func(s plan.Step) bool {
		switch s.On.(type) {
		case plan.TableName, plan.SetName, plan.Elements, plan.ChainIn:
			return false
		}
		return true
	})
	if n < 0 {
		return len(steps)
	}
	return n
}

// filter does steps on nftables. A large set comes in several transactions: between
// two of them everything is in force that was before the first or will be after the last.
func (k *Kernel) filter(steps []plan.Step) error {
	chains, theirs, err := k.chains()
	if err != nil {
		return err
	}
	if theirs {
		return k.foreignTable()
	}
	t := transaction{k: k, table: k.table(), heads: map[string]plan.Chain{}}
	for _, c := range chains {
		if c.Name != marker {
			t.heads[c.Name] = head(c)
		}
	}
	for _, s := range steps { // what is queued cannot be taken back
		if err := t.possible(s); err != nil {
			return fault.New(fault.CodeInternal, s.String()).Because(err)
		}
	}
	for i, s := range steps {
		if err := t.step(s); err != nil {
			return fault.New(fault.CodeInternal, s.String()).Because(err)
		}
		if t.ranges >= k.most || i == len(steps)-1 {
			if err := t.commit(); err != nil {
				return k.names.tableFault(fmt.Sprintf("changing table inet %s (%d steps)", k.names.Filter, len(steps)), err)
			}
		}
	}
	return nil
}

// possible refuses a step that cannot be put into messages.
func (t *transaction) possible(s plan.Step) error {
	o, ok := s.On.(plan.ChainIn)
	if !ok {
		return nil
	}
	if _, known := hooks()[o.Chain.Hook]; !known && o.Chain.Hook != "" {
		return fmt.Errorf("there is no hook %q", o.Chain.Hook)
	}
	for _, l := range o.Chain.Lines {
		if _, err := encode(l); err != nil {
			return err
		}
	}
	return nil
}

// all queues steps of which each is possible.
func (t *transaction) all(steps []plan.Step) error {
	for _, s := range steps {
		if err := t.possible(s); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if err := t.step(s); err != nil {
			return err
		}
	}
	return nil
}

type transaction struct {
	k        *Kernel
	table    *nftables.Table
	heads    map[string]plan.Chain // of chains in the kernel
	messages int
	ranges   int
}

func (t *transaction) commit() error {
	err := t.k.nft.Flush()
	t.k.sent.Transactions++
	t.k.sent.Messages += t.messages
	t.k.sent.Ranges += t.ranges
	t.messages, t.ranges = 0, 0
	if err != nil {
		t.k.again(err)
	}
	return err
}

func (t *transaction) step(s plan.Step) error {
	switch o := s.On.(type) {
	case plan.TableName:
		return t.setTable(s.Verb, string(o))
	case plan.SetName:
		return t.setSet(s.Verb, o)
	case plan.Elements:
		return t.elements(o)
	case plan.ChainIn:
		return t.chain(s.Verb, o.Chain)
	}
	return fmt.Errorf("it is not on nftables")
}

func (t *transaction) setTable(v plan.Verb, name string) error {
	if name != t.table.Name {
		return fmt.Errorf("our table is %s", t.table.Name)
	}
	t.messages++
	if v == plan.Remove {
		t.k.nft.DelTable(t.table)
		return nil
	}
	t.k.nft.CreateTable(t.table) // fails where another program was faster
	t.messages++
	t.k.nft.AddChain(&nftables.Chain{Name: marker, Table: t.table})
	return nil
}

func (t *transaction) nftSet(s plan.SetName) *nftables.Set {
	out := &nftables.Set{Table: t.table, Name: s.Name, Interval: true, KeyType: nftables.TypeIPAddr}
	if s.Family == plan.IPv6 {
		out.KeyType = nftables.TypeIP6Addr
	}
	return out
}

func (t *transaction) setSet(v plan.Verb, s plan.SetName) error {
	t.messages++
	if v == plan.Remove {
		t.k.nft.DelSet(t.nftSet(s))
		return nil
	}
	return t.k.nft.AddSet(t.nftSet(s), nil)
}

// elements changes a set: first what leaves, for what comes may overlap it.
func (t *transaction) elements(e plan.Elements) error {
	set := t.nftSet(e.Set)
	for _, do := range []struct {
		ranges []plan.Range
		send   func(*nftables.Set, []nftables.SetElement) error
	}{{e.Remove, t.k.nft.SetDeleteElements}, {e.Add, t.k.nft.SetAddElements}} {
		for part := range slices.Chunk(do.ranges, limit.PlanElements) {
			t.messages++
			t.ranges += len(part)
			if err := do.send(set, edges(part)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *transaction) chain(v plan.Verb, c plan.Chain) error {
	chain := &nftables.Chain{Name: c.Name, Table: t.table}
	if c.Hook != "" {
		chain.Hooknum, chain.Priority = hooks()[c.Hook], nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority))
		chain.Type = nftables.ChainType(c.Type)
	}
	have, there := t.heads[c.Name]
	if there {
		t.messages++
		t.k.nft.FlushChain(chain)
	}
	moved := there && !have.Equal(headOf(c)) // the kernel moves no chain
	if v == plan.Remove || moved {
		t.messages++
		t.k.nft.DelChain(chain)
		delete(t.heads, c.Name)
	}
	if v == plan.Remove {
		return nil
	}
	if moved || !there {
		t.messages++
		t.k.nft.AddChain(chain)
		t.heads[c.Name] = headOf(c)
	}
	for _, l := range c.Lines {
		exprs, err := encode(l)
		if err != nil {
			return err
		}
		t.messages++
		t.k.nft.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: exprs,
			UserData: userdata.AppendString(nil, userdata.TypeComment, l.String())})
	}
	return nil
}

// headOf is a chain without its lines.
func headOf(c plan.Chain) plan.Chain { c.Lines = nil; return c }
