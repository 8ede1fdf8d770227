// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/internal/tell"
)

// Options are what a Finder gets from its owner.
type Options struct {
	Log     *slog.Logger
	Reg     prometheus.Registerer
	Version string   // of the software, for people
	Sources []Source // further ones
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// Watch makes a finder that announces nothing, and keeps nothing on disk.
	Watch bool
}

// Finder knows the members of this node's cluster.
type Finder struct {
	cfg     Config
	log     *slog.Logger
	metrics *tell.Finder
	self    *announcer // nil: it only watches
	native  *nativeBook
	clients []*client
	wake    chan struct{}
	noCache error // why the cache is left as it is

	mu     sync.Mutex
	boxes  []*mailbox
	result roster.Result
	seen   chan struct{} // closed when result is another one
	cache  Status
}

// New makes a finder; Run sets it to work. It reads or makes the member's key,
// and reads the cache.
func New(cfg Config, o Options) (*Finder, error) {
	f := &Finder{cfg: cfg, log: o.Log, native: newNativeBook(), wake: make(chan struct{}, 1), seen: make(chan struct{})}
	f.metrics = tell.NewFinder(o.Reg, tell.FinderReadings{
		Members:   func() float64 { r, _ := f.Result(); return float64(len(r.Members)) },
		Conflicts: func() float64 { r, _ := f.Result(); return float64(len(r.Conflicts)) },
		Sessions:  func() float64 { return float64(len(f.clients)) },
		Attending: func() float64 { return float64(f.attending()) },
	})
	if !o.Watch {
		key, err := memberKey(cfg.StateDir)
		if err != nil {
			return nil, err
		}
		f.self = newAnnouncer(key, cfg.keys, cfg.Lease, lastVersion(cfg.StateDir))
		f.self.last, f.self.log = func(v uint64) error { return keepVersion(cfg.StateDir, v) }, o.Log
		if cfg.Announce.Node != "" {
			if err := f.Announce(cfg.Announce); err != nil {
				return nil, err
			}
		}
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: limit.Dial}).DialContext
	}
	for _, s := range cfg.Services {
		for i := range cfg.keys {
			f.clients = append(f.clients, f.newClient(s, i, o, dial))
		}
	}
	if cfg.File != "" {
		f.boxes = append(f.boxes, &mailbox{source: newListFile(cfg.File)})
	}
	for _, s := range o.Sources {
		f.boxes = append(f.boxes, &mailbox{source: s})
	}
	f.readCache()
	f.merge(time.Now())
	return f, nil
}

func (f *Finder) newClient(s Service, secret int, o Options, dial dialer) *client {
	keys := f.cfg.keys[secret]
	c := &client{
		service: s, keys: keys, secret: secret, native: f.native, self: f.self, dial: dial, log: o.Log, metrics: f.metrics,
		changed: f.stir, agent: "tombolo " + o.Version, left: make(chan struct{}),
	}
	if f.cfg.ClusterID != "" {
		c.older = newOlderBook(s.Name, f.cfg.ClusterID, f.cfg.secrets[secret].Sidero())
	}
	c.status.init(Status{Source: s.Name, Kind: "service", URL: s.URL(), Protocol: s.Protocol, Cluster: keys.Cluster().String(), State: StateOff})
	return c
}

// readCache remembers whom the last run knew.
func (f *Finder) readCache() {
	if !f.cfg.Cache {
		return
	}
	path := filepath.Join(f.cfg.StateDir, cacheFile)
	f.cache = Status{Source: path, Kind: "cache", State: StateAttending}
	c, err := readCache(path, f.cfg.keys)
	if err != nil {
		why := fault.From(err)
		f.log.Warn("the cache of members is not used", tell.AttrCode, why.Code, tell.AttrReason, why.Explain())
		f.cache.State, f.cache.Code, f.cache.Reason = StateBroken, why.Code, why.Error()
		if why.Code == fault.CodeStateVersion {
			f.noCache = err
		}
		return
	}
	f.cache.Members, f.cache.LastContact = f.remember(time.Now(), c), c.Saved
}

// stir asks for a merge soon. Any number of askers make one.
func (f *Finder) stir() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Announce changes what this node says of itself.
func (f *Finder) Announce(m seal.Member) error {
	if _, err := seal.ParseMember(m.Message()); err != nil { // the others would not take it
		return err
	}
	defer f.stir()
	return f.self.announce(time.Now(), m)
}

