// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-yamux/v5"
)

// The library keeps what came for a stream to itself, so it is counted beside it:
// by the frames that come, and by what is read of the stream. Of the frames that
// leave, those that begin or refuse a stream are of interest.
const (
	yamuxHeader = 12 // version, type, flags (2), stream (4), length (4)
	yamuxData   = 0  // types above yamuxWindow name no stream
	yamuxWindow = 1
	yamuxSYN    = 1 // flags
	yamuxFIN    = 4
	yamuxRST    = 8
)

// yamuxLedger counts what the streams of a session hold unread. It knows a stream
// for as long as the library may keep what comes for it:
//
//	SYN either way ──► counted ──FIN both ways, or RST of the peer──► no more is counted
//	                      └── its user is done with it and its RST is in the queue, or the
//	                          library refuses it ──► forgotten, with what it held
//
// A stream of ours may be over for its user before its SYN is written. It stays known
// until then, or the SYN would make it a stream that nobody lets go of.
type yamuxLedger struct {
	budget *Budget
	tally  *atomic.Int64 // counts as well, if it is set
	in     yamuxFrames   // of the one who reads the connection
	out    yamuxFrames   // of the one who writes it

	mu    sync.Mutex
	of    map[uint32]*yamuxAccount // of streams to which more may come, or which nobody took yet
	next  uint32                   // the first of our numbers above all that are written
	gaps  map[uint32]struct{}      // those below it that are not written
	sum   int64
	ended bool
}

// yamuxAccount is what one stream holds.
type yamuxAccount struct {
	ledger *yamuxLedger
	id     uint32
	n      int64
	tally  *atomic.Int64 // of its user, who may have none
	begun  bool          // its SYN came or is written
	taken  bool          // it has a user, who lets go of it
	he, we bool          // have ended their direction
	gone   bool          // nobody will read it
}

// yamuxFrames finds the frames in the bytes of one direction.
type yamuxFrames struct {
	head  [yamuxHeader]byte
	n     int    // bytes of head that are there
	left  uint32 // bytes of the data that are to come
	whose *yamuxAccount
}

// newYamuxLedger makes a ledger of a session whose own streams are numbered from first.
func newYamuxLedger(o Options, first uint32) *yamuxLedger {
	return &yamuxLedger{budget: o.Budget, tally: o.Tally, of: map[uint32]*yamuxAccount{}, next: first, gaps: map[uint32]struct{}{}}
}

// received sees what came, before the library does.
func (l *yamuxLedger) received(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.each(b, l.came, (*yamuxAccount).hold)
}

// sent sees what is about to be written: the peer cannot answer what it does not have.
func (l *yamuxLedger) sent(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.each(b, l.went, func(*yamuxAccount, int64) {})
}

func (f *yamuxFrames) each(b []byte, head func(id uint32, flags uint16) (*yamuxAccount, error), data func(*yamuxAccount, int64)) (err error) {
	for len(b) > 0 {
		if f.left > 0 {
			n := int(min(uint64(f.left), uint64(len(b))))
			data(f.whose, int64(n))
			f.left -= uint32(n)
			b = b[n:]
			continue
		}
		n := copy(f.head[f.n:], b)
		b = b[n:]
		if f.n += n; f.n < yamuxHeader {
			return nil
		}
		f.n, f.whose = 0, nil
		kind := f.head[1]
		if kind <= yamuxWindow {
			if f.whose, err = head(binary.BigEndian.Uint32(f.head[4:]), binary.BigEndian.Uint16(f.head[2:])); err != nil {
				return err
			}
		}
		if kind == yamuxData {
			f.left = binary.BigEndian.Uint32(f.head[8:])
		}
	}
	return nil
}

// came handles the head of a frame of the peer. It needs the lock.
func (l *yamuxLedger) came(id uint32, flags uint16) (*yamuxAccount, error) {
	a := l.of[id]
	if flags&yamuxSYN != 0 {
		if a != nil {
			return nil, errors.New("a stream was opened twice")
		}
		a = l.open(id)
		a.begun = true
	}
	if a == nil {
		if _, gap := l.gaps[id]; gap || id&1 == l.next&1 && id >= l.next {
			// The library may have it, and keep what comes, before anybody knows of it.
			return nil, errors.New("a frame of a stream that was not opened")
		}
		return nil, nil // the library drops it, too
	}
	if a.he && a.we {
		return nil, nil // likewise
	}
	a.he = a.he || flags&yamuxFIN != 0
	if flags&yamuxRST != 0 {
		a.he, a.we = true, true
	}
	a.settle()
	return a, nil // the data of its last frame is kept
}

