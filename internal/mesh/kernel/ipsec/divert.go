// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Divert has packets for some ranges, which are routed into the link as all of the mesh are, leave by the link of
// another engine, and what that one decrypts come in by the link. So routes, rules and filters know one link alone.
// Where there is no Divert, or its other link is gone, the packets meet the policy that blocks, or are dropped.
type Divert struct {
	nl       *netlink.Handle
	from, to netlink.Link

	mu         sync.Mutex
	away, stay []netip.Prefix
	have       map[diversion]uint32 // with the handle of its filter
	last       uint32               // handle
}

// diversion is a filter of the link: packets for a range leave by the other link, or stay.
type diversion struct {
	to   netip.Prefix
	away bool
}

// The priorities of the longest ranges: that of one address. Others follow, up to that of all addresses.
const (
	priority4 = 100
	priority6 = 200
)

// priority has the longer range be asked first. Each has one length and one IP version, as filters of a priority must.
func (v diversion) priority() uint16 {
	if v.to.Addr().Is4() {
		return uint16(priority4 + 32 - v.to.Bits())
	}
	return uint16(priority6 + 128 - v.to.Bits())
}

// ofDiversion reports whether a priority is that of some range.
func ofDiversion(p uint16) bool {
	return p >= priority4 && p <= priority4+32 || p >= priority6 && p <= priority6+128
}

// diversions are what packets for some ranges need to leave, where others stay that may lie within them.
func diversions(away, stay []netip.Prefix) []diversion {
	var out []diversion
	leaves, stays := setOf(away), setOf(stay)
	for p := range stays {
		if within(p, leaves) {
			out = append(out, diversion{p, false})
		}
	}
	for p := range leaves {
		if !stays[p] {
			out = append(out, diversion{p, true})
		}
	}
	slices.SortFunc(out, func(a, b diversion) int {
		return cmp.Or(cmp.Compare(a.priority(), b.priority()), a.to.Addr().Compare(b.to.Addr()))
	})
	return out
}

func setOf[T comparable](all []T) map[T]bool {
	out := make(map[T]bool, len(all))
	for _, x := range all {
		out[x] = true
	}
	return out
}

// within reports whether a range, or one around it, is among others.
func within(p netip.Prefix, others map[netip.Prefix]bool) bool {
	for bits := p.Bits(); bits >= 0; bits-- {
		if around, err := p.Addr().Prefix(bits); err == nil && others[around] {
			return true
		}
	}
	return false
}

// OpenDivert has what comes out of one link come in by another one. No packet is diverted yet: what an earlier run has
// left goes. Filters of somebody else stay, but those of our kind and priorities are ours; a classifier of somebody
// else that knows one way alone is replaced, with its filters.
func OpenDivert(from, to string) (*Divert, error) {
	d, err := openDivert(from, to)
	if err != nil {
		return nil, err
	}
	if err := d.nl.LinkSetUp(d.to); err != nil {
		d.nl.Close()
		return nil, failed("diverting packets to the link "+to, err)
	}
	return d, nil
}

// openDivert is OpenDivert before the other link is set up.
func openDivert(from, to string) (*Divert, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, failed("opening netlink for a diversion", err)
	}
	d := &Divert{nl: handle, have: map[diversion]uint32{}}
	if d.from, err = handle.LinkByName(from); err == nil {
		d.to, err = handle.LinkByName(to)
	}
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		handle.Close()
		return nil, failed("diverting packets from the link "+from+" to "+to, err)
	}
	return d, nil
}

