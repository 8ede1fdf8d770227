// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
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
	chains []chain
	fresh  func() error // makes the rules anew before they are put in force

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
	silent   bool // its counters are not read: the library cannot read its rules
}

// Masquerade lets what leaves through the link by IPv4 bear the host's own
// address there, as a home router or a cloud NAT gateway does. Its count is the
// number of connections it translated. For other kinds of NAT see Translate.
func (h *Host) Masquerade(link string) *Filter {
	return &Filter{host: h, table: "masquerade-" + link, family: nftables.TableFamilyIPv4, chains: []chain{{
		name: "out", kind: nftables.ChainTypeNAT,
		hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityNATSource,
		rules: [][]expr.Any{rule(through(expr.MetaKeyOIFNAME, link), &expr.Masq{})},
	}}}
}

// DropNew drops every connection that begins on the far side of the link, to
// the host itself and through it, silently; but not where the host's own NAT
// sends it on (a full cone, a port mapping). Its count is the packets dropped.
func (h *Host) DropNew(link string) *Filter {
	fresh := expr.CtStateBitNEW | expr.CtStateBitINVALID
	match := slices.Concat(through(expr.MetaKeyIIFNAME, link),
		anyBit(expr.CtKeySTATE, fresh), noBit(expr.CtKeySTATUS, sentOn))
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

// CutIn drops what comes in through the link, CutOut what goes out: halves of a
// Partition.
func (h *Host) CutIn(link string) *Filter {
	return &Filter{host: h, table: "cut-in-" + link, chains: h.Partition(link).chains[:1]}
}

// CutOut is the other half; see CutIn.
func (h *Host) CutOut(link string) *Filter {
	return &Filter{host: h, table: "cut-out-" + link, chains: h.Partition(link).chains[1:]}
}

// Block drops what is forwarded from one link to another, silently. Its count is
// the packets dropped.
func (h *Host) Block(from, to string) *Filter {
	match := append(through(expr.MetaKeyIIFNAME, from), through(expr.MetaKeyOIFNAME, to)...)
	return h.dropping(nftables.ChainHookForward, "block-"+from+"-"+to, match)
}

// BlockUDP drops UDP that is forwarded in or out through the link, as strict
// company networks do. Its count is the packets dropped.
func (h *Host) BlockUDP(link string) *Filter {
	return h.dropping(nftables.ChainHookForward, "no-udp-"+link,
		append(through(expr.MetaKeyOIFNAME, link), layer4(unix.IPPROTO_UDP)...),
		append(through(expr.MetaKeyIIFNAME, link), layer4(unix.IPPROTO_UDP)...))
}

// BlockFamily drops one IP version, 4 or 6, where it is forwarded in or out
// through the link: a network that announces it and does not carry it. Its count
// is the packets dropped.
func (h *Host) BlockFamily(link string, version int) *Filter {
	proto := byte(unix.NFPROTO_IPV4)
	if version == 6 {
		proto = unix.NFPROTO_IPV6
	}
	return h.dropping(nftables.ChainHookForward, fmt.Sprintf("no-ipv%d-%s", version, link),
		append(layer3(proto), through(expr.MetaKeyOIFNAME, link)...),
		append(layer3(proto), through(expr.MetaKeyIIFNAME, link)...))
}

// BlockForward drops everything that is forwarded in or out through the link, so
// that only the host's own sockets pass: what a Proxy on it lets through. Its
// count is the packets dropped.
func (h *Host) BlockForward(link string) *Filter {
	return h.dropping(nftables.ChainHookForward, "no-way-"+link,
		through(expr.MetaKeyOIFNAME, link), through(expr.MetaKeyIIFNAME, link))
}

// HideTooBig keeps the host from telling senders that their packets are too big
// for its next link. With a smaller MTU there, this is the black hole that path
// MTU discovery falls into. Its count is the words it kept back.
func (h *Host) HideTooBig() *Filter {
	v4 := slices.Concat(layer3(unix.NFPROTO_IPV4), layer4(unix.IPPROTO_ICMP), transport(0, []byte{3, 4}))
	v6 := slices.Concat(layer3(unix.NFPROTO_IPV6), layer4(unix.IPPROTO_ICMPV6), transport(0, []byte{2}))
	return h.dropping(nftables.ChainHookOutput, "hide-too-big", v4, v6)
}

// ClampMSS lets the TCP connections that the host forwards fit into an MTU, as
// home routers do: they go on where UDP meets a black hole. Its count is the
// packets that bear the option.
func (h *Host) ClampMSS(mtu int) *Filter {
	clamp := func(proto byte, headers int) []expr.Any {
		syn := []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x02}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(mtu - headers))},
		}
		// The kernel lowers the size and never raises it.
		const maxSegment = 2
		return rule(slices.Concat(layer3(proto), layer4(unix.IPPROTO_TCP), syn), &expr.Exthdr{
			SourceRegister: 1, Op: expr.ExthdrOpTcpopt, Type: maxSegment, Offset: 2, Len: 2})
	}
	return &Filter{host: h, table: "clamp-mss", chains: []chain{{
		name: "through", kind: nftables.ChainTypeFilter,
		hook: nftables.ChainHookForward, priority: nftables.ChainPriorityMangle,
		rules: [][]expr.Any{clamp(unix.NFPROTO_IPV4, 40), clamp(unix.NFPROTO_IPV6, 60)},
	}}}
}

// Swallow drops what comes to the host for a network of IPv4, before it is routed,
// silently: a place where many could be, and nobody answers. Its count is the packets.
func (h *Host) Swallow(network netip.Prefix) *Filter {
	f := h.dropping(nftables.ChainHookPrerouting, "swallow-"+network.Addr().String(), toNetwork(network))
	f.chains[0].priority = nftables.ChainPriorityRaw
	return f
}

// toNetwork matches a destination of IPv4.
func toNetwork(network netip.Prefix) []expr.Any {
	const destination = 16 // in the header
	return append(layer3(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(network.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: network.Masked().Addr().AsSlice()})
}

// dropping is a filter that drops what meets one of the matches.
func (h *Host) dropping(hook *nftables.ChainHook, table string, matches ...[]expr.Any) *Filter {
	f := &Filter{host: h, table: table, chains: []chain{{
		name: "drop", kind: nftables.ChainTypeFilter, hook: hook, priority: nftables.ChainPriorityFilter,
	}}}
	for _, match := range matches {
		f.chains[0].rules = append(f.chains[0].rules, rule(match, drop()))
	}
	return f
}

func through(key expr.MetaKey, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}

// layer3 matches one IP version, in tables of both.
func layer3(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

func layer4(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

// transport matches bytes of the header behind that of IP.
func transport(offset uint32, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
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
		if have.silent {
			continue
		}
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
