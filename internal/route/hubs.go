// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// opener opens streams through one hub.
type opener interface {
	Connect(ctx context.Context, network, target string) (net.Conn, error)
	Ping(ctx context.Context) error
}

// hubState is what is known of one hub.
type hubState struct {
	answered time.Time
	times    int       // that it did not answer, in a row
	until    time.Time // it is tried after the others
	why      string
}

// after is what one more failure makes of it.
func (h hubState) after(now time.Time, why string) hubState {
	h.times++
	pause := hubPauseMost
	if h.times < 7 {
		pause = min(hubPauseMost, hubPause<<(h.times-1))
	}
	h.until, h.why = now.Add(pause), why
	return h
}

// inOrder are the hubs as they are tried: those that answer in the order of the configuration, then the others, the
// one that has not been tried for longest first. None is left out.
func inOrder(hubs []hubState, now time.Time) []int {
	out := make([]int, len(hubs))
	for i := range hubs {
		out[i] = i
	}
	paused := func(i int) time.Time {
		if hubs[i].until.After(now) {
			return hubs[i].until
		}
		return time.Time{}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Or(paused(a).Compare(paused(b)), cmp.Compare(a, b)) })
	return out
}

// elsewhere reports whether another hub may open what this one did not.
func elsewhere(code fault.Code) bool {
	switch code {
	case fault.CodeHubAway, fault.CodeDraining, fault.CodeNoAgent, fault.CodeSessionLost, fault.CodeClusterUnknown:
		return true
	}
	return false
}

// door opens streams into one cluster, through one of its hubs.
type door struct {
	Cluster
	table mapping.Table
	now   func() time.Time
	count func(err error) // of one request to a hub
	dials func(d *door, cfg *tls.Config) []opener

	mu      sync.Mutex
	seen    fs.FileInfo // of the certificate's file in use
	leaf    *tls.Certificate
	openers []opener
	hubs    []hubState
	failed  chan struct{} // has a token when a hub has failed since it was last taken
}

func newDoor(c Cluster, table mapping.Table, now func() time.Time, count func(error)) *door {
	return &door{Cluster: c, table: table, now: now, count: count, dials: overTLS,
		hubs: make([]hubState, len(c.Hubs)), failed: make(chan struct{}, 1)}
}

// overTLS are the clients of a door's hubs, which are never dialled by a link of our own.
func overTLS(d *door, cfg *tls.Config) (out []opener) {
	most := socket.Descriptors()
	first := most - socket.Reserve(most)
	dialer := &net.Dialer{Timeout: limit.Handshake, KeepAliveConfig: socket.KeepAlive(),
		Control: func(_, address string, c syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(address); err == nil {
				if r, _, ok := d.table.There(to.Addr()); ok {
					return fault.Newf(fault.CodeConfig, "the hub is at %s, in the range %s", to, r)
				}
			}
			full := false
			err := c.Control(func(fd uintptr) { full = int(fd) >= first })
			if err == nil && full { // the rest is for probes and files
				err = syscall.EMFILE
			}
			return err
		}}
	for _, hub := range d.Hubs {
		one := cfg.Clone()
		one.ServerName = trust.ServerName(hub)
		one.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		out = append(out, admin.OverTLSBy(dialer, hub, one, splice.Below))
	}
	return out
}

// certificate is that of the file, with the openers that show it. While it cannot be read, as when it is being
// replaced, the last good one stays in use.
func (d *door) certificate() (*tls.Certificate, []opener, error) {
	info, err := os.Stat(d.Certificate)
	d.mu.Lock()
	defer d.mu.Unlock()
	same := err == nil && d.seen != nil && info.Size() == d.seen.Size() && info.ModTime().Equal(d.seen.ModTime())
	if d.leaf != nil && (err != nil || same) {
		return d.leaf, d.openers, nil
	}
	cert, cfg, err := d.read()
	if err != nil {
		if d.leaf != nil {
			return d.leaf, d.openers, nil
		}
		return nil, nil, err
	}
	d.seen, d.leaf, d.openers = info, cert, d.dials(d, cfg)
	return d.leaf, d.openers, nil
}

