// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Where things are in headers: RFC 791, 8200, 792 and 4443.
const (
	sumAt4    = 10 // the checksum of an IPv4 header
	flowAt6   = 2  // the lower half of the flow label of an IPv6 header
	icmpSumAt = 2
	aboutAt   = 8 // in an ICMP error: the packet that it is about
)

// move changes the packet itself, with the checksums of its header and of what it carries (RFC 1624).
//
// An IPv6 header has no checksum, and the library says which other ones are to follow only where the header's does. So
// one is named where there is none: it changes the flow label, which is put back.
func (e *encoder) move(t plan.Term) error {
	load := addressOf(plan.Key(strings.TrimPrefix(string(t.Key), "move-") + e.family))
	store := *load
	store.CsumType, store.CsumOffset, store.CsumFlags = expr.CsumTypeInet, sumAt4, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR
	if e.family != "6" {
		return e.rewrite(t, load, &store)
	}
	store.CsumOffset = flowAt6
	flow := expr.Payload{DestRegister: 2, Base: load.Base, Offset: flowAt6, Len: 2}
	e.add(&flow)
	if err := e.rewrite(t, load, &store); err != nil {
		return err
	}
	e.add(&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 2, Base: flow.Base, Offset: flow.Offset,
		Len: flow.Len})
	return nil
}

// about compares an address of the packet that an ICMP error is about.
func (e *encoder) about(t plan.Term) error {
	key := strings.TrimPrefix(string(t.Key), "about-")
	if err := e.ofFamily(key[len(key)-1:]); err != nil {
		return err
	}
	// Of IPv4 3 (unreachable, too big) and 11 (time exceeded), of IPv6 all below 128.
	proto, mask, kind := byte(unix.IPPROTO_ICMP), byte(0xf7), byte(3)
	if e.family == "6" {
		proto, mask, kind = unix.IPPROTO_ICMPV6, 0x80, 0
	}
	e.ofProto(proto)
	e.add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}})
	load := inError(plan.Key(key))
	e.add(load)
	return e.inRange(t, load.Len)
}

// moveAbout changes the packet that an ICMP error is about. Of IPv4 its header's checksum changes with it, so the sum
// of both stays as it is, and with it that of the error. Nobody looks at the checksum of what that packet carries: an
// error may end before it.
func (e *encoder) moveAbout(t plan.Term) error {
	load := inError(plan.Key(strings.TrimPrefix(string(t.Key), "move-about-") + e.family))
	store := *load
	store.CsumType, store.CsumOffset = expr.CsumTypeInet, aboutAt+sumAt4
	if e.family == "6" {
		store.CsumOffset = icmpSumAt
	}
	return e.rewrite(t, load, &store)
}

// inError loads an address of the packet that an ICMP error is about.
func inError(k plan.Key) *expr.Payload {
	load := addressOf(k)
	load.Base, load.Offset = expr.PayloadBaseTransportHeader, load.Offset+aboutAt
	return load
}

// rewrite puts an address of a range in the place of the one that is loaded, with the same host bits.
func (e *encoder) rewrite(t plan.Term, load, store *expr.Payload) error {
	p, err := netip.ParsePrefix(t.Arg)
	if err != nil || p != p.Masked() || t.Not || plan.FamilyOf(p.Addr()).String() != "ipv"+e.family {
		return fmt.Errorf("it is no range of the address's family")
	}
	host := []byte(ipnet(p).Mask)
	for i := range host {
		host[i] = ^host[i]
	}
	store.OperationType, store.SourceRegister, store.DestRegister = expr.PayloadWrite, 1, 0
	e.add(load, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: load.Len, Mask: host, Xor: p.Addr().AsSlice()},
		store)
	return nil
}
