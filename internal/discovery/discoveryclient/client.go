// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// Options are what a Client gets from its owner.
type Options struct {
	Log     *slog.Logger
	Reg     prometheus.Registerer
	Version string   // of the software, for people
	Sources []Source // further ones
	// Announced gets a sign, if it has room, when Self says something else; may be nil.
	Announced chan<- struct{}
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	// Watch makes a client that announces nothing, and keeps nothing on disk.
	Watch bool
}

// Client knows the members of this node's cluster.
type Client struct {
	cfg            Config
	log            *slog.Logger
	metrics        *telemetry.DiscoveryClient
	self           *announcer // nil: it only watches
	native         *nativeBook
	wake           chan struct{}
	late           chan struct{} // what may be merged later
	noCache        error         // why the cache is left as it is
	told           chan<- struct{}
	locked         *os.File // the lock of the state directory; nil: it only watches
	held           atomic.Pointer[held]
	taking         sync.Mutex    // held by who takes other secrets
	recast         chan struct{} // there are other clients
	version        string        // of the software
	nativeServices *nativeServices
	dial           dialer

	mu     sync.Mutex
	boxes  []*mailbox
	result roster.Result
	seen   chan struct{} // closed when result is another one
	cache  Status
}

// New makes a client; Run starts it. It reads or makes the member's key,
// and reads the cache.
func New(cfg Config, o Options) (*Client, error) {
	f := &Client{cfg: cfg, log: o.Log, native: newNativeBook(), wake: make(chan struct{}, 1), late: make(chan struct{}, 1), seen: make(chan struct{}), recast: make(chan struct{}, 1), version: o.Version, dial: o.Dial, nativeServices: &nativeServices{}}
	f.held.Store(&held{secrets: cfg.secrets, keys: cfg.keys})
	f.metrics = telemetry.NewDiscoveryClient(o.Reg, telemetry.DiscoveryClientReadings{
		Members:   func() float64 { r, _ := f.Result(); return float64(len(r.Members)) },
		Stale:     func() float64 { return float64(f.stale()) },
		Conflicts: func() float64 { r, _ := f.Result(); return float64(len(r.Conflicts)) },
		Sessions:  func() float64 { return float64(len(f.subscriptions())) },
		Attending: func() float64 { return float64(f.attending()) },
	})
	if !o.Watch {
		var err error
		if err = private.StateDir(cfg.StateDir, f.log); err != nil {
			return nil, err
		}
		if f.locked, err = lockState(cfg.StateDir); err != nil {
			return nil, err
		}
		f.nativeServices.dir = cfg.StateDir
		if err := f.begin(); err != nil {
			return nil, errors.Join(err, f.locked.Close())
		}
	}
	if f.dial == nil {
		f.dial = (&net.Dialer{Timeout: limit.Dial}).DialContext
	}
	h := &held{secrets: cfg.secrets, keys: cfg.keys}
	h.subscriptions = f.subscriptionsOf(h, nil)
	f.held.Store(h)
	if cfg.File != "" {
		f.boxes = append(f.boxes, &mailbox{source: newListFile(cfg.File)})
	}
	for _, s := range o.Sources {
		f.boxes = append(f.boxes, &mailbox{source: s})
	}
	f.readCache()
	f.merge(time.Now())
	f.told = o.Announced
	return f, nil
}

// begin is this member as its state directory has it.
func (f *Client) begin() error {
	me, err := readIdentity(f.cfg.StateDir)
	if err != nil {
		return err
	}
	f.self = newAnnouncer(me.key, f.keys(), f.cfg.Lease, lastVersion(f.cfg.StateDir))
	f.self.now.id = me
	f.self.last, f.self.log = func(v uint64) error { return keepVersion(f.cfg.StateDir, v) }, f.log
	f.self.clashed = f.metrics.Rivals.Inc
	f.self.prove(f.cfg.WireGuard)
	if f.cfg.Announce.Node == "" {
		return nil
	}
	return f.Announce(f.cfg.Announce)
}

// readCache remembers whom the last run knew.
func (f *Client) readCache() {
	if !f.cfg.Cache {
		return
	}
	path := filepath.Join(f.cfg.StateDir, cacheFile)
	f.cache = Status{Source: path, Kind: KindCache, State: StateAttending}
	c, err := readCache(path, f.keys())
	if err != nil {
		why := fault.From(err)
		f.log.Warn("the cache of members is not used", telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Explain())
		f.cache.State, f.cache.Code, f.cache.Reason = StateBroken, why.Code, why.Error()
		if why.Code == fault.CodeStateVersion {
			f.noCache = err
		}
		return
	}
	f.cache.Members, f.cache.LastContact = f.remember(time.Now(), c), c.Saved
}

// stir asks for a merge soon. Any number of askers make one.
func (f *Client) stir() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Announce changes what this node says of itself.
func (f *Client) Announce(m member.Facts) error {
	if _, err := seal.ParseMember(seal.Message(m)); err != nil { // the others would not take it
		return err
	}
	before, _ := f.self.current()
	err := f.self.announce(time.Now(), m)
	f.stir()
	if now, _ := f.self.current(); now.content != before.content {
		select {
		case f.told <- struct{}{}:
		default:
		}
	}
	return err
}