func (d *door) read() (*tls.Certificate, *tls.Config, error) {
	cert, ca, err := trust.ReadBundle(string(id.RoleRoute), d.Certificate)
	if err != nil {
		return nil, nil, err
	}
	who, err := identity(cert)
	if err != nil {
		return nil, nil, err
	}
	if who.Role != id.RoleRoute || who.Cluster.String() != d.Name {
		return nil, nil, fault.Newf(fault.CodeCertInvalid, "the certificate %s cannot be used for cluster %s", d.Certificate,
			d.Name).
			Whyf("it is that of %s", who).
			Hint("issue one: tombolo certificate issue --role route --cluster %s --name NAME --out FILE", d.Name)
	}
	roots := trust.RootsOf(ca)
	check := func() trust.Check { return trust.Check{Roots: roots, Now: d.now()} }
	return cert, trust.HubClientConfig(check, cert, "http/1.1"), nil
}

// identity is who a certificate is for.
func identity(cert *tls.Certificate) (id.Identity, error) {
	bad := fault.New(fault.CodeCertInvalid, "the certificate has no usable identity")
	if len(cert.Leaf.URIs) != 1 {
		return id.Identity{}, bad.Whyf("it names %d", len(cert.Leaf.URIs))
	}
	who, err := id.ParseURI(cert.Leaf.URIs[0].String())
	if err != nil {
		return id.Identity{}, bad.Because(err)
	}
	return who, nil
}

// open opens a stream to a target. Each hub has an equal part of the time that is left.
func (d *door) open(ctx context.Context, network, target string) (net.Conn, error) {
	_, openers, err := d.certificate()
	if err != nil {
		return nil, err
	}
	var last error
	order := d.order()
	for n, i := range order {
		part, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok && n < len(order)-1 {
			part, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(order)-n))
		}
		conn, err := openers[i].Connect(part, network, target)
		silent := run.Ended(part) != nil && run.Ended(ctx) == nil // all of its part, without an answer
		cancel()
		d.count(err)
		if err == nil {
			d.note(i, "")
			return conn, nil
		}
		f := fault.From(err)
		if last = err; fails(f) || silent {
			d.note(i, f.Error())
		} else if run.Ended(ctx) == nil { // who gave up says nothing of the hub
			d.note(i, "")
		}
		if run.Ended(ctx) != nil || !elsewhere(f.Code) && !silent {
			break
		}
	}
	return nil, last
}

func (d *door) order() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return inOrder(d.hubs, d.now())
}

// note remembers how a hub did: it answered if there is no reason why not.
func (d *door) note(i int, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if why == "" {
		d.hubs[i] = hubState{answered: d.now()}
		return
	}
	d.hubs[i] = d.hubs[i].after(d.now(), why)
	select {
	case d.failed <- struct{}{}:
	default:
	}
}

// status describes the cluster for operators.
func (d *door) status() admin.RouteCluster {
	out := admin.RouteCluster{Name: d.Name}
	if cert, _, err := d.certificate(); err == nil {
		if who, err := identity(cert); err == nil {
			out.Identity = who.URI()
		}
		out.Expires = cert.Leaf.NotAfter
	}
	for _, r := range d.table.Ranges() {
		if r.Cluster == d.Name {
			out.Ranges = append(out.Ranges, rangeOf(r))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, h := range d.hubs {
		one := admin.RouteHub{Address: d.Hubs[i], Answered: h.answered}
		if h.until.After(d.now()) {
			one.Failed = h.why
		}
		out.Hubs = append(out.Hubs, one)
	}
	return out
}

func rangeOf(r mapping.Range) admin.RouteRange {
	out := admin.RouteRange{Range: r.There.String()}
	if r.Mapped() {
		out.As = r.Here.String()
	}
	return out
}