func (d *Divert) begin() error {
	for _, l := range []netlink.Link{d.from, d.to} {
		if err := d.classifier(l); err != nil {
			return err
		}
	}
	left, err := d.nl.FilterList(d.from, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return err
	}
	for _, f := range left {
		if a := f.Attrs(); f.Type() == "flower" && ofDiversion(a.Priority) {
			if err := d.nl.FilterDel(&netlink.Flower{FilterAttrs: *a}); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	// It needs no address of its own. What a kernel without this setting sends by itself, WireGuard drops.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+d.to.Attrs().Name+"/disable_ipv6", []byte("1"), 0o644)
	return d.nl.FilterReplace(d.comesIn())
}

// classifier has a link be one that filters can be attached to, both ways.
func (d *Divert) classifier(l netlink.Link) error {
	q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	err := d.nl.QdiscAdd(q)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	all, err := d.nl.QdiscList(l)
	if err != nil || slices.ContainsFunc(all, func(o netlink.Qdisc) bool { return o.Type() == q.Type() }) {
		return err
	}
	if err := d.nl.QdiscDel(q); err != nil { // one that knows one way alone is in its place
		return err
	}
	return d.nl.QdiscAdd(q)
}

// comesIn is the filter by which what the other link decrypts comes in by the link.
func (d *Divert) comesIn() *netlink.Flower {
	in := netlink.NewMirredAction(d.from.Attrs().Index)
	in.MirredAction = netlink.TCA_INGRESS_REDIR
	return &netlink.Flower{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: d.to.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1,
			Handle: 1, Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{in},
	}
}

// Check puts back the filters that somebody else has removed, and counts them. Without them no packet leaves by the
// other link, or comes in by it. It tries again what could not be set before.
func (d *Divert) Check() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.lostLocked()
	repair := n > 0 || len(d.have) != len(diversions(d.away, d.stay))
	if err == nil && repair {
		err = errors.Join(d.classifier(d.from), d.classifier(d.to), d.nl.FilterReplace(d.comesIn()))
	}
	if err != nil {
		return n, failed("looking at the diversions from the link "+d.from.Attrs().Name, err)
	}
	if repair {
		return n, d.applyLocked()
	}
	return 0, nil
}

// lostLocked forgets the filters that the kernel does not have any more, and counts them.
func (d *Divert) lostLocked() (n int, err error) {
	type name struct {
		priority uint16
		handle   uint32
	}
	read := func(l netlink.Link, parent uint32) (map[name]bool, error) {
		all, err := d.nl.FilterList(l, parent)
		there := map[name]bool{}
		for _, f := range all {
			if a := f.Attrs(); f.Type() == "flower" {
				there[name{a.Priority, a.Handle}] = true
			}
		}
		return there, err
	}
	out, err := read(d.from, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return 0, err
	}
	in, err := read(d.to, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return 0, err
	}
	if f := d.comesIn(); !in[name{f.Priority, f.Handle}] {
		n++
	}
	for v, handle := range d.have {
		if !out[name{v.priority(), handle}] {
			delete(d.have, v)
			n++
		}
	}
	return n, nil
}

// Away has packets for these ranges leave by the other link, and no others.
func (d *Divert) Away(ranges []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = ranges
	return d.applyLocked()
}

// Stay has packets for these ranges stay, though they may lie within one whose packets leave.
func (d *Divert) Stay(ranges []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stay = ranges
	return d.applyLocked()
}

// applyLocked makes the filters those that are wanted. No packet leaves by the other link in between that is to stay.
func (d *Divert) applyLocked() error {
	want := diversions(d.away, d.stay)
	wanted := setOf(want)
	var errs []error
	remove := func(away bool) {
		for v, handle := range d.have {
			if v.away != away || wanted[v] {
				continue
			}
			if err := d.nl.FilterDel(d.filter(v, handle)); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, failed("ending the diversion for "+v.to.String(), err))
				continue
			}
			delete(d.have, v)
		}
	}
	add := func(away bool) {
		for _, v := range want {
			if _, there := d.have[v]; there || v.away != away {
				continue
			}
			if err := d.nl.FilterAdd(d.filter(v, d.last+1)); err != nil {
				errs = append(errs, failed("diverting packets for "+v.to.String(), err))
				continue
			}
			d.last++
			d.have[v] = d.last
		}
	}
	remove(true)
	add(false)
	add(true)
	remove(false)
	return errors.Join(errs...)
}

func (d *Divert) filter(v diversion, handle uint32) *netlink.Flower {
	to := ipnet(v.to)
	f := &netlink.Flower{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: d.from.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS,
			Priority: v.priority(), Handle: handle, Protocol: unix.ETH_P_IP},
		EthType: unix.ETH_P_IP, DestIP: to.IP, DestIPMask: to.Mask,
	}
	if v.to.Addr().Is6() {
		f.Protocol, f.EthType = unix.ETH_P_IPV6, unix.ETH_P_IPV6
	}
	if v.away {
		f.Actions = []netlink.Action{netlink.NewMirredAction(d.to.Attrs().Index)}
	}
	return f
}

// Close ends it. What is diverted is dropped from then on: its link is gone.
func (d *Divert) Close() error {
	d.nl.Close()
	return nil
}
