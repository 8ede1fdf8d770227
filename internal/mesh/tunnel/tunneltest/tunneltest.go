// SPDX-License-Identifier: Apache-2.0

// Package tunneltest has what tests of engines need around them: a TUN without a
// kernel, packets with numbers in them, and key pairs. It makes no engine.
package tunneltest

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Pipe is a TUN without a kernel. It gives many packets at once, as a real one does.
type Pipe struct {
	// What is put into Out enters the tunnel, and what comes of it is in In.
	In, Out chan []byte
	lossy   bool
	closed  chan struct{}
	once    sync.Once
	events  chan tun.Event
}

// NewPipe holds 4,096 packets each way. With lossy it drops what comes when nobody
// reads In; else the tunnel waits.
func NewPipe(lossy bool) *Pipe {
	return &Pipe{In: make(chan []byte, 4096), Out: make(chan []byte, 4096), lossy: lossy, closed: make(chan struct{}),
		events: make(chan tun.Event)}
}

// File is of no use: there is none.
func (p *Pipe) File() *os.File { return nil }

// MTU is that of Ethernet without what the tunnel adds.
func (p *Pipe) MTU() (int, error) { return 1420, nil }

// Name is the same of all.
func (p *Pipe) Name() (string, error) { return "pipe", nil }

// Events tells of the end only.
func (p *Pipe) Events() <-chan tun.Event { return p.events }

// BatchSize is how many packets Read gives at most.
func (p *Pipe) BatchSize() int { return 128 }

// Close ends Read and Write.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed); close(p.events) })
	return nil
}

// Read takes from Out; after Close it gives os.ErrClosed.
func (p *Pipe) Read(bufs [][]byte, sizes []int, offset int) (n int, err error) {
	select {
	case <-p.closed:
		return 0, os.ErrClosed
	case b := <-p.Out:
		sizes[0] = copy(bufs[0][offset:], b)
	}
	for n = 1; n < len(bufs); n++ {
		select {
		case b := <-p.Out:
			sizes[n] = copy(bufs[n][offset:], b)
		default:
			return n, nil
		}
	}
	return n, nil
}

// Write puts into In; after Close it gives os.ErrClosed.
func (p *Pipe) Write(bufs [][]byte, offset int) (int, error) {
	for _, b := range bufs {
		b = append([]byte(nil), b[offset:]...)
		if p.lossy {
			select {
			case <-p.closed:
				return 0, os.ErrClosed
			case p.In <- b:
			default:
			}
			continue
		}
		select {
		case <-p.closed:
			return 0, os.ErrClosed
		case p.In <- b:
		}
	}
	return len(bufs), nil
}

// Packet is one of IPv4 with a number in it, filled up to a size of at least 28 bytes.
func Packet(from, to netip.Addr, number uint64, size int) []byte {
	b := make([]byte, size)
	b[0], b[8], b[9] = 0x45, 64, 253 // RFC 3692: for experiments
	binary.BigEndian.PutUint16(b[2:], uint16(size))
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	binary.BigEndian.PutUint64(b[20:], number)
	return b
}

// Number is that of a Packet.
func Number(b []byte) uint64 { return binary.BigEndian.Uint64(b[20:]) }

// Key draws a key pair.
func Key(t testing.TB) (tunnel.Secret, member.Key) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tunnel.NewSecret([32]byte(k.Bytes())), member.Key(k.PublicKey().Bytes())
}
