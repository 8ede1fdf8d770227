// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"net"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// serveTCP accepts until ctx ends.
func (f *Forwarder) serveTCP(ctx context.Context, g *run.Group) error {
	var ln net.Listener
	err := f.bind(ctx, func() (err error) {
		ln, err = listener.Listen(ctx, "listen", f.cfg.Listen.String())
		return err
	})
	if err != nil || ln == nil {
		return err
	}
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	return listener.Accept(ctx, ln, func(conn net.Conn) {
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		p, why := f.table.admit(at.Addr())
		if why != nil {
			conn.Close()
			f.refused(conn.RemoteAddr(), why)
			return
		}
		g.Do(func(context.Context) {
			defer p.back()
			far, why := f.reach(p)
			if why != nil {
				conn.Close()
				f.refused(conn.RemoteAddr(), why)
				return
			}
			f.metrics.Connections.WithLabelValues("ok").Inc()
			f.splicer.Both(p.ctx, splice.Net(conn), splice.Net(far), splice.Options{Idle: idle, Up: &f.up, Down: &f.down})
		})
	})
}
