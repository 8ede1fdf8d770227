// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
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
	// Announced gets a sign, if it has room, when Self changes; may be nil.
	Announced chan<- struct{}
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Resolver  Resolver // of endpoints' names; nil: the system's
	// Watch makes a client that announces nothing, and keeps nothing on disk.
	Watch bool
}

// Client announces this node and knows the members of its cluster. Each state has one owner, the
// parts below; what the client does itself is to start them and to answer for all of them.
type Client struct {
	cfg     Config
	log     *slog.Logger
	news    *news
	self    *announcer     // this node's own entry; nil: it only watches
	native  *nativeBook    // the entries of all native services
	subs    *subscriptions // the secrets, and for each a session to each service
	cache   *diskCache     // nil: there is none
	list    *listFile      // of members; nil: there is none
	members *merger        // the members, merged from all sources
	told    chan<- struct{}
	locked  *os.File // the lock of the state directory; nil: it only watches
}

// New makes a client; Run starts it. It reads or makes the member's key, and reads the cache.
func New(cfg Config, o Options) (*Client, error) {
	metrics := telemetry.NewDiscoveryClient(o.Reg)
	c := &Client{cfg: cfg, log: o.Log, news: newNews(), native: newNativeBook(), told: o.Announced}
	spoken := &nativeServices{}
	if !o.Watch {
		if err := c.openState(metrics); err != nil {
			return nil, err
		}
		spoken.dir = cfg.StateDir
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: limit.Dial}).DialContext
	}
	c.subs = newSubscriptions(cfg, subscriptionParts{
		self: c.self, native: c.native, news: c.news, nativeServices: spoken,
		dial: dial, log: o.Log, metrics: metrics, agent: "tombolo " + o.Version,
	})
	if cfg.Cache {
		c.cache = &diskCache{dir: cfg.StateDir, readOnly: o.Watch, native: c.native, subs: c.subs, log: o.Log}
		c.cache.read(time.Now())
	}
	if cfg.File != "" {
		c.list = newListFile(cfg.File, o.Resolver)
		if o.Resolver == nil {
			c.list.names.resolver = net.DefaultResolver
		}
	}
	c.members = &merger{
		news: c.news, self: c.self, native: c.native, subs: c.subs, sources: mailboxes(c.list, o.Sources),
		merged: metrics.Merged, seen: make(chan struct{}),
	}
	c.members.merge(time.Now())
	telemetry.ReadDiscoveryClient(o.Reg, telemetry.DiscoveryClientReadings{
		Members:   func() float64 { r, _ := c.Result(); return float64(len(r.Members)) },
		Stale:     func() float64 { return float64(c.members.stale()) },
		Conflicts: func() float64 { r, _ := c.Result(); return float64(len(r.Conflicts)) },
		Sessions:  func() float64 { return float64(len(c.subs.all())) },
		Attending: func() float64 { return float64(c.subs.attending()) },
	})
	return c, nil
}

// openState locks the state directory and makes this member as that has it.
func (c *Client) openState(metrics *telemetry.DiscoveryClient) (err error) {
	if err = private.StateDir(c.cfg.StateDir, c.log); err != nil {
		return err
	}
	if c.locked, err = lockState(c.cfg.StateDir); err != nil {
		return err
	}
	me, err := readIdentity(c.cfg.StateDir)
	if err != nil {
		return errors.Join(err, c.locked.Close())
	}
	c.self = newAnnouncer(me.key, c.cfg.keys, c.cfg.Lease, lastVersion(c.cfg.StateDir))
	c.self.now.id = me
	c.self.last, c.self.log = func(v uint64) error { return keepVersion(c.cfg.StateDir, v) }, c.log
	c.self.clashed = metrics.Rivals.Inc
	c.self.prove(c.cfg.WireGuard)
	if c.cfg.Announce.Node == "" {
		return nil
	}
	c.news.changed()
	if _, err := c.self.take(time.Now(), c.cfg.Announce); err != nil {
		return errors.Join(err, c.locked.Close())
	}
	return nil
}

// Announce changes what this node states about itself.
func (c *Client) Announce(m member.Facts) error {
	changed, err := c.self.take(time.Now(), m)
	c.news.changed()
	if changed {
		signal(c.told)
	}
	return err
}

// Prove sets the private key of WireGuard with which this node proves, from its next
// announcement on, that the public key is its own.
func (c *Client) Prove(private seal.WireGuardPrivate) { c.self.prove(private) }

// Self is what this node states about itself; nothing, for one that only watches.
func (c *Client) Self() member.Facts {
	w, _ := c.self.current()
	if w.member == nil {
		return member.Facts{}
	}
	out := *w.member
	out.ID = w.id.key.ID().String()
	for _, cluster := range c.Clusters() {
		out.Clusters = append(out.Clusters, cluster.String())
	}
	return out
}

// ID is this node's member id; none for one that only watches.
func (c *Client) ID() (seal.MemberID, bool) {
	if c.self == nil {
		return seal.MemberID{}, false
	}
	w, _ := c.self.current()
	return w.id.key.ID(), true
}

// Version is that of what this node announces now; 0 for nothing.
func (c *Client) Version() uint64 {
	w, _ := c.self.current()
	if w.member == nil {
		return 0
	}
	return w.version
}

// Lease is how long others know this node after its last announcement.
func (c *Client) Lease() time.Duration { return c.cfg.Lease }

// Shared reports that another machine has this member's key; nil: none showed lately.
func (c *Client) Shared() *fault.Fault { return c.self.sharedKey(time.Now()) }

// Clusters are the native ids of this node's clusters, the newest secret's first.
func (c *Client) Clusters() []seal.ClusterID { return Config{keys: c.subs.keys()}.Clusters() }

// Run keeps sessions to all services and reads all sources until ctx ends. Its
// members stay announced until their leases end: Leave says farewell before.
func (c *Client) Run(ctx context.Context) error {
	if c.locked != nil {
		defer c.locked.Close()
	}
	g := run.NewGroup(ctx)
	g.Go("services", c.subs.run)
	for _, b := range c.members.sources {
		g.Go("source", func(ctx context.Context) error {
			return b.source.Run(ctx, func(said []roster.Said) {
				b.put(said)
				c.news.changed()
			})
		})
	}
	if c.self != nil {
		g.Go("lease", c.self.keepRenewed)
		g.Go("key", (&rotation{dir: c.cfg.StateDir, self: c.self, subs: c.subs, news: c.news, log: c.log}).run)
	}
	g.Go("merge", func(ctx context.Context) error { return c.members.run(ctx, c.cache) })
	return g.Wait()
}

// Leave says farewell to all services: others forget this node at once. It ends
// when every service that can be reached has taken it, or with ctx.
func (c *Client) Leave(ctx context.Context) error {
	if c.self == nil {
		return nil
	}
	if err := c.self.leave(time.Now()); err != nil {
		return err
	}
	missing := c.subs.left(ctx)
	if len(missing) > 0 {
		return fault.New(fault.CodeServiceAway, "not every service has taken the farewell").Whyf("%v did not", missing).
			Hint("nothing needs to be done: what they have of this node ends with its lease")
	}
	return nil
}
