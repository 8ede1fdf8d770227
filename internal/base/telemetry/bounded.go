// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// LeftOut is the message of the line that counts suppressed lines.
const LeftOut = "lines of the log were left out"

// bounded is the log handler of a role. A peer may control what a line says, and how often
// it is written. So of each kind of line, which is its message and its fault code, the
// first of a minute are written, and the rest are counted in one line at its end. Nobody
// who causes lines can use up the share of others: see Ration. The groups are clusters. In
// a group each agent, node, caller or identity has its own bound; unauthenticated peers, of
// which the line has only the address, share one. A line that names nobody is caused by
// this program or its operator.
type bounded struct {
	slog.Handler
	who    causer // as far as the attributes of With identify it
	within bool   // in a group of attributes, which do not identify the causer
	lines  *lines
}

// causer identifies, by the attributes of a line, the party that has caused it.
type causer struct {
	code, cluster, name string
	address             bool
}

func (c *causer) see(a slog.Attr) {
	switch a.Key {
	case AttrCluster:
		c.cluster = a.Value.String()
	case AttrAgent, AttrNode, AttrCaller, AttrIdentity:
		c.name = a.Value.String()
	case AttrPeer:
		c.address = true
	case AttrCode:
		c.code = Outcome(fault.Code(a.Value.String()))
	}
}

func (c causer) one() string {
	if c.name == "" && c.address {
		return "unauthenticated"
	}
	return c.name
}

// lines counts written and suppressed lines.
type lines struct {
	mu    sync.Mutex
	begun time.Time
	kinds map[lineKind]*counted
	out   slog.Handler
}

// lineKind is the key under which lines are counted together.
type lineKind struct {
	level         slog.Level
	message, code string
}

type counted struct {
	ration Ration
	left   map[string]*leftOut // by cluster
}

type leftOut struct {
	n     int64
	since time.Time
}

func newBounded(h slog.Handler) *bounded {
	return &bounded{Handler: h, lines: &lines{kinds: map[lineKind]*counted{}, out: h}}
}

func (b *bounded) WithAttrs(as []slog.Attr) slog.Handler {
	next := *b
	next.Handler = b.Handler.WithAttrs(as)
	if !b.within {
		for _, a := range as {
			next.who.see(a)
		}
	}
	return &next
}

func (b *bounded) WithGroup(name string) slog.Handler {
	next := *b
	next.Handler, next.within = b.Handler.WithGroup(name), b.within || name != ""
	return &next
}

func (b *bounded) Handle(ctx context.Context, r slog.Record) error {
	who := b.who
	if !b.within {
		r.Attrs(func(a slog.Attr) bool {
			who.see(a)
			return true
		})
	}
	write, sums := b.lines.take(r, who)
	for _, sum := range sums {
		if err := b.lines.out.Handle(ctx, sum); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	return b.Handler.Handle(ctx, r)
}

// take reports whether to write a line, and returns the sums of a minute that is over.
func (l *lines) take(r slog.Record, who causer) (write bool, sums []slog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Time.Sub(l.begun) >= limit.LogTold {
		sums = l.turn(r.Time)
	}
	kind := lineKind{r.Level, r.Message, who.code}
	c := l.kinds[kind]
	if c == nil && len(l.kinds) >= logKinds {
		kind = lineKind{level: r.Level}
		c = l.kinds[kind]
	}
	if c == nil {
		c = &counted{rationAt(r.Level), map[string]*leftOut{}}
		l.kinds[kind] = c
	}
	write, group := c.ration.Take(who.cluster, who.one())
	if write {
		return true, sums
	}
	left := c.left[group]
	if left == nil {
		left = &leftOut{since: r.Time}
		c.left[group] = left
	}
	left.n++
	return false, sums
}

func rationAt(level slog.Level) Ration {
	times := 1
	if level < slog.LevelInfo { // debug lines are not bounded
		times = limit.LogDebug
	}
	return Ration{
		Each: times * limit.LogEach, Group: times * logGroup, All: times * logAll,
		Share: times * logShare, Groups: logGroups,
	}
}

// turn starts a new minute and returns the sums of the last one.
func (l *lines) turn(now time.Time) (sums []slog.Record) {
	order := slices.SortedFunc(maps.Keys(l.kinds), func(a, b lineKind) int {
		return cmp.Or(cmp.Compare(a.message, b.message), cmp.Compare(a.code, b.code), cmp.Compare(a.level, b.level))
	})
	for _, kind := range order {
		left := l.kinds[kind].left
		for _, group := range slices.Sorted(maps.Keys(left)) {
			r := slog.NewRecord(now, kind.level, LeftOut, 0)
			r.AddAttrs(slog.String("line", cmp.Or(kind.message, "others")),
				slog.Int64("count", left[group].n), slog.Time("since", left[group].since))
			if kind.code != "" {
				r.AddAttrs(slog.String(AttrCode, kind.code))
			}
			if group != "" {
				r.AddAttrs(slog.String(AttrCluster, group))
			}
			sums = append(sums, r)
		}
	}
	l.begun = now
	clear(l.kinds)
	return sums
}

// TurnLog writes how many lines a logger from Logger has suppressed so far. A role calls it
// each minute and at its end: otherwise the counts wait for the next line.
func TurnLog(ctx context.Context, log *slog.Logger, now time.Time) {
	b, is := log.Handler().(*bounded)
	if !is {
		return
	}
	b.lines.mu.Lock()
	sums := b.lines.turn(now)
	b.lines.mu.Unlock()
	for _, sum := range sums {
		if b.lines.out.Handle(ctx, sum) != nil {
			return
		}
	}
}

// Texts is a handler for libraries that log formatted texts, such as net/http: a text may
// contain a peer's words, so it becomes an attribute of a line with a fixed message.
func Texts(log *slog.Logger, message string) slog.Handler { return texts{log.Handler(), message} }

type texts struct {
	slog.Handler
	message string
}

func (t texts) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, t.message, r.PC)
	line.AddAttrs(slog.String("text", r.Message))
	return t.Handler.Handle(ctx, line)
}
