// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestRefusals: whatever the kernel refuses, each packet is sent once or counted as not sent,
// and what does not work is turned off when that helps, for a reason that is told.
func TestRefusals(t *testing.T) {
	local := netip.MustParseAddr("192.0.2.9")
	for _, c := range []struct {
		name   string
		refuse func(packets int, size int, from bool) syscall.Errno // of one message
		join   bool
		calls  string // packets of the messages that were taken
		sent   int
		err    error
		gso    bool
	}{
		{"nothing", func(int, int, bool) syscall.Errno { return 0 }, true, "3 2", 5, nil, true},
		{"no checksums", func(n, _ int, _ bool) syscall.Errno { return when(n > 1, unix.EIO) }, true, "1 1 1 1 1", 5, nil, false},
		{"too large when joined", func(n, _ int, _ bool) syscall.Errno { return when(n > 1, unix.EINVAL) }, true, "1 1 1 1 1", 5, nil, true},
		{"one is too large", func(_, size int, _ bool) syscall.Errno { return when(size == 50, unix.EMSGSIZE) }, false, "1 1 1 1", 4, unix.EMSGSIZE, true},
		{"the address is lost", func(_, _ int, from bool) syscall.Errno { return when(from, unix.EINVAL) }, false, "1 1 1 1 1", 5, nil, true},
		{"no route", func(int, int, bool) syscall.Errno { return unix.EHOSTUNREACH }, false, "", 0, unix.EHOSTUNREACH, true},
		{"a firewall", func(int, int, bool) syscall.Errno { return unix.EPERM }, true, "", 0, unix.EPERM, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Socket{offloads: &offloads{}}
			s.batches.New = func() any { return newBatch() }
			var taken []string
			f := &family{give: func(b *batch) error {
				b.done, b.errno = 0, 0
				for i := b.from; i < b.to; i++ {
					h := b.msgs[i].hdr
					from, _ := b.control(i)
					if errno := c.refuse(int(h.Iovlen), int(h.Iov.Len), from.IsValid()); errno != 0 {
						if b.done == 0 {
							b.errno = errno
						}
						return nil
					}
					b.done++
					taken = append(taken, fmt.Sprint(h.Iovlen))
				}
				return nil
			}}
			f.gso.Store(true)
			s.families = []*family{f}
			var packets [][]byte
			for _, n := range []int{100, 100, 50, 100, 100} {
				packets = append(packets, make([]byte, n))
			}
			sent, err := s.send(netip.MustParseAddrPort("192.0.2.1:1"), local, packets, c.join)
			if got := strings.Join(taken, " "); got != c.calls || sent != c.sent || !errors.Is(err, c.err) {
				t.Errorf("taken %q, sent %d, %v; want %q, %d, %v", got, sent, err, c.calls, c.sent, c.err)
			}
			if o := s.offloads.state(udpGSO); f.gso.Load() != c.gso || o.On != c.gso || !o.On && o.Why == "" {
				t.Errorf("%+v, want %v", o, c.gso)
			}
		})
	}
}

func when(is bool, errno syscall.Errno) syscall.Errno {
	if is {
		return errno
	}
	return 0
}

// broken is a socket that cannot be read.
type broken struct{ syscall.RawConn }

func (broken) Read(func(uintptr) bool) error { return unix.EIO }

// TestAReadThatFails is counted, and ends no receiver.
func TestAReadThatFails(t *testing.T) {
	s := &Socket{}
	s.sessions.init()
	b := newBind(s, &peers{of: map[member.Key]*endpoint{}}, nil)
	in := room{bufs: [][]byte{make([]byte, 100)}, sizes: make([]int, 1)}
	if n, err := b.receive(&family{raw: broken{}, in: newReader()}, in); n != 0 || err != nil {
		t.Errorf("%d packets, %v", n, err)
	}
	tn := &Tun{}
	tn.Lost.Add(2)
	for _, d := range s.Drops(tn) {
		if want := map[string]uint64{"read": 1, "link": 2}[d.Reason]; d.Packets != want {
			t.Errorf("%s: %d, want %d", d.Reason, d.Packets, want)
		}
	}
}

// moody is a TUN that refuses what its test says.
type moody struct {
	refuse func(packets int) error
	events chan tun.Event
	once   sync.Once
	wrote  int
}

func (m *moody) File() *os.File                         { return nil }
func (m *moody) Read([][]byte, []int, int) (int, error) { return 0, os.ErrClosed }
func (m *moody) MTU() (int, error)                      { return 1420, nil }
func (m *moody) Name() (string, error)                  { return "moody", nil }
func (m *moody) Events() <-chan tun.Event               { return m.events }
func (m *moody) BatchSize() int                         { return 128 }
func (m *moody) Close() error                           { m.once.Do(func() { close(m.events) }); return nil }

func (m *moody) Write(bufs [][]byte, _ int) (int, error) {
	if err := m.refuse(len(bufs)); err != nil {
		return 0, err
	}
	m.wrote += len(bufs)
	return len(bufs), nil
}

// TestTunRefusals: joined packets that the kernel refuses are the last ones that are joined; a
// link that is down loses packets, and WireGuard hears nothing of it.
func TestTunRefusals(t *testing.T) {
	m := &moody{events: make(chan tun.Event)}
	tn := newTun(context.Background(), m)
	tn.gro.Store(true)
	bufs := [][]byte{make([]byte, 50), make([]byte, 50), make([]byte, 50)}
	write := func(refuse func(int) error, wrote int, lost uint64, on bool) {
		t.Helper()
		m.refuse, m.wrote = refuse, 0
		was := tn.Lost.Load()
		if _, err := tn.Write(bufs, 16); err != nil {
			t.Error(err)
		}
		if m.wrote != wrote || tn.Lost.Load()-was != lost {
			t.Errorf("%d written, %d lost; want %d and %d", m.wrote, tn.Lost.Load()-was, wrote, lost)
		}
		if o := tn.Offloads()[1]; o.Name != tunGRO || o.On != on || !on && o.Why == "" {
			t.Errorf("%+v, want %v", o, on)
		}
	}
	all := func(int) error { return nil }
	write(all, 3, 0, true)
	write(func(int) error { return unix.EIO }, 0, 3, true) // the link is down
	write(func(n int) error {
		if n > 1 {
			return fmt.Errorf("write: %w", unix.EINVAL)
		}
		return nil
	}, 0, 3, false)
	write(all, 3, 0, false)
	write(func(int) error { return unix.EIO }, 0, 3, false)
	m.refuse = func(int) error { return os.ErrClosed }
	if _, err := tn.Write(bufs, 16); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed link: %v", err)
	}
	m.events <- tun.EventUp
	m.events <- tun.EventMTUUpdate
	if e := <-tn.Events(); e != tun.EventMTUUpdate {
		t.Errorf("WireGuard is told %v", e)
	}
	if err := tn.Close(); err != nil {
		t.Error(err)
	}
	if _, more := <-tn.Events(); more {
		t.Error("the events do not end")
	}
}
