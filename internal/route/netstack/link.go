// SPDX-License-Identifier: Apache-2.0

package netstack

import (
	"context"
	"errors"
	"os"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the stack's end of the device. Packets from the stack wait in a bounded queue: while it is full, so does
// whoever sends.
type link struct {
	*channel.Endpoint // for packets into the stack
	ctx               context.Context
	out               chan outgoing
}

// outgoing is a packet: one of the stack, or bytes of our own.
type outgoing struct {
	pkt   *stack.PacketBuffer
	bytes []byte
}

func newLink(ctx context.Context, mtu uint32) *link {
	l := &link{Endpoint: channel.New(0, mtu, ""), ctx: ctx, out: make(chan outgoing, queued)}
	// Whoever fills the TUN is this machine's kernel: it has computed, or left out, the checksums.
	l.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	return l
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for n, pkt := range pkts.AsSlice() {
		select {
		case l.out <- outgoing{pkt: pkt.Clone()}:
		case <-l.ctx.Done():
			return n, &tcpip.ErrClosedForSend{}
		}
	}
	return pkts.Len(), nil
}

// send sends bytes of our own. It reports false where there is no room: they are dropped.
func (l *link) send(packet []byte) bool {
	select {
	case l.out <- outgoing{bytes: packet}:
		return true
	default:
		return false
	}
}

// write gives the packets of the stack to the device, as many at once as wait.
func (s *Stack) write() error {
	defer s.end()
	space, bufs := make([][]byte, batch), make([][]byte, 0, batch)
	for i := range space {
		space[i] = make([]byte, 0, s.o.MTU+offset)
	}
	for {
		bufs = bufs[:0]
		select {
		case p := <-s.link.out:
			bufs = append(bufs, p.in(space[0]))
		case <-s.ctx.Done():
			return nil
		}
	more:
		for len(bufs) < batch {
			select {
			case p := <-s.link.out:
				bufs = append(bufs, p.in(space[len(bufs)]))
			default:
				break more
			}
		}
		if _, err := s.dev.Write(bufs, offset); errors.Is(err, os.ErrClosed) {
			return nil
		}
	}
}

// in copies a packet into a buffer, behind the offset.
func (p outgoing) in(space []byte) []byte {
	b := space[:offset]
	if p.pkt == nil {
		return append(b, p.bytes...)
	}
	for _, part := range p.pkt.AsSlices() {
		b = append(b, part...)
	}
	p.pkt.DecRef()
	return b
}

// fatal reports whether a device cannot be read any more.
func fatal(err error) bool { return !errors.Is(err, tun.ErrTooManySegments) }
