// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Filter is a set of nftables rules of one host that can be switched on and
// off. Every rule counts its packets.
type Filter struct {
	host   *Host
	table  string
	chains []chain

	mu      sync.Mutex
	on      bool
	counted uint64 // by earlier times that it was on
}

// chain is one base chain of a filter, as a value.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    [][]expr.Any
}

// Masquerade lets what leaves through the link bear the host's own address
// there, as a home router or a cloud NAT gateway does. Its count is the number
// of connections it translated.
func (h *Host) Masquerade(link string) *Filter {
	return &Filter{host: h, table: "masquerade-" + link, chains: []chain{{
		name: "out", kind: nftables.ChainTypeNAT,
		hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityNATSource,
		rules: [][]expr.Any{rule(through(expr.MetaKeyOIFNAME, link), &expr.Masq{})},
	}}}
}

// DropNew drops every connection that begins on the far side of the link, to
// the host itself and through it, silently. Its count is the packets dropped.
func (h *Host) DropNew(link string) *Filter {
	fresh := expr.CtStateBitNEW | expr.CtStateBitINVALID
	match := append(through(expr.MetaKeyIIFNAME, link),
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(fresh), Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	)
	filter := &Filter{host: h, table: "drop-new-" + link}
	for name, hook := range map[string]*nftables.ChainHook{
		"in": nftables.ChainHookInput, "through": nftables.ChainHookForward,
	} {
		filter.chains = append(filter.chains, chain{
			name: name, kind: nftables.ChainTypeFilter, hook: hook, priority: nftables.ChainPriorityFilter,
			rules: [][]expr.Any{rule(match, drop())},
		})
	}
	return filter
}

// Partition cuts the link silently: both directions are dropped, no reset and
// no ICMP error tells anybody, the carrier stays up. Its count is the packets
// dropped. Cut a link of a router, not of the host under test: a host notices
// that its own output is dropped (UDP senders get EPERM).
func (h *Host) Partition(link string) *Filter {
	return &Filter{host: h, table: "partition-" + link, chains: []chain{{
		name: "in", kind: nftables.ChainTypeFilter,
		hook: nftables.ChainHookPrerouting, priority: nftables.ChainPriorityRaw,
		rules: [][]expr.Any{rule(through(expr.MetaKeyIIFNAME, link), drop())},
	}, {
		name: "out", kind: nftables.ChainTypeFilter,
		hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityMangle,
		rules: [][]expr.Any{rule(through(expr.MetaKeyOIFNAME, link), drop())},
	}}}
}

func through(key expr.MetaKey, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}

func drop() expr.Any { return &expr.Verdict{Kind: expr.VerdictDrop} }

// rule is a match, a counter and what happens then.
func rule(match []expr.Any, then expr.Any) []expr.Any {
	full := append([]expr.Any(nil), match...)
	return append(full, &expr.Counter{}, then)
}

func (f *Filter) connect() (*nftables.Conn, *nftables.Table, error) {
	if !f.host.ns.IsOpen() {
		return nil, nil, fmt.Errorf("%s of %s: only hosts with a namespace have filters", f.table, f.host.name)
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(f.host.ns)))
	if err != nil {
		return nil, nil, fmt.Errorf("opening nftables in %s: %w", f.host.name, err)
	}
	return c, &nftables.Table{Name: f.table, Family: nftables.TableFamilyINet}, nil
}

// On puts the rules in force, all at once. On when on changes nothing.
func (f *Filter) On() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on {
		return nil
	}
	c, table, err := f.connect()
	if err != nil {
		return err
	}
	c.AddTable(table)
	for _, want := range f.chains {
		made := c.AddChain(&nftables.Chain{
			Name: want.name, Table: table, Type: want.kind, Hooknum: want.hook, Priority: want.priority,
		})
		for _, exprs := range want.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: made, Exprs: exprs})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("putting %s in force in %s: %w (does the kernel have nf_tables?)",
			f.table, f.host.name, err)
	}
	f.on = true
	return nil
}

// Off takes the rules away. Off when off changes nothing.
func (f *Filter) Off() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return nil
	}
	last, err := f.inForce()
	if err != nil {
		return err
	}
	c, table, err := f.connect()
	if err != nil {
		return err
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("lifting %s in %s: %w", f.table, f.host.name, err)
	}
	f.on = false
	f.counted += last
	return nil
}

// Packets returns how many packets met the rules since the filter was made.
func (f *Filter) Packets() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return f.counted, nil
	}
	now, err := f.inForce()
	return f.counted + now, err
}

// inForce reads the counters of the rules as the kernel has them.
func (f *Filter) inForce() (uint64, error) {
	c, table, err := f.connect()
	if err != nil {
		return 0, err
	}
	var packets uint64
	for _, have := range f.chains {
		rules, err := c.GetRules(table, &nftables.Chain{Name: have.name, Table: table})
		if err != nil {
			return 0, fmt.Errorf("reading the counters of %s in %s: %w", f.table, f.host.name, err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					packets += counter.Packets
				}
			}
		}
	}
	return packets, nil
}
