// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Packet has the fields of a packet that lines of chains compare and change.
type Packet struct {
	Src, Dst    netip.Addr
	In, Out     string // links
	Mark, Conn  uint32 // mark of the packet and of its connection
	Established bool   // not the first packet of its connection
	Reply       bool   // it goes to the originator of its connection
	Related     bool   // it refers to a connection, such as an ICMP error
	DNAT        bool   // its destination was translated
	Local       bool   // its source is an address of this machine
	Proto       uint8
	Port        uint16 // of its destination
	Syn         bool
	IPsec       bool // it is about to be encrypted
	MSS         int
	// AboutSrc and AboutDst are of the packet that this one, an ICMP error, is about. Others have none.
	AboutSrc, AboutDst netip.Addr
}

// Verdict is what a chain does with a packet.
type Verdict struct {
	Do   string // accept, drop, masquerade, keep
	Line Line   // the line that decided; nil: the end of the chain
}

// Walk evaluates a chain for a packet, as the kernel does.
func (t Table) Walk(chain string, p *Packet) Verdict {
	v, done := t.walk(chain, p)
	if !done {
		return Verdict{Do: "accept"}
	}
	return v
}

func (t Table) walk(chain string, p *Packet) (Verdict, bool) {
	at := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == chain })
	if at < 0 {
		return Verdict{}, false
	}
lines:
	for _, line := range t.Chains[at].Lines {
		for _, term := range line {
			switch term.Key {
			case KeySetMark:
				p.Mark = p.Mark&^term.Mask | number(term.Arg)
			case KeySetConn:
				p.Conn = p.Conn&^term.Mask | number(term.Arg)
			case KeyMSS:
				p.MSS = min(p.MSS, int(number(term.Arg)))
			case KeyMoveSrc:
				p.Src = moved(p.Src, term.Arg)
			case KeyMoveDst:
				p.Dst = moved(p.Dst, term.Arg)
			case KeyMoveAboutSrc:
				p.AboutSrc = moved(p.AboutSrc, term.Arg)
			case KeyMoveAboutDst:
				p.AboutDst = moved(p.AboutDst, term.Arg)
			case KeyCount:
			case KeyJump:
				if v, done := t.walk(term.Arg, p); done {
					return v, true
				}
			case KeyDo:
				if term.Arg == "return" {
					return Verdict{}, false
				}
				return Verdict{term.Arg, line}, true
			default:
				if t.holds(term, p) == term.Not {
					continue lines
				}
			}
		}
	}
	return Verdict{}, false
}

func (t Table) holds(term Term, p *Packet) bool {
	switch term.Key {
	case KeyMark:
		return p.Mark&term.Mask == number(term.Arg)
	case KeyConn:
		return p.Conn&term.Mask == number(term.Arg)
	case KeyState:
		want := "new"
		switch {
		case p.Related:
			want = "related"
		case p.Established:
			want = "established"
		}
		return slices.Contains(strings.Split(term.Arg, ","), want)
	case KeyStatus:
		return p.DNAT
	case KeyWay:
		return (term.Arg == "reply") == p.Reply
	case KeyIn:
		return p.In == term.Arg
	case KeyOut:
		return p.Out == term.Arg
	case KeyFamily:
		return term.Arg == strconv.Itoa(int(FamilyOf(p.Dst)))
	case KeySrc4, KeySrc6, KeyDst4, KeyDst6:
		return t.at(term, p)
	case KeyAboutSrc4, KeyAboutSrc6:
		return within(term.Arg, p.AboutSrc)
	case KeyAboutDst4, KeyAboutDst6:
		return within(term.Arg, p.AboutDst)
	case KeyOwner:
		return p.Local
	case KeyProto:
		return number(term.Arg) == uint32(p.Proto)
	case KeyPort:
		first, last, ranged := strings.Cut(term.Arg, "-")
		if !ranged {
			last = first
		}
		return number(first) <= uint32(p.Port) && uint32(p.Port) <= number(last)
	case KeySyn:
		return p.Syn
	case KeyIPsec:
		return p.IPsec
	}
	return false
}

// at evaluates a condition on an address. The family must match even if the term is
// negated.
func (t Table) at(term Term, p *Packet) bool {
	a := p.Dst
	if strings.HasPrefix(string(term.Key), "saddr") {
		a = p.Src
	}
	if !strings.HasSuffix(string(term.Key), strconv.Itoa(int(FamilyOf(a)))) {
		return term.Not
	}
	if name, ok := strings.CutPrefix(term.Arg, "@"); ok {
		i := slices.IndexFunc(t.Sets, func(s Set) bool { return s.Name == name })
		if i < 0 {
			return false
		}
		_, in := Find(t.Sets[i].Ranges, a)
		return in
	}
	return within(term.Arg, a)
}

func within(text string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p.Contains(a)
}

// moved keeps the host bits of an address and takes the others from a range.
func moved(a netip.Addr, to string) netip.Addr {
	p, err := netip.ParsePrefix(to)
	if err != nil || p.Addr().BitLen() != a.BitLen() {
		return a
	}
	out, bytes := p.Addr().AsSlice(), a.AsSlice()
	for bit := p.Bits(); bit < a.BitLen(); bit++ {
		mask := byte(0x80) >> (bit % 8)
		out[bit/8] = out[bit/8]&^mask | bytes[bit/8]&mask
	}
	b, _ := netip.AddrFromSlice(out)
	return b
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 0, 32) // our own text
	return uint32(n)
}

// Lookup finds the rule that matches a packet and the route in its table. Without a rule
// it searches our routes in the main table.
func (s State) Lookup(p Packet, main int) (rule Rule, route Route, found bool) {
	rules := sorted(s.Rules, compareRules)
	for _, r := range append(rules, Rule{Family: FamilyOf(p.Dst), Table: main}) {
		if r.Family != FamilyOf(p.Dst) || p.Mark&r.Mask != r.Mark || r.In != "" && r.In != p.In {
			continue
		}
		if route, found = s.route(r.Table, p.Dst); found {
			return r, route, true
		}
		if r.Table == main { // routes of other programs decide
			break
		}
	}
	return Rule{}, Route{}, false
}

func (s State) route(table int, to netip.Addr) (best Route, found bool) {
	for _, r := range s.Routes {
		if r.Table != table || !r.To.Contains(to) {
			continue
		}
		if !found || r.To.Bits() > best.To.Bits() || r.To.Bits() == best.To.Bits() && r.Metric < best.Metric {
			best, found = r, true
		}
	}
	return best, found
}
