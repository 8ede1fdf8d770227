// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Numbers of the kernel that the libraries do not name.
const (
	statusDNAT = 1 << 5 // IPS_DST_NAT of enum ip_conntrack_status
	optionMSS  = 2      // TCP option (RFC 9293 section 3.2)
	flagSyn    = 0x02
	flagRst    = 0x04
	flagsAt    = 13 // of the TCP header
)

// encode makes the expressions of a line.
func encode(l plan.Line) ([]expr.Any, error) {
	if n := len(l.String()); n > planLine {
		return nil, fmt.Errorf("line %q has %d bytes, at most %d are possible", l, n, planLine)
	}
	var e encoder
	for _, t := range l {
		if err := e.term(t); err != nil {
			return nil, fmt.Errorf("line %q: %q: %w", l, t, err)
		}
	}
	return e.out, nil
}

// rtXfrm is NFT_RT_XFRM of nf_tables.h (Linux 4.20), which the library does not name.
const rtXfrm expr.RtKey = 4

type encoder struct {
	out    []expr.Any
	family string // that the packet has by now
	proto  byte
}

func (e *encoder) add(exprs ...expr.Any) { e.out = append(e.out, exprs...) }

func (e *encoder) term(t plan.Term) error {
	switch t.Key {
	case plan.KeyMark, plan.KeyConn, plan.KeySetMark, plan.KeySetConn:
		return e.mark(t)
	case plan.KeyState, plan.KeyStatus:
		return e.conn(t)
	case plan.KeyWay:
		return e.way(t)
	case plan.KeyIn:
		e.name(expr.MetaKeyIIFNAME, t)
	case plan.KeyOut:
		e.name(expr.MetaKeyOIFNAME, t)
	case plan.KeyFamily:
		return e.ofFamily(t.Arg)
	case plan.KeySrc4, plan.KeySrc6, plan.KeyDst4, plan.KeyDst6:
		return e.address(t)
	case plan.KeyAboutSrc4, plan.KeyAboutSrc6, plan.KeyAboutDst4, plan.KeyAboutDst6:
		return e.about(t)
	case plan.KeyOwner:
		e.add(&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
			compare(t, binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)))
	case plan.KeyProto:
		n, err := strconv.ParseUint(t.Arg, 10, 8)
		e.ofProto(byte(n))
		return err
	case plan.KeyPort:
		return e.port(t)
	case plan.KeySyn:
		e.ofProto(unix.IPPROTO_TCP)
		e.add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{flagSyn | flagRst}, Xor: []byte{0}},
			compare(t, []byte{flagSyn}))
	case plan.KeyIPsec:
		e.add(&expr.Rt{Register: 1, Key: rtXfrm}, compare(t, []byte{1}))
	case plan.KeyMSS:
		return e.clamp(t)
	case plan.KeyMap:
		return e.mapTo(t)
	case plan.KeyMoveSrc, plan.KeyMoveDst:
		return e.move(t)
	case plan.KeyMoveAboutSrc, plan.KeyMoveAboutDst:
		return e.moveAbout(t)
	default:
		return e.act(t)
	}
	return nil
}

func (e *encoder) act(t plan.Term) error {
	switch {
	case t.Key == plan.KeyCount:
		e.add(&expr.Counter{})
	case t.Key == plan.KeyJump:
		e.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: t.Arg})
	case t.Key == plan.KeyDo && t.Arg == "accept":
		e.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case t.Key == plan.KeyDo && t.Arg == "drop":
		e.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case t.Key == plan.KeyDo && t.Arg == "return":
		e.add(&expr.Verdict{Kind: expr.VerdictReturn})
	case t.Key == plan.KeyDo && t.Arg == "masquerade":
		e.add(&expr.Masq{})
	case t.Key == plan.KeyDo && t.Arg == "keep":
		return e.keep()
	default:
		return fmt.Errorf("nothing is known of it")
	}
	return nil
}

