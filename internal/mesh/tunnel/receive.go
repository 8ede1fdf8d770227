// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

// reader receives for one family.
//
// With UDP_GRO one message may bring up to 64 packets, of which each goes into a buffer
// of its own. Messages are received some buffers apart from each other: the first
// packet of each stays where it is, the others are moved into the buffers that
// follow it. What does not fit waits for the next call, and after that messages
// are received so far apart that all fit.
type reader struct {
	b      *batch
	apart  int
	calm   int      // receives since a message had more packets than fitNear
	spill  []byte   // packets that did not fit
	spilt  []int    // their sizes
	from   []source // and senders
	heards [tunnelHeard]*heard
}

// source is where a packet came from, and to which address of ours.
type source struct {
	addr  netip.AddrPort
	local netip.Addr
}

// With messages fitNear buffers apart 16 of them come at once; as far apart as the kernel
// joins packets, two.
const (
	fitNear = tunnelBatch / 16
	fitAll  = tunnelSegments
	// calmAfter receives in a row without a long message they are received near again.
	calmAfter = 64
)

func newReader() *reader { return &reader{b: newBatch(), apart: fitNear} }

// room is where packets are put: the device's buffers, and what is known of each.
type room struct {
	bufs  [][]byte
	sizes []int // 0: none
	eps   []conn.Endpoint
	from  []source
}

// read receives packets. Those of size 0 are none.
func (r *reader) read(raw syscall.RawConn, gro bool, in room) (n int, err error) {
	if len(r.spilt) > 0 {
		return r.unspill(in), nil
	}
	bufs, apart := in.bufs, 1
	if gro {
		apart = min(r.apart, len(bufs))
	}
	b := r.b
	messages := min(len(bufs)/apart, tunnelBatch)
	for i := range messages {
		buf := bufs[i*apart]
		b.iovs[i].Base = &buf[0]
		b.iovs[i].SetLen(len(buf))
		h := &b.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Namelen = uint32(unsafe.Sizeof(b.names[i]))
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Control = &b.ctl[i][0]
		h.SetControllen(controlSize)
	}
	b.from, b.to = 0, messages
	if err := raw.Read(b.recv); err != nil {
		return 0, err
	}
	if b.errno != 0 {
		return 0, b.errno
	}
	clear(in.sizes[:b.done*apart])
	longest := 0
	for i := range b.done {
		longest = max(longest, r.spread(i, apart, in))
	}
	r.adapt(longest)
	return b.done * apart, nil
}

// spread puts the packets of message i into buffers of their own and says how many
// they were.
func (r *reader) spread(i, apart int, in room) (packets int) {
	src := source{addr: r.b.name(i)}
	total := int(r.b.msgs[i].len)
	var segment int
	src.local, segment = r.b.control(i)
	if segment <= 0 || segment > total {
		segment = total
	}
	at := i * apart
	whole := in.bufs[at]
	for start := 0; start < total || packets == 0; start += segment {
		part := whole[start:min(start+segment, total)]
		switch {
		case packets == 0:
			in.sizes[at], in.from[at] = len(part), src
		case packets < apart:
			in.sizes[at+packets], in.from[at+packets] = copy(in.bufs[at+packets], part), src
		default:
			r.spill = append(r.spill, part...)
			r.spilt = append(r.spilt, len(part))
			r.from = append(r.from, src)
		}
		packets++
		if segment == 0 {
			break
		}
	}
	return packets
}

// adapt chooses how far apart the next messages are received.
func (r *reader) adapt(longest int) {
	r.calm++
	switch {
	case longest > fitNear:
		r.apart, r.calm = fitAll, 0
	case r.calm >= calmAfter:
		r.apart = fitNear
	}
}

// unspill gives what did not fit into the last call's buffers.
func (r *reader) unspill(in room) (n int) {
	at := 0
	for n < len(in.bufs) && n < len(r.spilt) {
		in.sizes[n] = copy(in.bufs[n], r.spill[at:at+r.spilt[n]])
		in.from[n] = r.from[n]
		at += r.spilt[n]
		n++
	}
	r.spill = r.spill[:copy(r.spill, r.spill[at:])]
	r.spilt = r.spilt[:copy(r.spilt, r.spilt[n:])]
	r.from = r.from[:copy(r.from, r.from[n:])]
	return n
}

// heard is where a packet of WireGuard came from: what it answers to a sender whom
// it does not know yet, and where it roams to.
type heard struct{ source }

func (r *reader) heard(s source) *heard {
	a := s.addr.Addr().As16()
	i := uint32(s.addr.Port())
	for _, c := range a {
		i = i*31 + uint32(c)
	}
	h := &r.heards[i%tunnelHeard]
	if *h == nil || (*h).source != s {
		*h = &heard{s}
	}
	return *h
}

func (h *heard) ClearSrc()           {}
func (h *heard) SrcToString() string { return h.local.String() }
func (h *heard) DstToString() string { return h.addr.String() }
func (h *heard) DstIP() netip.Addr   { return h.addr.Addr() }
func (h *heard) SrcIP() netip.Addr   { return h.local }

// DstToBytes is what a cookie is bound to.
func (h *heard) DstToBytes() []byte {
	b, _ := h.addr.MarshalBinary() // it has no error
	return b
}

// sort gives each packet of WireGuard an endpoint, hands probes and STUN on, and drops everything
// else: the size of what does not stay is set to 0.
func (s *Socket) sort(r *reader, in room) (stayed int) {
	look := s.sessions.look()
	defer look.unlock()
	for i, size := range in.sizes {
		if size == 0 {
			continue
		}
		p := in.bufs[i][:size]
		in.sizes[i] = 0
		switch disco.KindOf(p) {
		case disco.WireGuard:
			peer, ok := look.find(p)
			if !ok {
				s.counts.Stray.Add(1)
				continue
			}
			in.sizes[i], in.eps[i] = size, r.heard(in.from[i])
			stayed++
			peer.came(p)
		case disco.Probe:
			s.probes.put(slot{data: p, from: in.from[i].addr, local: in.from[i].local})
		case disco.STUN:
			s.stuns.put(slot{data: p, from: in.from[i].addr, local: in.from[i].local})
		default:
			s.counts.Unknown.Add(1)
		}
	}
	return stayed
}
