// SPDX-License-Identifier: Apache-2.0

package netstack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/tombolo-io/tombolo/internal/route/answer"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// flowKey tells flows apart. Of echo requests the sender's port is the identifier, the target's wire.EchoPort.
type flowKey struct {
	network  Network
	from, to netip.AddrPort
}

// flow are datagrams between one port of a caller and one of a target. It is one side of a splice: what is read from
// it, and written to it, is as package datagram has it.
type flow struct {
	flowKey
	stack *Stack
	queue chan []byte   // of the caller
	over  chan struct{} // closed at its end
	close func()

	head []byte // of the caller's first packet: what an ICMP message quotes

	mu    sync.Mutex
	ended bool
	waits int64 // bytes in the queue

	left  []byte // that its reader had no room for
	split datagram.Splitter
}

// datagram takes one packet of a caller, which is valid until it returns.
func (s *Stack) datagram(key flowKey, packet, payload []byte) {
	s.mu.Lock()
	f := s.flows[key]
	if f == nil && s.ctx.Err() == nil && len(s.flows) < mostFlows {
		f = &flow{flowKey: key, stack: s, queue: make(chan []byte, flowQueue), over: make(chan struct{}),
			head: append([]byte(nil), packet[:min(len(packet), quoted)]...)}
		f.close = sync.OnceFunc(f.end)
		s.flows[key] = f
		s.mu.Unlock()
		f.put(payload) // before the handler looks
		s.group.Do(func(ctx context.Context) {
			c := &Coming{Network: key.network, From: key.from, To: key.to, stack: s, flow: f}
			if ctx.Err() == nil {
				s.o.Handle(ctx, c)
			}
			c.forget()
		})
		return
	}
	s.mu.Unlock()
	if f == nil {
		s.o.Dropped(DropFull)
		return
	}
	f.put(payload)
}

// put queues a datagram, or drops it where there is no room: the newest, as a full socket does.
func (f *flow) put(payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(len(payload))
	if f.ended {
		return
	}
	if len(f.queue) == cap(f.queue) || f.waits+n > flowBytes || f.stack.waits.Load()+n > allBytes {
		f.stack.o.Dropped(DropFull)
		return
	}
	f.queue <- append([]byte(nil), payload...) // nobody else fills it
	f.waits += n
	f.stack.waits.Add(n)
}

// gone counts what has left the queue.
func (f *flow) gone(d []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits -= int64(len(d))
	f.stack.waits.Add(-int64(len(d)))
}

// end forgets the flow. A datagram that comes later begins another one.
func (f *flow) end() {
	f.stack.mu.Lock()
	delete(f.stack.flows, f.flowKey)
	f.stack.mu.Unlock()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	close(f.over)
	for {
		select {
		case d := <-f.queue:
			f.gone(d)
		default:
			return
		}
	}
}

// Read gives the datagrams of the caller.
func (f *flow) Read(b []byte) (int, error) {
	if len(f.left) == 0 {
		select {
		case d := <-f.queue:
			f.gone(d)
			f.left, _ = datagram.Append(nil, d) // no packet has more than fits
		case <-f.over:
			return 0, io.EOF
		}
	}
	n := copy(b, f.left)
	f.left = f.left[n:]
	return n, nil
}

// Write sends datagrams to the caller. One for which the link has no room is lost.
func (f *flow) Write(b []byte) (int, error) {
	select {
	case <-f.over:
		return 0, errOver
	default:
	}
	if err := f.split.Split(b, func(d []byte) error { f.send(d); return nil }); err != nil {
		return 0, err
	}
	return len(b), nil
}

var errOver = errors.New("the flow is over")

// CloseWrite ends the flow: nobody answers any more.
func (f *flow) CloseWrite() error { return f.Close() }

// Close ends the flow.
func (f *flow) Close() error {
	f.close()
	return nil
}

// Reset ends the flow, and tells a caller of UDP that nobody is there.
func (f *flow) Reset(uint32) error {
	if f.network == UDP {
		f.stack.link.send(portUnreachable(f.head))
	}
	return f.Close()
}

// refuse answers the first packet. What comes in the next moment has the same answer by silence: each datagram would
// else be a dial.
func (f *flow) refuse(a answer.Answer) {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	time.AfterFunc(refusedFor, f.close)
	var packet []byte
	switch {
	case a == answer.Reset && f.network == UDP:
		packet = portUnreachable(f.head)
	case a != answer.Reset:
		packet = unreachable(f.head, a)
	}
	if packet != nil {
		f.stack.link.send(packet)
	}
}

// send sends one datagram to the caller.
func (f *flow) send(d []byte) {
	if f.network == Echo && len(d) < sequence {
		return
	}
	size := header.IPv4MinimumSize
	if f.to.Addr().Is6() {
		size = header.IPv6MinimumSize
	}
	const head = header.UDPMinimumSize // and of an echo
	n := head + len(d)
	if f.network == Echo {
		n -= sequence
	}
	if size+n > f.stack.o.MTU {
		f.stack.o.Dropped(DropLarge)
		return
	}
	out := make([]byte, size+n)
	body, protocol := out[size:], header.UDPProtocolNumber
	from, to := tcpip.AddrFromSlice(f.to.Addr().AsSlice()), tcpip.AddrFromSlice(f.from.Addr().AsSlice())
	switch {
	case f.network == UDP:
		copy(body[head:], d)
		h := header.UDP(body)
		h.Encode(&header.UDPFields{SrcPort: f.to.Port(), DstPort: f.from.Port(), Length: uint16(n)})
		sum := header.PseudoHeaderChecksum(protocol, from, to, uint16(n))
		if sum = ^checksum.Checksum(body, sum); sum == 0 {
			sum = 0xffff // 0 says that there is none (RFC 768)
		}
		h.SetChecksum(sum)
	case f.to.Addr().Is6():
		protocol = header.ICMPv6ProtocolNumber
		f.echo(body, byte(header.ICMPv6EchoReply), d)
		h := header.ICMPv6(body)
		h.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: h, Src: from, Dst: to}))
	default:
		protocol = header.ICMPv4ProtocolNumber
		f.echo(body, byte(header.ICMPv4EchoReply), d)
		header.ICMPv4(body).SetChecksum(^checksum.Checksum(body, 0))
	}
	if f.to.Addr().Is6() {
		header.IPv6(out).Encode(&header.IPv6Fields{PayloadLength: uint16(n), TransportProtocol: protocol,
			HopLimit: 64, SrcAddr: from, DstAddr: to})
	} else {
		ip := header.IPv4(out)
		ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(out)), TTL: 64, Protocol: uint8(protocol),
			SrcAddr: from, DstAddr: to})
		ip.SetChecksum(^ip.CalculateChecksum())
	}
	if !f.stack.link.send(out) {
		f.stack.o.Dropped(DropFull)
	}
}

// echo writes the answer to an echo request: type, code, checksum, identifier, and what is on the stream (RFC 792).
func (f *flow) echo(out []byte, kind byte, d []byte) {
	out[0] = kind
	binary.BigEndian.PutUint16(out[4:], f.from.Port())
	copy(out[6:], d)
}

// sequence is the length of the number in front of an echo's data.
const sequence = 2