// went handles the head of a frame of ours. It needs the lock.
func (l *yamuxLedger) went(id uint32, flags uint16) (*yamuxAccount, error) {
	a := l.of[id]
	switch {
	case flags&yamuxSYN != 0:
		for ; l.next < id; l.next += 2 { // openers at a time overtake, and some give up
			l.gaps[l.next] = struct{}{}
		}
		delete(l.gaps, id)
		l.next = max(l.next, id+2)
		if a == nil {
			a = l.open(id)
		}
		a.begun = true
		a.settle()
	case flags&yamuxRST != 0 && a != nil && !a.taken: // the library refuses what nobody saw
		a.let()
	}
	return nil, nil
}

// open needs the lock.
func (l *yamuxLedger) open(id uint32) *yamuxAccount {
	a := &yamuxAccount{ledger: l, id: id, gone: l.ended}
	if !l.ended {
		l.of[id] = a
	}
	return a
}

// take gives the account of a stream that has a user from now on.
func (l *yamuxLedger) take(id uint32) *yamuxAccount {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[id]
	if a == nil { // it is ours, and its SYN is not written yet
		a = l.open(id)
	}
	a.taken = true
	a.settle()
	return a
}

// end lets go of what nobody took: the session is over. The others count until
// their users have read them or let go of them.
func (l *yamuxLedger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.of {
		if !a.taken {
			a.let()
		}
	}
	clear(l.of)
	l.ended = true
}

func (l *yamuxLedger) unread() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

// settle forgets a stream of which nothing can come that counts. It needs the lock.
// One that nobody took is kept for who will, and one that did not begin for its SYN.
func (a *yamuxAccount) settle() {
	if a.begun && (a.gone || a.taken && a.he && a.we) && a.ledger.of[a.id] == a {
		delete(a.ledger.of, a.id)
	}
}

// hold counts n bytes that came. It needs the lock. Before somebody takes a stream, a
// first window is all that the library keeps: of one with more, it drops everything,
// and its refusal is on the way.
func (a *yamuxAccount) hold(n int64) {
	switch {
	case a == nil || a.gone:
	case !a.taken && a.n+n > firstWindow:
		a.let()
	default:
		a.add(n)
	}
}

// add needs the lock.
func (a *yamuxAccount) add(n int64) {
	a.n += n
	a.ledger.sum += n
	a.ledger.budget.unread.Add(n)
	for _, t := range [...]*atomic.Int64{a.ledger.tally, a.tally} {
		if t != nil {
			t.Add(n)
		}
	}
}

// let needs the lock.
func (a *yamuxAccount) let() {
	a.add(-a.n)
	a.gone = true
	a.settle()
}

// read says that n bytes were read.
func (a *yamuxAccount) read(n int) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.add(-min(int64(n), a.n))
}

// closed says that our direction has ended.
func (a *yamuxAccount) closed() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.we = true
	a.settle()
}

// drop says that the library has forgotten the stream, and nobody will read the rest.
func (a *yamuxAccount) drop() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.let()
}

// Held implements Holder. What is written waits in its writer, not in the stream.
func (s *yamuxStream) Held() int64 {
	s.unread.ledger.mu.Lock()
	defer s.unread.ledger.mu.Unlock()
	return s.unread.n
}

// Unread implements Holder.
func (s *yamuxStream) Unread() int64 { return s.Held() }

// Tally implements Holder.
func (s *yamuxStream) Tally(n *atomic.Int64) {
	s.unread.ledger.mu.Lock()
	defer s.unread.ledger.mu.Unlock()
	n.Add(s.unread.n)
	s.unread.tally = n
}

// yamuxGrowth lets windows grow while at most half of the budget is unread.
type yamuxGrowth struct{ budget *Budget }

// manager is what the library asks for each stream.
func (g yamuxGrowth) manager() (yamux.MemoryManager, error) { return g, nil }

// ReserveMemory is asked with priority 255 for the window that the protocol gives
// every stream: to refuse that would end the session.
func (g yamuxGrowth) ReserveMemory(_ int, priority uint8) error {
	if priority < 255 && g.budget.Unread()*2 > g.budget.most.Load() {
		return errors.New("too much is unread")
	}
	return nil
}

// ReleaseMemory and Done have nothing to give back.
func (yamuxGrowth) ReleaseMemory(int) {}

// Done is described at ReleaseMemory.
func (yamuxGrowth) Done() {}
