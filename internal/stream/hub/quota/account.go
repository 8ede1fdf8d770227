// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Scope is the kind of owner of an account.
type Scope string

const (
	ScopeCluster Scope = "cluster"
	ScopeAgent   Scope = "agent"
	ScopeCaller  Scope = "caller"
)

// Resource is what an account bounds.
type Resource uint8

const (
	Sessions Resource = iota
	Streams
	PendingDials
	Dials
	BytesIn
	BytesOut
	UnreadBytes
	Memory
	resources
)

// String is the field of the configuration, and the label of the metrics.
func (k Resource) String() string {
	return [resources]string{
		"sessions", "streams", "pendingDials", "dialsPerSecond", "bytesInPerSecond", "bytesOutPerSecond", "unreadBytes",
		"memory",
	}[k]
}

// Account is what one cluster, agent or caller uses, and may use. Its bounds change
// with the configuration; nothing that is live is dropped for that.
type Account struct {
	scope  Scope
	who    string
	Name   string // of the cluster
	bounds atomic.Pointer[Bounds]

	sessions, streams, pending atomic.Int64
	coming                     atomic.Int64 // connections of an agent that are no session yet
	unread                     atomic.Int64 // bytes of an agent or a caller; a cluster has them in its budget

	rate    sync.Mutex // for one clock of the dials: late callers would set it back
	dials   *rate.Limiter
	dialled perSecond
	in, out *shaper
	hits    [resources]atomic.Int64
	counted func(Scope, Resource) // for the metrics
	newest  atomic.Int64          // dial or session, in Unix nanoseconds
}

func newAccount(s Scope, cluster, who string, b Bounds, counted func(Scope, Resource)) *Account {
	a := &Account{scope: s, who: who, Name: cluster, counted: counted}
	a.dials = rate.NewLimiter(limiterOf(b)) // which begins with its burst
	a.in = newShaper(func() { a.Hit(BytesIn) })
	a.out = newShaper(func() { a.Hit(BytesOut) })
	a.Bound(b)
	return a
}

// Bound puts other bounds into force.
func (a *Account) Bound(b Bounds) {
	old := a.bounds.Swap(&b)
	if old != nil && (old.Dials != b.Dials || old.Burst != b.Burst) {
		each, burst := limiterOf(b)
		a.dials.SetBurst(burst)
		a.dials.SetLimit(each)
	}
	a.in.setRate(b.In)
	a.out.setRate(b.Out)
}

func limiterOf(b Bounds) (each rate.Limit, burst int) {
	if each = rate.Limit(b.Dials); b.Dials == Unbounded {
		each = rate.Inf
	}
	return each, int(min(b.Burst, math.MaxInt32))
}

// Bounds are those in force.
func (a *Account) Bounds() Bounds { return *a.bounds.Load() }

// Streams counts the live ones and the dials that are under way, Pending the latter,
// Sessions an agent's sessions or a caller's connections.
func (a *Account) Streams() int64 { return a.streams.Load() }

// Pending is described at Streams.
func (a *Account) Pending() int64 { return a.pending.Load() }

// Sessions is described at Streams.
func (a *Account) Sessions() int64 { return a.sessions.Load() }

// Hits counts how often a bound held somebody up.
func (a *Account) Hits(k Resource) int64 { return a.hits[k].Load() }

// UnreadTally counts the unread bytes of an agent or a caller; streams add to it themselves.
func (a *Account) UnreadTally() *atomic.Int64 { return &a.unread }

// Arrive takes a place for a connection of an agent that is no session yet; Arrived
// gives it back.
func (a *Account) Arrive() bool { return take(&a.coming, limit.SessionsComing) }

// Arrived is described at Arrive.
func (a *Account) Arrived() { a.coming.Add(-1) }

// Arriving counts the connections of an agent that are no session yet.
func (a *Account) Arriving() int64 { return a.coming.Load() }

// Hit counts that a bound held somebody up.
func (a *Account) Hit(k Resource) {
	a.hits[k].Add(1)
	a.counted(a.scope, k)
}

