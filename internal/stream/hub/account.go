// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// scope says of whom an account is.
type scope string

const (
	scopeCluster scope = "cluster"
	scopeAgent   scope = "agent"
	scopeCaller  scope = "caller"
)

// resource is what an account bounds.
type resource uint8

const (
	ofSessions resource = iota
	ofStreams
	ofPending
	ofDials
	ofIn
	ofOut
	ofUnread
	ofMemory
	resources
)

// String is the field of the configuration, and the label of the metrics.
func (k resource) String() string {
	return [resources]string{
		"sessions", "streams", "pendingDials", "dialsPerSecond", "bytesInPerSecond", "bytesOutPerSecond", "unreadBytes", "memory",
	}[k]
}

// account is what one cluster, agent or caller uses, and may use. Its bounds change
// with the configuration; nothing that is live is dropped for that.
type account struct {
	scope  scope
	who    string
	name   string // of the cluster
	bounds atomic.Pointer[bounds]

	sessions, streams, pending atomic.Int64
	coming                     atomic.Int64 // connections of an agent that are no session yet
	unread                     atomic.Int64 // bytes of an agent or a caller; a cluster has them in its budget

	rate    sync.Mutex // for one clock of the dials: late callers would set it back
	dials   *rate.Limiter
	dialled meter
	in, out *shaper
	hits    [resources]atomic.Int64
	counted func(scope, resource) // for the metrics
	newest  atomic.Int64          // dial or session, in Unix nanoseconds
}

func newAccount(s scope, cluster, who string, b bounds, counted func(scope, resource)) *account {
	a := &account{scope: s, who: who, name: cluster, counted: counted}
	a.dials = rate.NewLimiter(limiterOf(b)) // which begins with its burst
	a.in = newShaper(func() { a.hit(ofIn) })
	a.out = newShaper(func() { a.hit(ofOut) })
	a.bound(b)
	return a
}

// bound puts other bounds into force.
func (a *account) bound(b bounds) {
	old := a.bounds.Swap(&b)
	if old != nil && (old.dials != b.dials || old.burst != b.burst) {
		each, burst := limiterOf(b)
		a.dials.SetBurst(burst)
		a.dials.SetLimit(each)
	}
	a.in.setRate(b.in)
	a.out.setRate(b.out)
}

func limiterOf(b bounds) (each rate.Limit, burst int) {
	if each = rate.Limit(b.dials); b.dials == unbounded {
		each = rate.Inf
	}
	return each, int(min(b.burst, math.MaxInt32))
}

// hit counts that a bound held somebody up.
func (a *account) hit(k resource) {
	a.hits[k].Add(1)
	a.counted(a.scope, k)
}

// begin takes a place for a dial and the stream that it shall become. With a wait
// the place is held: until its turn comes, which is within its patience, or with an
// error until it is told of the refusal.
func (a *account) begin(patience time.Duration) (t turn, err error) {
	a.newest.Store(time.Now().UnixNano())
	b := a.bounds.Load()
	if !take(&a.pending, b.pending) {
		return turn{}, a.refuse(ofPending, b.pending, 0)
	}
	if !take(&a.streams, b.streams) {
		a.pending.Add(-1)
		return turn{}, a.refuse(ofStreams, b.streams, 0)
	}
	// The last of all, so that what has no place costs no dial of the rate.
	t, ok := a.dial(patience)
	switch {
	case ok && t.wait == 0:
		return t, nil
	case ok:
		a.hit(ofDials)
		return t, nil
	}
	if patience == 0 {
		a.end()
	}
	return turn{wait: patience}, a.refuse(ofDials, b.dials, t.wait)
}

// turn is when a dial may begin.
type turn struct {
	wait time.Duration
	held *rate.Reservation // may be given back; nil if there is none
}

// dial takes the next dial of the rate, if its turn comes within so long, and says when.
func (a *account) dial(patience time.Duration) (t turn, ok bool) {
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

// letGo gives a turn back that nobody waits for any more.
func (a *account) letGo(t turn) {
	if t.held != nil {
		a.rate.Lock()
		defer a.rate.Unlock()
		t.held.CancelAt(time.Now())
	}
}

// end gives back what begin took.
func (a *account) end() {
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
func (a *account) refuse(k resource, most int64, wait time.Duration) *fault.Fault {
	a.hit(k)
	f := fault.Newf(fault.CodeLimit, "%s may %s", a.label(), [resources]string{
		ofSessions: fmt.Sprintf("have %d %s", most, a.links()),
		ofStreams:  fmt.Sprintf("have %d streams", most),
		ofPending:  fmt.Sprintf("have %d dials under way", most),
		ofDials:    fmt.Sprintf("make %d dials a second", most),
		ofUnread:   fmt.Sprintf("leave %s unread", sizeText(most)),
	}[k]).Whyf("the bound %s.%s is reached", a.scope, k)
	switch k {
	case ofDials:
		wait = max(wait.Round(time.Millisecond), time.Millisecond)
		return f.Hint("try again in %v; 'tombolo status %s' shows what is used", wait, a.name).After(wait)
	case ofPending:
		return f.Hint("the targets may be dead: look at 'tombolo status %s'", a.name)
	case ofUnread:
		return f.Hint("someone reads slowly, or not at all; try again when that has ended")
	}
	return f.Hint("close what is not needed, or raise limits.%s.%s; 'tombolo status %s' shows what is used", a.scope, k, a.name)
}

func (a *account) links() string {
	if a.scope == scopeCaller {
		return "connections"
	}
	return "sessions"
}

func (a *account) label() string {
	if a.scope == scopeCluster {
		return "cluster " + a.name
	}
	return string(a.scope) + " " + a.who
}

// idle says that the account knows nothing that matters: nothing is open or about to
// be, and what its rates had granted is there again.
func (a *account) idle(now time.Time, kept time.Duration) bool {
	return a.sessions.Load()|a.streams.Load()|a.coming.Load()|a.unread.Load() == 0 && now.UnixNano()-a.newest.Load() > int64(kept)
}

// sizeText renders bytes in the largest unit of the configuration that fits.
func sizeText(n int64) string {
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
