// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// flow is what comes from one address and port.
type flow struct {
	place
	from netip.AddrPort
	far  atomic.Pointer[net.UDPConn] // nil: it is being dialled
	last atomic.Int64                // when something came, either way
}

// flows are those that are open. Only serveUDP adds to them.
type flows struct {
	mu  sync.Mutex
	all map[netip.AddrPort]*flow
}

func (f *flows) get(from netip.AddrPort) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[from]
}

func (f *flows) add(x *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[x.from] = x
}

func (f *flows) remove(x *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, x.from)
}

// serveUDP carries datagrams until ctx ends.
func (f *Forwarder) serveUDP(ctx context.Context, g *run.Group) error {
	var near *net.UDPConn
	err := f.bind(ctx, func() (err error) {
		near, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(f.cfg.Listen))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fault.Newf(fault.CodeAddressBusy, "the address %s is in use", f.cfg.Listen).Because(err).
				Hint("stop what listens there ('ss -lunp' names it), or choose another with listen")
		}
		return err
	})
	if err != nil || near == nil {
		return err
	}
	stop := run.OnDone(ctx, func() { near.Close() })
	defer stop()
	open := flows{all: map[netip.AddrPort]*flow{}}
	b := make([]byte, datagram)
	for {
		n, from, err := near.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // of an earlier datagram that could not be sent
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		x := open.get(from)
		if x == nil {
			p, why := f.table.admit(from.Addr())
			if why != nil {
				f.refused(net.UDPAddrFromAddrPort(from), why)
				continue
			}
			x = &flow{place: p, from: from}
			x.last.Store(time.Now().UnixNano())
			open.add(x)
			first := append([]byte(nil), b[:n]...)
			g.Do(func(context.Context) {
				defer x.back()
				defer open.remove(x)
				f.carry(x, near, first)
			})
			continue
		}
		if far := x.far.Load(); far != nil { // what comes before it is dialled is lost, and sent again by OpenVPN
			x.last.Store(time.Now().UnixNano())
			if _, err := far.Write(b[:n]); err == nil {
				f.up.Add(int64(n))
			}
		}
	}
}

// carry dials for a flow, and takes back what the server answers until the flow is idle.
func (f *Forwarder) carry(x *flow, near *net.UDPConn, first []byte) {
	conn, why := f.reach(x.place)
	if why != nil {
		f.refused(net.UDPAddrFromAddrPort(x.from), why)
		return
	}
	far, ok := conn.(*net.UDPConn)
	if !ok {
		conn.Close()
		return
	}
	stop := run.OnDone(x.ctx, func() { far.Close() })
	defer stop()
	defer far.Close()
	f.metrics.Connections.WithLabelValues("ok").Inc()
	if _, err := far.Write(first); err == nil {
		f.up.Add(int64(len(first)))
	}
	x.far.Store(far)
	b := make([]byte, datagram)
	for {
		left := idle - time.Since(time.Unix(0, x.last.Load()))
		if left <= 0 {
			return
		}
		_ = far.SetReadDeadline(time.Now().Add(left)) // of a closed one, which the read tells
		n, err := far.Read(b)
		var late net.Error
		switch {
		case err == nil:
			x.last.Store(time.Now().UnixNano())
			if _, err := near.WriteToUDPAddrPort(b[:n], x.from); err == nil {
				f.down.Add(int64(n))
			}
		case errors.As(err, &late) && late.Timeout(), errors.Is(err, syscall.ECONNREFUSED): // it may be back in a moment
		default:
			return
		}
	}
}
