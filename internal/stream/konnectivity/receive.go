// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// receiver takes the packets of one gRPC stream. It reads a packet's length before it asks for the packet, for which
// the stream's window is opened then.
type receiver struct {
	from    source
	pool    mem.BufferPool
	held    *budget // of the socket
	charged Charged // the target, if it wants to know
	size    int64   // what the packet in hand takes of the budget
}

// source is a stream below its messages.
type source interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// Charged is a target's stream that is charged for the bytes held for it.
type Charged interface {
	// Charge adds n bytes, which may be negative.
	Charge(n int64)
}

// Excused is a target's stream that learns when its caller takes no more; it then waits for no rate.
type Excused interface{ Excuse() }

var _ Excused = (*flow)(nil)

// mistake is a caller's, and the code with which its stream ends.
type mistake struct {
	code codes.Code
	*fault.Fault
}

// next returns a packet, which done gives back; or what is wrong with it; or why there are no more.
func (r *receiver) next(target *atomic.Pointer[carrier.Stream]) (*packet, *mistake, error) {
	raw, bad, end := r.message(target)
	if end != nil || bad != nil {
		return nil, bad, end
	}
	p := &packet{buffer: raw}
	if err := p.unmarshal(p.buffer.ReadOnlyData()); err != nil {
		r.done(p)
		return nil, &mistake{codes.Internal, fault.New(fault.CodeFrameInvalid, "a konnectivity packet cannot be received").
			Because(err)}, nil
	}
	return p, nil, nil
}

// endOf is the error that gRPC's RecvMsg would have at the end of a stream, by which the reference counts it: io.EOF
// where the caller has ended its direction, which kube-apiserver does not do. Most often the caller is gone.
func endOf(bad *mistake, end error) error {
	if bad != nil {
		return explain(bad.code, bad.Fault)
	}
	if _, ok := status.FromError(end); ok && end != nil || end == io.EOF {
		return end
	}
	return status.FromContextError(context.Canceled).Err()
}

// message returns a message, which its Free and give give back; or what is wrong with it; or why there are no more,
// io.EOF where the caller has ended the stream in order.
func (r *receiver) message(target *atomic.Pointer[carrier.Stream]) (mem.Buffer, *mistake, error) {
	var header [5]byte
	if err := r.from.ReadMessageHeader(header[:]); err != nil {
		return nil, torn(err), err
	}
	if header[0] != 0 {
		return nil, &mistake{codes.Internal, fault.New(fault.CodeFrameInvalid,
			"a konnectivity packet cannot be received").Whyf("it is compressed")}, nil
	}
	n := int64(binary.BigEndian.Uint32(header[1:]))
	if bad := r.take(n, target.Load()); bad != nil {
		return nil, bad, nil
	}
	raw, err := r.from.Read(int(n))
	if err != nil {
		r.give()
		return nil, torn(err), err
	}
	defer raw.Free()
	return raw.MaterializeToBuffer(r.pool), nil, nil
}

// torn is nil for an orderly end, and for that of the connection.
func torn(err error) *mistake {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return &mistake{codes.Internal, fault.New(fault.CodeFrameInvalid, "a konnectivity packet cannot be received").
		Because(err)}
}

// take answers for a packet of n bytes that is about to come.
func (r *receiver) take(n int64, target *carrier.Stream) *mistake {
	most := int64(limit.KonnectivityPacket)
	if target == nil {
		most = konnectivityRequest
	}
	if n > most {
		return &mistake{codes.ResourceExhausted, fault.New(fault.CodeFrameInvalid, "a konnectivity packet is too large").
			Whyf("it has %d bytes, larger than max %d", n, most).Hint("dial first, and send less at a time")}
	}
	size := int64(0)
	if n > 0 {
		size = 1 << bits.Len64(uint64(n-1)) // at least what the pool gives
	}
	if !r.held.take(size, n > konnectivityData+packetHead) {
		return &mistake{codes.ResourceExhausted, fault.
			New(fault.CodeLimit, "the socket holds too much that its targets do not take").
			Whyf("with a packet of %d bytes it were more than %d", n, konnectivityHeld).
			Hint("send at most %d bytes at a time, or find the targets that do not read", konnectivityData)}
	}
	r.size = size
	if target != nil && r.charged == nil {
		r.charged, _ = (*target).(Charged)
	}
	if r.charged != nil {
		r.charged.Charge(size)
	}
	return nil
}

// packetHead is more than what a packet adds to its payload.
const packetHead = 64

// done gives a packet back.
func (r *receiver) done(p *packet) {
	p.free()
	r.give()
}

func (r *receiver) give() {
	r.held.give(r.size)
	if r.charged != nil {
		r.charged.Charge(-r.size)
	}
	r.size = 0
}

// budget counts what the streams of a socket hold; its zero value is empty.
type budget struct{ n atomic.Int64 }

// take counts n bytes; bounded ones are refused beyond the bound.
func (b *budget) take(n int64, bounded bool) bool {
	if sum := b.n.Add(n); bounded && sum > konnectivityHeld {
		b.n.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.n.Add(-n) }
