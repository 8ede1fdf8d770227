// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// What a line of a watch says beside what happens to members.
const (
	Listed roster.Happening = "listed" // the lines before were all that is known
	Lost   roster.Happening = "lost"   // the reader was too slow: the list begins anew
	Ended  roster.Happening = "ended"  // the member ends
)

// Line is one line of GET /v1/watch.
type Line struct {
	roster.Event
	Fault *admin.FaultBody `json:"fault,omitempty"` // with lost and ended
}

func counter() func(by int) int {
	var n atomic.Int64
	return func(by int) int { return int(n.Add(int64(by))) }
}

func (a *API) watch(w http.ResponseWriter, r *http.Request) {
	if !a.places.TryAcquire() {
		refuse(w, fault.Newf(fault.CodeLimit, "%d follow this member already", mostWatchers).Hint("end one of them"))
		return
	}
	defer a.places.Release()
	a.seats(1)
	defer a.seats(-1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w).Flush
	Tell(r.Context(), a.ending, a.member, func(line []byte, last bool) error {
		if _, err := w.Write(line); err != nil || !last {
			return err
		}
		return flush()
	})
}

// Tell writes all members that are known, and then what happens to them, until ctx
// ends, ending is closed, the reader has lost something, or write fails. What happens
// while write waits for its reader is kept, up to a bound; beyond it the reader learns that once
// it reads again, and has to begin anew. last says that nothing follows at once.
func Tell(ctx context.Context, ending <-chan struct{}, m *discoveryclient.Client,
	write func(line []byte, last bool) error) error {
	return newBacklog().tell(ctx, ending, m, write)
}

func (b *backlog) tell(ctx context.Context, ending <-chan struct{}, m *discoveryclient.Client,
	write func(line []byte, last bool) error) error {
	watcher := m.Watch()
	for _, e := range watcher.Now() { // not kept: a large cluster fills it
		if err := write(encode(Line{Event: e}), false); err != nil {
			return err
		}
	}
	if err := write(encode(Line{Event: roster.Event{What: Listed}}), true); err != nil {
		return err
	}
	g := run.NewGroup(ctx)
	g.Do(func(ctx context.Context) {
		for {
			events, _, err := watcher.Next(ctx)
			if err != nil || !b.add(events) {
				return
			}
		}
	})
	err := b.drain(g.Context(), ending, write)
	g.Stop()
	_ = g.Wait() // the one that watches has no errors
	return err
}

// backlog is what a reader has not taken yet.
type backlog struct {
	mu      sync.Mutex
	lines   bytes.Buffer
	lost    bool
	changed chan struct{} // something was added
}

func newBacklog() *backlog { return &backlog{changed: make(chan struct{}, 1)} }

// add reports false once the reader has lost something.
func (b *backlog) add(events []roster.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.lines.Len()
	for _, e := range events {
		b.lines.Write(encode(Line{Event: e}))
	}
	// A reader that had taken everything is not blamed for what comes in one instant.
	if b.lost = waiting > 0 && b.lines.Len() > backlogBytes; b.lost {
		b.lines = bytes.Buffer{}
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return !b.lost
}

func (b *backlog) take() (lines []byte, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines = b.lines.Bytes()
	b.lines = bytes.Buffer{}
	return lines, b.lost
}

func (b *backlog) drain(ctx context.Context, ending <-chan struct{}, write func([]byte, bool) error) error {
	for {
		select {
		case <-b.changed:
			lines, lost := b.take()
			if lost {
				return write(encode(Line{Event: roster.Event{What: Lost}, Fault: admin.BodyOf(tooSlow())}), true)
			}
			if err := write(lines, true); err != nil {
				return err
			}
		case <-ending:
			f := fault.New(fault.CodeDraining, "the member that is followed ends").
				Hint("follow it again once it is started again")
			return write(encode(Line{Event: roster.Event{What: Ended}, Fault: admin.BodyOf(f)}), true)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func tooSlow() *fault.Fault {
	return fault.New(fault.CodeWatchLost, "this reader was too slow").
		Whyf("more than %d bytes waited for it", backlogBytes).
		Hint("what is known follows anew, after which nobody else is there")
}

func encode(l Line) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(l) // values that we have made ourselves
	return out.Bytes()
}

// Lines calls each for every line that is written to it.
type Lines struct {
	Each func(Line) error
	part []byte
}

var _ io.Writer = (*Lines)(nil)

// Write takes bytes as they come.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if l.part = append(l.part, line...); len(l.part) > lineBytes {
			return 0, unreadable().Whyf("a line has more than %d bytes", lineBytes)
		}
		if !whole {
			return n, nil
		}
		p = rest
		var out Line
		if err := json.Unmarshal(l.part, &out); err != nil {
			return 0, unreadable().Because(err)
		}
		l.part = l.part[:0]
		if err := l.Each(out); err != nil {
			return 0, err
		}
	}
}

func unreadable() *fault.Fault {
	return fault.New(fault.CodeServiceAway, "the answer of the admin socket cannot be read").
		Hint("see whether a member of this version answers there")
}