func compare(t plan.Term, data []byte) *expr.Cmp {
	op := expr.CmpOpEq
	if t.Not {
		op = expr.CmpOpNeq
	}
	return &expr.Cmp{Op: op, Register: 1, Data: data}
}

func native(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

func masked(keep, set uint32) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(keep), Xor: native(set)}
}

func (e *encoder) mark(t plan.Term) error {
	n, err := strconv.ParseUint(t.Arg, 0, 32)
	if err != nil || t.Mask == 0 || uint32(n)&^t.Mask != 0 {
		return fmt.Errorf("it is no number within a mask")
	}
	var load, store expr.Any = &expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1}
	if t.Key == plan.KeyConn || t.Key == plan.KeySetConn {
		load, store = &expr.Ct{Key: expr.CtKeyMARK, Register: 1},
			&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1}
	}
	e.add(load)
	if t.Key == plan.KeyMark || t.Key == plan.KeyConn {
		e.add(masked(t.Mask, 0), compare(t, native(uint32(n))))
		return nil
	}
	e.add(masked(^t.Mask, uint32(n)), store)
	return nil
}

func (e *encoder) conn(t plan.Term) error {
	key, bits := expr.CtKeySTATE, uint32(0)
	known := map[string]uint32{"new": expr.CtStateBitNEW, "established": expr.CtStateBitESTABLISHED,
		"related": expr.CtStateBitRELATED}
	if t.Key == plan.KeyStatus {
		key, known = expr.CtKeySTATUS, map[string]uint32{"dnat": statusDNAT}
	}
	for _, name := range strings.Split(t.Arg, ",") {
		if known[name] == 0 {
			return fmt.Errorf("there is no state %q", name)
		}
		bits |= known[name]
	}
	t.Not = !t.Not // one of the bits is set: the result is not 0
	e.add(&expr.Ct{Key: key, Register: 1}, masked(bits, 0), compare(t, native(0)))
	return nil
}

// way compares enum ip_conntrack_dir. It does not hold for a packet of no connection,
// neither with not: the kernel leaves the line.
func (e *encoder) way(t plan.Term) error {
	at := slices.Index([]string{"original", "reply"}, t.Arg)
	if at < 0 {
		return fmt.Errorf("there is no way %q", t.Arg)
	}
	e.add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, compare(t, []byte{byte(at)}))
	return nil
}

func (e *encoder) name(key expr.MetaKey, t plan.Term) {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, t.Arg)
	e.add(&expr.Meta{Key: key, Register: 1}, compare(t, name))
}

func (e *encoder) ofFamily(f string) error {
	numbers := map[string]byte{"4": unix.NFPROTO_IPV4, "6": unix.NFPROTO_IPV6}
	n, known := numbers[f]
	if !known || e.family != "" && e.family != f {
		return fmt.Errorf("the family is not %q", f)
	}
	if e.family == "" {
		e.add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{n}})
	}
	e.family = f
	return nil
}

func (e *encoder) ofProto(n byte) {
	if e.proto == n {
		return
	}
	e.proto = n
	e.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{n}})
}

func (e *encoder) address(t plan.Term) error {
	key := string(t.Key)
	if err := e.ofFamily(key[len(key)-1:]); err != nil {
		return err
	}
	load := addressOf(t.Key)
	e.add(load)
	if name, ok := strings.CutPrefix(t.Arg, "@"); ok {
		e.add(&expr.Lookup{SourceRegister: 1, SetName: name, Invert: t.Not})
		return nil
	}
	return e.inRange(t, load.Len)
}

// inRange compares what is loaded with a range.
func (e *encoder) inRange(t plan.Term, size uint32) error {
	p, err := netip.ParsePrefix(t.Arg)
	if err != nil || p != p.Masked() || p.Addr().BitLen() != int(size)*8 {
		return fmt.Errorf("it is no range of that family")
	}
	mask := []byte(ipnet(p).Mask)
	e.add(&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		compare(t, p.Addr().AsSlice()))
	return nil
}

