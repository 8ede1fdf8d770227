// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// Agent is a running agent.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	reg      *prometheus.Registry
	metrics  *telemetry.Agent
	audit    *audit.Writer // nil: no records
	refusals audit.Tally
	trace    *otlp.Tracer // nil: no traces
	splicer  *splice.Splicer
	dialer   *targetDialer
	machine  machine
	own      ownList
	live     live
	instance string
	readJoin func(string) (string, error)
	settings atomic.Pointer[Reloadable]
	revoked  atomic.Pointer[fault.Fault] // the hub's refusal; nil: not revoked
	sessions sessions
	unread   *carrier.Budget // of all sessions
	streams  atomic.Int64    // live streams of all sessions
	up, down splice.Counter
	back     back

	mu      sync.Mutex
	me      *enrol.Identity
	spare   *trust.Join      // with another token than me; used once if me is revoked
	bound   []netip.AddrPort // our own listeners, which are never dialled
	renewed chan struct{}    // signalled after a renewal
}

// Options are what an agent needs in addition to its configuration.
type Options struct {
	Log   *slog.Logger
	Now   func() time.Time // the clock for certificates; nil means time.Now
	Reg   *prometheus.Registry
	Audit *audit.Writer // takes the records of dials; nil: none are made
	Trace *otlp.Tracer  // makes the spans of dials; nil: none are made
	// ReadJoin resolves Config.Join, which may name a file; nil: it is the line itself.
	ReadJoin func(string) (string, error)
}

// New prepares an agent; Run runs it.
func New(cfg Config, o Options) *Agent {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Agent{
		cfg: cfg, log: o.Log, now: o.Now, reg: o.Reg, audit: o.Audit, trace: o.Trace, splicer: splice.New(),
		instance: rand.Text(), unread: carrier.NewBudget(limit.AgentUnread), renewed: make(chan struct{}, 1),
		readJoin: o.ReadJoin,
	}
	if a.readJoin == nil {
		a.readJoin = func(line string) (string, error) { return line, nil }
	}
	a.settings.Store(&cfg.Reloadable)
	a.dialer = &targetDialer{resolver: &net.Resolver{}, dial: sparing(socket.Descriptors()).DialContext,
		own: a.ownListeners}
	a.metrics = telemetry.NewAgent(o.Reg, telemetry.AgentReadings{
		Sessions:       func() float64 { return float64(len(a.sessions.list())) },
		BytesToTarget:  func() float64 { return float64(a.up.Load()) },
		BytesToCaller:  func() float64 { return float64(a.down.Load()) },
		CertificateEnd: func() float64 { return float64(a.certificateEnd().Unix()) },
		Connections:    func() float64 { return a.sessions.sum(func(i carrier.Info) int { return i.Connections }) },
		Unread:         func() float64 { return float64(a.unread.Unread()) },
	})
	return a
}

// Ready reports whether a session takes new streams.
func (a *Agent) Ready() bool { return a.sessions.usable() > 0 }

// Reload applies new rules and bounds: new streams follow them at once, and live ones that
// the rules refuse end. The hub shows the new ranges after the next connect.
func (a *Agent) Reload(next Config) {
	if fixed := fixedChanges(a.cfg, next); len(fixed) > 0 {
		a.log.Warn("these settings change only with a restart", "settings", fixed)
	}
	a.settings.Store(&next.Reloadable)
	a.judgeAgain()
}

// enrolment asks hubs for the agent's certificate.
func (a *Agent) enrolment() enrol.Client {
	return enrol.Client{Dial: carrier.Dialer().DialContext, Now: a.now, Log: a.log}
}

func (a *Agent) identity() *enrol.Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.me
}

func (a *Agent) setIdentity(i *enrol.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.me = i
}

func (a *Agent) certificateEnd() time.Time {
	if me := a.identity(); me.Joined() {
		return me.Cert.NotAfter
	}
	return time.Unix(0, 0)
}

