// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/datagram"
)

// The largest datagrams: what the length fields of UDP and of IPv4 leave.
const (
	payload4 = 1<<16 - 1 - 20 - 8
	payload6 = 1<<16 - 1 - 8
)

// Send sends one packet that is no WireGuard's, from an address of this machine if
// local is one: an answer leaves from where it was asked.
func (s *Socket) Send(to netip.AddrPort, local netip.Addr, packet []byte) error {
	_, err := s.send(to, local, [][]byte{packet}, false)
	return err
}

// SendWhole is Send for a packet that must pass in one piece: with the don't-fragment
// bit, and whatever the kernel believes of the path's MTU. What is longer than the first
// link takes is refused here.
func (s *Socket) SendWhole(to netip.AddrPort, local netip.Addr, packet []byte) error {
	f := s.family(to.Addr())
	if f == nil {
		return unix.EAFNOSUPPORT
	}
	s.sizing.Lock() // the option is the socket's: nobody else sends meanwhile
	defer s.sizing.Unlock()
	if err := f.discovery(unix.IP_PMTUDISC_PROBE); err != nil {
		return err
	}
	_, err := s.sendLocked(f, to, local, [][]byte{packet}, false)
	return errors.Join(err, f.discovery(unix.IP_PMTUDISC_DONT))
}

func (f *family) discovery(how int) error {
	var err error
	if e := f.raw.Control(func(fd uintptr) { err = datagram.SetDiscovery(int(fd), f.v6, how) }); e != nil {
		return e
	}
	return err
}

// send sends packets to one address and says how many of them were sent. An error is
// that of the last one which was not.
func (s *Socket) send(to netip.AddrPort, local netip.Addr, packets [][]byte, join bool) (int, error) {
	f := s.family(to.Addr())
	if f == nil {
		return 0, unix.EAFNOSUPPORT
	}
	s.sizing.RLock()
	defer s.sizing.RUnlock()
	return s.sendLocked(f, to, local, packets, join)
}

func (s *Socket) sendLocked(f *family, to netip.AddrPort, local netip.Addr, packets [][]byte,
	join bool) (sent int, last error) {
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	for len(packets) > 0 {
		part := packets[:min(len(packets), tunnelBatch)]
		packets = packets[len(part):]
		for len(part) > 0 {
			n := b.fill(to, local, part, join && f.gso.Load())
			took, err := f.write(b, n)
			count := b.packets(took)
			sent += count
			part = part[count:]
			if err == nil {
				continue
			}
			joined := b.msgs[took].hdr.Iovlen > 1
			switch {
			case joined && errors.Is(err, unix.EIO): // no checksums in the device: udp(7)
				f.gso.Store(false)
				s.offloads.off(udpGSO, fmt.Sprintf("sending to %v failed: %v", to.Addr(), err))
			case joined: // longer than the path takes: one by one they are cut
				join = false
			case local.IsValid() && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EADDRNOTAVAIL) ||
				errors.Is(err, unix.ENETUNREACH)):
				local = netip.Addr{} // this machine has lost the address
			default:
				last = err
				part = part[1:]
			}
		}
	}
	b.forget()
	return sent, last
}

// fill writes packets into messages: those of one size that follow each other, and a
// smaller one at the end, into one if join is set. Nothing is copied.
func (b *batch) fill(to netip.AddrPort, local netip.Addr, packets [][]byte, join bool) (messages int) {
	most := payload4
	if to.Addr().Is6() {
		most = payload6
	}
	segment, total, ended := 0, 0, true
	for i, p := range packets {
		b.iovs[i].Base = nil
		if len(p) > 0 {
			b.iovs[i].Base = &p[0]
		}
		b.iovs[i].SetLen(len(p))
		if last := messages - 1; !ended && len(p) <= segment && total+len(p) <= most &&
			b.msgs[last].hdr.Iovlen < tunnelSegments {
			b.msgs[last].hdr.Iovlen++
			total += len(p)
			ended = len(p) < segment
			if b.msgs[last].hdr.Iovlen == 2 {
				b.setControl(last, local, segment)
			}
			continue
		}
		m := &b.msgs[messages]
		*m = mmsghdr{}
		m.hdr.Iov = &b.iovs[i]
		m.hdr.SetIovlen(1)
		b.setName(messages, to)
		b.setControl(messages, local, 0)
		segment, total, ended = len(p), len(p), !join || len(p) == 0
		messages++
	}
	return messages
}

// packets is how many there are in the first messages.
func (b *batch) packets(messages int) (n int) {
	for i := range messages {
		n += int(b.msgs[i].hdr.Iovlen)
	}
	return n
}

// forget lets go of the packets' buffers.
func (b *batch) forget() {
	clear(b.iovs[:])
}

// write gives messages to the kernel, and says how many it took before one failed.
func (f *family) write(b *batch, n int) (took int, err error) {
	for took < n {
		b.from, b.to = took, n
		if err := f.give(b); err != nil {
			return took, err
		}
		if b.errno != 0 {
			return took, syscall.Errno(b.errno)
		}
		took += b.done
	}
	return took, nil
}