// addressOf loads an address of the header.
func addressOf(k plan.Key) *expr.Payload {
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Len: 4}
	switch k {
	case plan.KeySrc4:
		load.Offset = 12
	case plan.KeyDst4:
		load.Offset = 16
	case plan.KeySrc6:
		load.Offset, load.Len = 8, 16
	case plan.KeyDst6:
		load.Offset, load.Len = 24, 16
	}
	return load
}

func (e *encoder) port(t plan.Term) error {
	first, last, ranged := strings.Cut(t.Arg, "-")
	if !ranged {
		last = first
	}
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || a > b || e.proto == 0 || t.Not {
		return fmt.Errorf("it is no port of a protocol")
	}
	big := binaryutil.BigEndian
	e.add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: big.PutUint16(uint16(a))},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: big.PutUint16(uint16(b))})
	return nil
}

// clamp lowers the option where it is greater; it never raises it.
func (e *encoder) clamp(t plan.Term) error {
	n, err := strconv.ParseUint(t.Arg, 10, 16)
	if err != nil || e.proto != unix.IPPROTO_TCP {
		return fmt.Errorf("it is no segment size of TCP")
	}
	size := binaryutil.BigEndian.PutUint16(uint16(n))
	e.add(&expr.Exthdr{DestRegister: 1, Type: optionMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
		&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: size},
		&expr.Immediate{Register: 1, Data: size},
		&expr.Exthdr{SourceRegister: 1, Type: optionMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt})
	return nil
}

// mapTo keeps the host bits of a destination (NF_NAT_RANGE_NETMAP, since Linux 5.8).
func (e *encoder) mapTo(t plan.Term) error {
	p, err := netip.ParsePrefix(t.Arg)
	if err != nil || p != p.Masked() || t.Not || plan.FamilyOf(p.Addr()).String() != "ipv"+e.family {
		return fmt.Errorf("it is no range of the destination's family")
	}
	family, err := e.familyNumber()
	if err != nil {
		return err
	}
	r := plan.RangeOf(p)
	e.add(&expr.Immediate{Register: 1, Data: r.From.AsSlice()}, &expr.Immediate{Register: 2, Data: r.To.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegAddrMax: 2, Prefix: true})
	return nil
}

// familyNumber is the kernel's number of the family that the packet has by now.
func (e *encoder) familyNumber() (uint32, error) {
	numbers := map[string]uint32{"4": unix.NFPROTO_IPV4, "6": unix.NFPROTO_IPV6}
	if numbers[e.family] == 0 {
		return 0, fmt.Errorf("no condition says which family it is for")
	}
	return numbers[e.family], nil
}

// keep translates the source to itself, so that no later chain translates it.
func (e *encoder) keep() error {
	family, err := e.familyNumber()
	if err != nil {
		return err
	}
	e.add(addressOf(plan.Key("saddr"+e.family)), &expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: 1,
		RegAddrMax: 1})
	return nil
}

// same reports whether the kernel has the expressions that we would write.
func same(want, have []expr.Any) bool {
	want = slices.DeleteFunc(slices.Clone(want), func(e expr.Any) bool {
		_, is := e.(*expr.Rt) // which the library does not read; the comparison behind it is there
		return is
	})
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if _, counts := have[i].(*expr.Counter); counts {
			if _, counts := want[i].(*expr.Counter); !counts {
				return false
			}
			continue
		}
		if ct, ok := have[i].(*expr.Ct); ok && ct.Register == 0 {
			ct.Register, ct.SourceRegister = 1, true // the library does not read where a store comes from
		}
		a, err1 := expr.Marshal(byte(nftables.TableFamilyINet), want[i])
		b, err2 := expr.Marshal(byte(nftables.TableFamilyINet), have[i])
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			return false
		}
	}
	return true
}
