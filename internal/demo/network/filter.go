// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
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
	family nftables.TableFamily // zero: inet, which is IPv4 and IPv6
	sets   []nftables.Set
	chains []Chain
	fresh  func() error // rebuilds the rules before they are applied

	mu      sync.Mutex
	on      bool
	counted uint64 // by earlier times that it was on
}

// Chain is one base chain of a filter, as a value.
type Chain struct {
	Name     string
	Type     nftables.ChainType
	Hook     *nftables.ChainHook
	Priority *nftables.ChainPriority
	Rules    [][]expr.Any // each as Rule makes it
	silent   bool         // its counters are not read: the library cannot read its rules
}

// Filter is a filter, off, of the chains. The table's name is its own on the host.
func (h *Host) Filter(table string, chains ...Chain) *Filter {
	return &Filter{host: h, table: table, chains: chains}
}

// Masquerade lets what leaves through the link by IPv4 bear the host's own
// address there, as a home router or a cloud NAT gateway does. Its count is the
// number of connections it translated. For other kinds of NAT see Translate.
func (h *Host) Masquerade(link string) *Filter {
	return &Filter{host: h, table: "masquerade-" + link, family: nftables.TableFamilyIPv4, chains: []Chain{{
		Name: "out", Type: nftables.ChainTypeNAT,
		Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		Rules: [][]expr.Any{Rule(Through(expr.MetaKeyOIFNAME, link), &expr.Masq{})},
	}}}
}

// DropNew drops every connection that begins on the far side of the link, to
// the host itself and through it, silently; but not where the host's own NAT
// sends it on (a full cone, a port mapping). Its count is the packets dropped.
func (h *Host) DropNew(link string) *Filter {
	fresh := expr.CtStateBitNEW | expr.CtStateBitINVALID
	match := slices.Concat(Through(expr.MetaKeyIIFNAME, link),
		anyBit(expr.CtKeySTATE, fresh), noBit(expr.CtKeySTATUS, sentOn))
	filter := &Filter{host: h, table: "drop-new-" + link}
	for name, hook := range map[string]*nftables.ChainHook{
		"in": nftables.ChainHookInput, "through": nftables.ChainHookForward,
	} {
		filter.chains = append(filter.chains, Chain{
			Name: name, Type: nftables.ChainTypeFilter, Hook: hook, Priority: nftables.ChainPriorityFilter,
			Rules: [][]expr.Any{Rule(match, Drop())},
		})
	}
	return filter
}

// Partition cuts the link silently: both directions are dropped, no reset and
// no ICMP error tells anybody, the carrier stays up. Its count is the packets
// dropped. Cut a link of a router, not of the host under test: a host notices
// that its own output is dropped (UDP senders get EPERM).
func (h *Host) Partition(link string) *Filter {
	return &Filter{host: h, table: "partition-" + link, chains: []Chain{{
		Name: "in", Type: nftables.ChainTypeFilter,
		Hook: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		Rules: [][]expr.Any{Rule(Through(expr.MetaKeyIIFNAME, link), Drop())},
	}, {
		Name: "out", Type: nftables.ChainTypeFilter,
		Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityMangle,
		Rules: [][]expr.Any{Rule(Through(expr.MetaKeyOIFNAME, link), Drop())},
	}}}
}

// Block drops what is forwarded from one link to another, silently. Its count is
// the packets dropped.
func (h *Host) Block(from, to string) *Filter {
	match := append(Through(expr.MetaKeyIIFNAME, from), Through(expr.MetaKeyOIFNAME, to)...)
	return h.Dropping(nftables.ChainHookForward, "block-"+from+"-"+to, match)
}

// BlockBoth is Block in both directions.
func (h *Host) BlockBoth(one, two string) *Filter {
	return h.Dropping(nftables.ChainHookForward, "between-"+one+"-"+two,
		append(Through(expr.MetaKeyIIFNAME, one), Through(expr.MetaKeyOIFNAME, two)...),
		append(Through(expr.MetaKeyIIFNAME, two), Through(expr.MetaKeyOIFNAME, one)...))
}

// Dropping is a filter that drops what meets one of the matches.
func (h *Host) Dropping(hook *nftables.ChainHook, table string, matches ...[]expr.Any) *Filter {
	f := &Filter{host: h, table: table, chains: []Chain{{
		Name: "drop", Type: nftables.ChainTypeFilter, Hook: hook, Priority: nftables.ChainPriorityFilter,
	}}}
	for _, match := range matches {
		f.chains[0].Rules = append(f.chains[0].Rules, Rule(match, Drop()))
	}
	return f
}

// Through matches what comes in or goes out through a link, by the key.
func Through(key expr.MetaKey, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}

// Layer4 matches a transport protocol.
func Layer4(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

// sentOn is the bit of a connection's status (IPS_DST_NAT) that says that the
// host sends it on to another address.
const sentOn = 1 << 5

// anyBit matches where conntrack has one of the bits set, noBit where it has none.
func anyBit(key expr.CtKey, bits uint32) []expr.Any { return ctBits(key, bits, expr.CmpOpNeq) }
func noBit(key expr.CtKey, bits uint32) []expr.Any  { return ctBits(key, bits, expr.CmpOpEq) }

func ctBits(key expr.CtKey, bits uint32, op expr.CmpOp) []expr.Any {
	zero := binaryutil.NativeEndian.PutUint32(0)
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: zero},
		&expr.Cmp{Op: op, Register: 1, Data: zero},
	}
}

// Drop discards packets silently.
func Drop() expr.Any { return &expr.Verdict{Kind: expr.VerdictDrop} }

// Rule is a match, a counter and what happens then.
func Rule(match []expr.Any, then expr.Any) []expr.Any {
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
	family := f.family
	if family == 0 {
		family = nftables.TableFamilyINet
	}
	return c, &nftables.Table{Name: f.table, Family: family}, nil
}

// On puts the rules in force, all at once. On when on changes nothing.
func (f *Filter) On() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on {
		return nil
	}
	if f.fresh != nil {
		if err := f.fresh(); err != nil {
			return err
		}
	}
	c, table, err := f.connect()
	if err != nil {
		return err
	}
	c.AddTable(table)
	for i, set := range f.sets {
		set.Table, set.ID = table, uint32(i+1) // an id of our own: the library's counter is shared by all labs
		if err := c.AddSet(&set, nil); err != nil {
			return fmt.Errorf("set %s of %s in %s: %w", set.Name, f.table, f.host.name, err)
		}
	}
	for _, want := range f.chains {
		made := c.AddChain(&nftables.Chain{
			Name: want.Name, Table: table, Type: want.Type, Hooknum: want.Hook, Priority: want.Priority,
		})
		for _, exprs := range want.Rules {
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
		if have.silent {
			continue
		}
		rules, err := c.GetRules(table, &nftables.Chain{Name: have.Name, Table: table})
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