// hubAddresses are the addresses to try: the configured ones, else those of the join line.
func (a *Agent) hubAddresses(me *enrol.Identity) []string {
	if len(a.cfg.Hubs) > 0 {
		return a.cfg.Hubs
	}
	return me.Hubs
}

// joinLine reads the join line, nil if there is none. An agent that has joined
// does not need it: people remove a used secret.
func (a *Agent) joinLine(me *enrol.Identity) (*trust.Join, error) {
	if a.cfg.Join == "" {
		return nil, nil
	}
	text, err := a.readJoin(a.cfg.Join)
	if me.Joined() && (err != nil || text == "") {
		a.log.Info("the join line is not there any more; the stored identity does without")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j, err := trust.ParseJoin(text)
	return &j, err
}

// prepare loads the stored identity, or gets a new one with the join line.
// A stored identity wins over a line for the same cluster and CA, so that the same command
// can be run again; a line for another one is refused.
func (a *Agent) prepare(ctx context.Context) error {
	if err := private.StateDir(a.cfg.StateDir, a.log); err != nil {
		return err
	}
	me, err := enrol.Load(a.cfg.StateDir)
	if err != nil {
		return err
	}
	line, err := a.joinLine(me)
	if err != nil {
		return err
	}
	switch {
	case me.Joined() && line != nil && !me.Fits(*line):
		return fault.Newf(fault.CodeJoinLine, "the state in %s belongs to another hub or cluster", a.cfg.StateDir).
			Whyf("it holds %s, the join line is for cluster %s", me.Who, line.Cluster).
			Hint("give this agent its own --state-dir, or remove that directory to join anew")
	case me.Joined():
		if line != nil && len(a.cfg.Hubs) == 0 {
			me.Hubs = line.Hubs // a hub may have moved
		}
		if line != nil && line.TokenID != me.Token {
			a.spare = line
		}
		a.setIdentity(me)
		a.log.Info("using the stored identity", "identity", me.Who.URI(), "certificateEnd", me.Cert.NotAfter)
		return nil
	case line == nil:
		return fault.New(fault.CodeJoinLine, "this agent has no identity yet").
			Whyf("there is none in %s and no join line was given", a.cfg.StateDir).
			Hint("on the hub run: tombolo token create --cluster NAME, and start the agent with the line that it prints")
	}
	return a.join(ctx, me, *line)
}

// join enrols, and retries while no hub can be reached or all are overloaded; any other
// refusal is final.
func (a *Agent) join(ctx context.Context, me *enrol.Identity, line trust.Join) error {
	if me == nil {
		var err error
		if me, err = enrol.Begin(a.cfg.StateDir, line.Hubs); err != nil {
			return err
		}
	}
	if len(a.cfg.Hubs) > 0 {
		line.Hubs = a.cfg.Hubs
	}
	for try := 0; ; try++ {
		joined, err := a.enrolment().Join(ctx, line, me.Key)
		if err == nil {
			if err := joined.Save(a.cfg.StateDir); err != nil {
				return err
			}
			a.setIdentity(joined)
			a.log.Info("joined", "identity", joined.Who.URI(), "certificateEnd", joined.Cert.NotAfter)
			return nil
		}
		if !fault.Has(err, fault.CodeHubAway) && !fault.Has(err, fault.CodeLimit) {
			return err
		}
		a.metrics.Connects.WithLabelValues(outcome(fault.From(err))).Inc()
		if err := a.pause(ctx, try, "cannot join yet", err); err != nil {
			return err
		}
	}
}

// pause logs the cause and waits before the next try.
func (a *Agent) pause(ctx context.Context, try int, what string, cause error) error {
	wait := run.Backoff(try, limit.BackoffMost, mathrand.Float64())
	f := fault.From(cause)
	wait = max(wait, f.Again)
	if f.Code == fault.CodeCertRevoked {
		wait = run.Backoff(try, limit.AttachRefused, mathrand.Float64())
		a.log.Error("this agent was revoked: the hub does not let it in any more", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain(),
			"retryIn", wait.Round(time.Millisecond))
		return waitFor(ctx, wait)
	}
	a.log.Warn(what, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain(),
		"retryIn", wait.Round(time.Millisecond))
	return waitFor(ctx, wait)
}

func waitFor(ctx context.Context, d time.Duration) error {
	if !run.Wait(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// keepCertificate renews the certificate in time, until ctx ends.
func (a *Agent) keepCertificate(ctx context.Context) error {
	return enrol.Keeper{
		Client: a.enrolment(), Dir: a.cfg.StateDir, Current: a.identity, Hubs: a.hubAddresses,
		Tried: func(next *enrol.Identity, err error) {
			a.metrics.Renewals.WithLabelValues(outcome(fault.From(err))).Inc()
			if err != nil {
				return
			}
			a.setIdentity(next)
			select {
			case a.renewed <- struct{}{}:
			default:
			}
		},
	}.Run(ctx)
}

// keepSession keeps a session to a hub until ctx ends. After a renewal it opens a new
// session with the new certificate before it drains the old one.
func (a *Agent) keepSession(ctx context.Context) error {
	g := run.NewGroup(ctx)
	defer g.Wait()
	defer g.Stop()
	for try, n := 0, 0; ; n++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		me := a.identity()
		if !a.now().Before(me.Cert.NotAfter) {
			// Only a renewal is possible now.
			if err := a.pause(ctx, try, "the certificate has run out; waiting for its renewal",
				fault.New(fault.CodeCertExpired, "the agent's certificate has run out")); err != nil {
				return err
			}
			try++
			continue
		}
		hubs := a.hubAddresses(me)
		s, err := a.connect(ctx, hubs[n%len(hubs)], me)
		a.metrics.Connects.WithLabelValues(outcome(fault.From(err))).Inc()
		if a.heard(ctx, err) {
			continue
		}
		if err != nil {
			if err := a.pause(ctx, try, "not connected", err); err != nil {
				return err
			}
			try++
			continue
		}
		began := time.Now()
		a.log.Info("connected", "hub", hubs[n%len(hubs)])
		why := a.hold(ctx, g, s, me)
		if why == nil {
			try, n = 0, n-1 // replaced after a renewal: same hub, at once
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.heard(ctx, why) {
			continue
		}
		if time.Since(began) > limit.BackoffReset {
			try = 0
		}
		if err := a.pause(ctx, try, "disconnected", why); err != nil {
			return err
		}
		try++
	}
}

// hold serves a session and returns why it ended, or nil once the certificate was
// renewed: then the session continues in the group until its streams end.
func (a *Agent) hold(ctx context.Context, g *run.Group, s *session, me *enrol.Identity) error {
	a.sessions.add(s)
	select { // a renewal before this session was opened needs no replacement
	case <-a.renewed:
	default:
	}
	ended := make(chan error, 1)
	g.Do(func(ctx context.Context) {
		defer a.sessions.remove(s)
		ended <- a.serve(ctx, s)
	})
	if a.identity() == me {
		select {
		case err := <-ended:
			return err
		case <-a.renewed:
		}
	}
	g.Do(func(ctx context.Context) {
		a.retire(ctx, s)
		<-ended
	})
	return nil
}

// retire waits for a new session, then drains the old one.
func (a *Agent) retire(ctx context.Context, s *session) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for a.sessions.usable() < 2 {
		select {
		case <-ctx.Done():
			return
		case <-s.link.Done():
			return
		case <-tick.C:
		}
	}
	s.drain("the certificate was renewed")
	for s.unfinished() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-s.link.Done():
			return
		case <-s.emptied:
		case <-tick.C: // there is no event for the last bytes
		}
	}
	s.goodbye(fault.New(fault.CodeSessionLost, "replaced after renewal"))
}