// begin takes a place for a dial and the stream that it is to become. A dial that has to wait
// holds the place: until its turn comes, which is within its patience, or, with an error,
// until it is told of the refusal.
func (a *Account) begin(patience time.Duration) (t reservation, err error) {
	a.newest.Store(time.Now().UnixNano())
	b := a.bounds.Load()
	if !take(&a.pending, b.Pending) {
		return reservation{}, a.refuse(PendingDials, b.Pending, 0)
	}
	if !take(&a.streams, b.Streams) {
		a.pending.Add(-1)
		return reservation{}, a.refuse(Streams, b.Streams, 0)
	}
	// The last of all, so that what has no place costs no dial of the rate.
	t, ok := a.dial(patience)
	switch {
	case ok && t.wait == 0:
		return t, nil
	case ok:
		a.Hit(Dials)
		return t, nil
	}
	if patience == 0 {
		a.end()
	}
	return reservation{wait: patience}, a.refuse(Dials, b.Dials, t.wait)
}

// reservation is when a dial may begin.
type reservation struct {
	wait time.Duration
	held *rate.Reservation // may be given back; nil if there is none
}

// dial takes the next dial of the rate, if its turn comes within so long, and says when.
func (a *Account) dial(patience time.Duration) (t reservation, ok bool) {
	a.rate.Lock()
	defer a.rate.Unlock()
	now := time.Now()
	if a.dials.Limit() == rate.Inf { // which has nothing to reserve
		a.dialled.add(now, 1)
		return t, true
	}
	r := a.dials.ReserveN(now, 1)
	if t.wait = r.DelayFrom(now); t.wait > patience {
		r.CancelAt(now)
		return t, false
	}
	a.dialled.add(now, 1)
	if t.wait > 0 {
		t.held = r
	}
	return t, true
}

// giveBack returns a turn that is no longer waited for.
func (a *Account) giveBack(t reservation) {
	if t.held != nil {
		a.rate.Lock()
		defer a.rate.Unlock()
		t.held.CancelAt(time.Now())
	}
}

// end gives back what begin took.
func (a *Account) end() {
	a.pending.Add(-1)
	a.streams.Add(-1)
}

// take adds one to a count, unless it has reached its bound.
func take(n *atomic.Int64, most int64) bool {
	if n.Add(1) > most {
		n.Add(-1)
		return false
	}
	return true
}

// refuse counts a refusal and says which bound it was, and when to come again.
func (a *Account) refuse(k Resource, most int64, wait time.Duration) *fault.Fault {
	a.Hit(k)
	f := fault.Newf(fault.CodeLimit, "%s may %s", a.Label(), [resources]string{
		Sessions:     fmt.Sprintf("have %d %s", most, a.links()),
		Streams:      fmt.Sprintf("have %d streams", most),
		PendingDials: fmt.Sprintf("have %d dials under way", most),
		Dials:        fmt.Sprintf("make %d dials a second", most),
		UnreadBytes:  fmt.Sprintf("leave %s unread", SizeText(most)),
	}[k]).Whyf("the bound %s.%s is reached", a.scope, k)
	switch k {
	case Dials:
		wait = max(wait.Round(time.Millisecond), time.Millisecond)
		return f.Hint("try again in %v; 'tombolo status %s' shows what is used", wait, a.Name).After(wait)
	case PendingDials:
		return f.Hint("the targets may be dead: look at 'tombolo status %s'", a.Name)
	case UnreadBytes:
		return f.Hint("someone reads slowly, or not at all; try again when that has ended")
	}
	return f.Hint("close what is not needed, or raise limits.%s.%s; 'tombolo status %s' shows what is used", a.scope, k,
		a.Name)
}

func (a *Account) links() string {
	if a.scope == ScopeCaller {
		return "connections"
	}
	return "sessions"
}

func (a *Account) Label() string {
	if a.scope == ScopeCluster {
		return "cluster " + a.Name
	}
	return string(a.scope) + " " + a.who
}

// Connect takes a place for a connection of a caller.
func (a *Account) Connect() *fault.Fault {
	if a == nil {
		return nil
	}
	a.newest.Store(time.Now().UnixNano())
	if b := a.bounds.Load(); !take(&a.sessions, b.Sessions) {
		return a.refuse(Sessions, b.Sessions, 0)
	}
	return nil
}

func (a *Account) Disconnect() {
	if a != nil {
		a.sessions.Add(-1)
	}
}

// idle says that the account knows nothing that matters: nothing is open or about to
// be, and what its rates had granted is there again.
func (a *Account) idle(now time.Time, kept time.Duration) bool {
	return a.sessions.Load()|a.streams.Load()|a.coming.Load()|a.unread.Load() == 0 &&
		now.UnixNano()-a.newest.Load() > int64(kept)
}

// SizeText renders bytes in the largest unit of the configuration that fits.
func SizeText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
