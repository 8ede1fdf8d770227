// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Link is a TUN that several devices may read in turn: Wake has a Read that waits
// return without a packet.
type Link interface {
	tun.Device
	Wake()
}

// fork lets several devices share one TUN: whichever reads hands over what the others
// shall send. While there is one alone nothing is looked at.
type fork struct {
	native Link
	baton  chan struct{} // held by who reads
	table  atomic.Pointer[table]
	group  *run.Group
	lost   *atomic.Uint64 // what one device read for another, which had no room
	dead   chan struct{}
	ended  sync.Once

	mu    sync.Mutex
	sides []*side
}

// side is the TUN as one device sees it.
type side struct {
	Link
	of     *fork
	in     *queue
	closed chan struct{}
	events chan tun.Event
}

func newFork(ctx context.Context, native Link, lost *atomic.Uint64) *fork {
	f := &fork{native: native, baton: make(chan struct{}, 1), dead: make(chan struct{}), group: run.NewGroup(ctx), lost: lost}
	f.group.Do(func(context.Context) { f.follow() })
	return f
}

// follow tells the devices what happens to the link.
func (f *fork) follow() {
	for e := range f.native.Events() {
		f.mu.Lock()
		for _, s := range f.sides {
			select {
			case s.events <- e:
			default: // one waits, and the MTU is asked for then
			}
		}
		f.mu.Unlock()
	}
}

func (f *fork) side() *side {
	s := &side{Link: f.native, of: f, in: newQueue(limit.TunnelInject, limit.TunnelPacket, f.lost), closed: make(chan struct{}), events: make(chan tun.Event, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sides = append(f.sides, s)
	return s
}

// close removes the link, after the devices.
func (f *fork) close() error {
	err := f.native.Close()
	f.end()
	if e := f.group.Wait(); err == nil {
		err = e
	}
	return err
}

func (f *fork) end() { f.ended.Do(func() { close(f.dead) }) }

func (s *side) Events() <-chan tun.Event { return s.events }

// Close ends what the device reads; the link stays.
func (s *side) Close() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	i := slices.Index(s.of.sides, s)
	if i < 0 {
		return nil
	}
	s.of.sides = slices.Delete(s.of.sides, i, i+1)
	close(s.closed)
	close(s.events)
	s.of.native.Wake()
	return nil
}

func (s *side) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		select {
		case <-s.closed:
			return 0, os.ErrClosed
		case p := <-s.in.full:
			sizes[0] = copy(bufs[0][offset:], p.data)
			s.in.back(p)
			return 1, nil
		case s.of.baton <- struct{}{}:
		}
		n, err := s.turn(bufs, sizes, offset)
		<-s.of.baton
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// turn reads the link once, unless there is something else to do.
func (s *side) turn(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case <-s.closed:
		return 0, os.ErrClosed
	default:
	}
	if len(s.in.full) > 0 {
		return 0, nil
	}
	n, err := s.of.native.Read(bufs, sizes, offset)
	if err != nil && n == 0 {
		s.of.end()
	}
	t := s.of.table.Load()
	if t == nil {
		return n, err
	}
	for i := range n {
		p := bufs[i][offset : offset+sizes[i]]
		if to := t.find(p); to != nil && to != s {
			to.in.put(slot{data: p})
			sizes[i] = 0
		}
	}
	return n, err
}

// table says which side sends to which range: the longest that matches counts.
type table struct {
	of   map[netip.Prefix]*side
	bits [2][]int // lengths that occur, of IPv4 and IPv6, the longest first
}

func newTable(of map[netip.Prefix]*side) *table {
	t := &table{of: of}
	for r := range of {
		i := 0
		if r.Addr().Is6() {
			i = 1
		}
		if !slices.Contains(t.bits[i], r.Bits()) {
			t.bits[i] = append(t.bits[i], r.Bits())
		}
	}
	for i := range t.bits {
		slices.Sort(t.bits[i])
		slices.Reverse(t.bits[i])
	}
	return t
}

func (t *table) find(packet []byte) *side {
	to, ok := destination(packet)
	if !ok {
		return nil
	}
	i := 0
	if to.Is6() {
		i = 1
	}
	for _, bits := range t.bits[i] {
		r, err := to.Prefix(bits)
		if err != nil {
			continue
		}
		if s := t.of[r]; s != nil {
			return s
		}
	}
	return nil
}

// destination is where an IP packet goes.
func destination(p []byte) (netip.Addr, bool) {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(p[16:20])), true
	case len(p) >= 40 && p[0]>>4 == 6 && int(binary.BigEndian.Uint16(p[4:])) <= len(p)-40:
		return netip.AddrFrom16([16]byte(p[24:40])), true
	}
	return netip.Addr{}, false
}
