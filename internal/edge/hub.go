// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/tls"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// hubDoor opens streams through one hub, with the edge's certificate there.
type hubDoor struct {
	Hub

	mu     sync.Mutex
	seen   fs.FileInfo // of the certificate's file in use
	client *admin.Client
}

// fromHub is the answer of a hub or of an agent behind it, or why there was none. The edge itself has let the
// client in.
type fromHub struct{ *fault.Fault }

func (f fromHub) Unwrap() error { return f.Fault }

func (h *hubDoor) stream(ctx context.Context, to tenant.Upstream) (net.Conn, error) {
	client, err := h.now()
	if err != nil {
		return nil, h.failed(err)
	}
	conn, err := client.Stream(ctx, to.Cluster, to.Address)
	if err != nil {
		return nil, h.failed(err)
	}
	return conn, nil
}

// failed keeps the code of a fault and says which hub it is from.
func (h *hubDoor) failed(err error) error {
	f := fault.From(err)
	if f.Code == fault.CodeUsage { // the file is not there
		f.Code = fault.CodeCertInvalid
	}
	return fromHub{fault.New(f.Code, "the hub "+h.Name+" gives no stream").Whyf("%s", f.Explain())}
}

// now is a client with the certificate that the file has now. While it cannot be read, as when it is being
// replaced, the last good one stays in use.
func (h *hubDoor) now() (*admin.Client, error) {
	info, err := os.Stat(h.Certificate)
	h.mu.Lock()
	defer h.mu.Unlock()
	same := err == nil && h.seen != nil && info.Size() == h.seen.Size() && info.ModTime().Equal(h.seen.ModTime())
	if h.client != nil && (err != nil || same) {
		return h.client, nil
	}
	cert, ca, err := trust.ReadBundle("edge", h.Certificate)
	if err != nil {
		if h.client != nil {
			return h.client, nil
		}
		return nil, err
	}
	roots := trust.RootsOf(ca)
	check := func() trust.Check { return trust.Check{Roots: roots, Now: time.Now()} }
	cfg := trust.HubClientConfig(check, cert, "http/1.1")
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	h.seen, h.client = info, admin.OverTLS(h.Address, cfg, h.below)
	return h.client, nil
}

// below is what TLS speaks over. A hub that takes the word of this edge for clients is told that the edge itself calls.
func (h *hubDoor) below(raw net.Conn) net.Conn {
	if h.Proxied {
		raw.Write(proxyheader.Local()) // if that fails, so does the handshake
	}
	return splice.Below(raw)
}

// look says which hubs have no usable certificate yet.
func (u *upstreams) look(log *slog.Logger) {
	for name, h := range u.hubs {
		if _, err := h.now(); err != nil {
			f := fault.From(err)
			log.Error("a hub cannot be used", "hub", name, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		}
	}
}

// names are those of the hubs, never nil.
func names(hubs []Hub) []string {
	out := []string{}
	for _, h := range hubs {
		out = append(out, h.Name)
	}
	return out
}