// Prove sets the private key of WireGuard by which this node proves, from its next
// announcement on, that the public one is its own.
func (f *Client) Prove(private seal.WireGuardPrivate) { f.self.prove(private) }

// Self is what this node says of itself; nothing, for one that only watches.
func (f *Client) Self() member.Facts {
	w, _ := f.self.current()
	if w.member == nil {
		return member.Facts{}
	}
	out := *w.member
	out.ID = w.id.key.ID().String()
	for _, c := range f.Clusters() {
		out.Clusters = append(out.Clusters, c.String())
	}
	return out
}

// ID is this node's member id; none for one that only watches.
func (f *Client) ID() (seal.MemberID, bool) {
	if f.self == nil {
		return seal.MemberID{}, false
	}
	w, _ := f.self.current()
	return w.id.key.ID(), true
}

// Shared says that another machine has this member's key; nil: none of late.
func (f *Client) Shared() *fault.Fault { return f.self.sharedKey(time.Now()) }

// Run keeps sessions to all services and reads all sources until ctx ends. Its
// members stay announced until their leases end: Leave says farewell before.
func (f *Client) Run(ctx context.Context) error {
	if f.locked != nil {
		defer f.locked.Close()
	}
	g := run.NewGroup(ctx)
	g.Go("services", f.keepSubscriptions)
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
		g.Go("key", f.keepKey)
	}
	g.Go("merge", f.keepMerged)
	return g.Wait()
}

// renew makes new entries each third of a lease, and when one is due out of turn.
func (f *Client) renew(ctx context.Context) error {
	tried := time.Now()
	for {
		due, paced := f.self.due()
		if soonest := tried.Add(shortestLease / 3); due.Before(soonest) {
			due = soonest // nothing is announced yet, or it cannot be
		}
		if at := f.self.answerDue(); !at.IsZero() {
			due = sooner(due, at)
		}
		timer, stop := timerAt(due)
		select {
		case <-timer:
			tried = time.Now()
			if err := f.self.renew(tried); err != nil {
				f.log.Error("this member cannot be announced any longer", telemetry.AttrReason, err)
			}
		case <-paced:
		case <-f.self.clash.wake:
		case <-ctx.Done():
			stop()
			return nil
		}
		stop()
	}
}

// gathering is how long news of n words are gathered: the more there is to merge,
// the less often it is done, so that the work of a second has a bound.
func gathering(n int) time.Duration {
	return gatherLeast + time.Duration(n)*gatherEach
}

// keepMerged merges what is said whenever something is said or over, but not more
// often than gathering says, and keeps the cache.
func (f *Client) keepMerged(ctx context.Context) error {
	saved := time.Time{}
	var pace time.Duration // how long after the last time the cache is written; 0: not at all
	for {
		next, words := f.merge(time.Now())
		if pace > 0 && time.Since(saved) >= pace {
			f.save(time.Now())
			saved, pace = time.Now(), 0
		}
		if pace > 0 {
			next = sooner(next, saved.Add(pace))
		}
		news, renewed := f.await(ctx, next)
		switch {
		case !f.cfg.Cache:
		case news:
			pace = saveInterval
		case renewed && pace == 0: // a lease that ended a little earlier is no loss
			pace = saveRenewalsInterval
		}
		if news || words > gatherFew { // the leases of many end one after the other
			run.Wait(ctx, gathering(words))
		}
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

func (f *Client) save(now time.Time) {
	if f.noCache != nil || f.self == nil {
		return
	}
	data, err := encodeCache(f.keys(), f.gather(now))
	if err == nil && len(data) > mostCacheBytes {
		err = fault.New(fault.CodeStateAccess, "the cache of members is not written").Whyf("it has %d bytes, at most %d are read", len(data), mostCacheBytes)
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
		f.log.Warn("the cache of members cannot be written: a restart during an outage finds nobody", telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Explain())
	}
}

// said is all that every source says now.
func (f *Client) said(now time.Time) []roster.Said {
	out := f.native.said(now)
	for _, c := range f.subscriptions() {
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

// merge makes the result of now, and gives when the next lease in it ends, and how
// much is said.
func (f *Client) merge(now time.Time) (next time.Time, words int) {
	said, next := roster.Expire(now, f.said(now))
	f.metrics.Merged.Add(float64(len(said)))
	me := roster.Self{Tier: roster.TierNative}
	if w, _ := f.self.current(); w.member != nil {
		me.Facts, me.Replaces = *w.member, w.id.before()
		me.Facts.ID = w.id.key.ID().String()
	}
	result := roster.Merge(now, me, said, roster.Rules{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = result
	close(f.seen)
	f.seen = make(chan struct{})
	return next, len(said)
}

// Leave says farewell to all services: others forget this node at once. It ends
// when every service that can be reached has taken it, or with ctx.
func (f *Client) Leave(ctx context.Context) error {
	if f.self == nil {
		return nil
	}
	if err := f.self.leave(time.Now()); err != nil {
		return err
	}
	var missing []string
	for _, c := range f.subscriptions() {
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