// ID is this node's member id; none for one that only watches.
func (f *Finder) ID() (seal.MemberID, bool) {
	if f.self == nil {
		return seal.MemberID{}, false
	}
	return f.self.key.ID(), true
}

// Run keeps sessions to all services and reads all sources until ctx ends. Its
// members stay announced until their leases end: Leave says farewell before.
func (f *Finder) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	for _, c := range f.clients {
		g.Go("service "+c.service.Name, c.run)
	}
	for _, b := range f.boxes {
		g.Go("source", func(ctx context.Context) error {
			return b.source.Run(ctx, func(said []roster.Said) {
				f.mu.Lock()
				b.said, b.at = said, time.Now()
				f.mu.Unlock()
				f.stir()
			})
		})
	}
	if f.self != nil {
		g.Go("lease", f.renew)
	}
	g.Go("merge", f.keepMerged)
	return g.Wait()
}

// renew makes new entries each third of a lease.
func (f *Finder) renew(ctx context.Context) error {
	for wait(ctx, f.cfg.Lease/3) {
		if err := f.self.renew(time.Now()); err != nil {
			f.log.Error("this member cannot be announced any longer", tell.AttrReason, err)
		}
	}
	return nil
}

// keepMerged merges what is said whenever something is said or over, but not more
// often than each FinderGather, and keeps the cache.
func (f *Finder) keepMerged(ctx context.Context) error {
	saved := time.Time{}
	due := false // the cache is older than what is known
	for {
		next := f.merge(time.Now())
		if due && time.Since(saved) >= limit.FinderSave {
			f.save(time.Now())
			saved, due = time.Now(), false
		}
		if due {
			next = sooner(next, saved.Add(limit.FinderSave))
		}
		timer, stop := timerAt(next)
		select {
		case <-f.wake:
			due = f.cfg.Cache
			wait(ctx, limit.FinderGather)
		case <-timer:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			if f.cfg.Cache {
				f.save(time.Now())
			}
			return nil
		}
	}
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (f *Finder) save(now time.Time) {
	if f.noCache != nil || f.self == nil {
		return
	}
	data, err := encodeCache(f.cfg.keys[0], f.gather(now))
	if err == nil && len(data) > limit.FinderCacheFile {
		err = fault.New(fault.CodeStateAccess, "the cache of members is not written").Whyf("it has %d bytes, at most %d are read", len(data), limit.FinderCacheFile)
	}
	if err == nil {
		err = writeFile(filepath.Join(f.cfg.StateDir, cacheFile), data)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.cache.State
	f.cache.State, f.cache.Code, f.cache.Reason, f.cache.LastContact = StateAttending, "", "", now
	if err == nil {
		return
	}
	why := fault.From(err)
	f.cache.State, f.cache.Code, f.cache.Reason = StateBroken, why.Code, why.Error()
	if before != StateBroken {
		f.log.Warn("the cache of members cannot be written: a restart during an outage finds nobody", tell.AttrCode, why.Code, tell.AttrReason, why.Explain())
	}
}

// said is all that every source says now.
func (f *Finder) said(now time.Time) []roster.Said {
	out := f.native.said(now)
	for _, c := range f.clients {
		if c.older != nil {
			out = append(out, c.older.said(now)...)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.boxes {
		out = append(out, b.said...)
	}
	return out
}

// merge makes the result of now, and gives when the next lease in it ends.
func (f *Finder) merge(now time.Time) (next time.Time) {
	said, next := roster.Expire(now, f.said(now))
	me := roster.Self{Tier: roster.TierNative}
	if w, _ := f.self.current(); w.member != nil {
		me.Facts = factsOf(f.self.key.ID().String(), *w.member)
	}
	result := roster.Merge(now, me, said, roster.Rules{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = result
	close(f.seen)
	f.seen = make(chan struct{})
	return next
}

// Leave says farewell to all services: others forget this node at once. It ends
// when every service that can be reached has taken it, or with ctx.
func (f *Finder) Leave(ctx context.Context) error {
	if f.self == nil {
		return nil
	}
	if err := f.self.leave(time.Now()); err != nil {
		return err
	}
	var missing []string
	for _, c := range f.clients {
		if c.status.get().State != StateAttending {
			missing = append(missing, c.service.Name)
			continue
		}
		select {
		case <-c.left:
		case <-ctx.Done():
			missing = append(missing, c.service.Name)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.CodeServiceAway, "not every service has taken the farewell").Whyf("%v did not", missing).
			Hint("nothing needs to be done: what they have of this node ends with its lease")
	}
	return nil
}
