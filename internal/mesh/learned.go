// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// learned are the ranges of all members that were heard of, and for how long they count. A
// range that was once a member's is never sent in clear because nobody speaks of it: it
// stays closed until the member comes back or has said farewell, somebody else has it, the
// operator opens it, or the time is over.
type learned struct {
	Own     []netip.Prefix `json:"own,omitempty"` // that this node had when it ran last
	Members []lesson       `json:"members,omitempty"`
}

// lesson is what is behind one member.
type lesson struct {
	ID       string         `json:"id"`
	Keys     []string       `json:"keys"` // by which it is known to be back: tier and id
	Node     string         `json:"node,omitempty"`
	Ranges   []netip.Prefix `json:"ranges"`
	Excluded []netip.Prefix `json:"excluded,omitempty"`
	First    time.Time      `json:"first"`           // since when it is known
	Keyed    bool           `json:"keyed,omitempty"` // it has had a key: what was sent there went into the mesh
	Gone     time.Time      `json:"gone,omitzero"`   // since when nothing is heard of it, or it is there without the key
}

// closed says whether a member is gone, or has no key any more.
func (l *lesson) closed() bool { return !l.Gone.IsZero() }

// span is for how long a member was heard of: of whom it was for the shortest time is
// forgotten first, so that nobody displaces others by names that come and go.
func (l *lesson) span(now time.Time) time.Duration {
	if l.closed() {
		return l.Gone.Sub(l.First)
	}
	return now.Sub(l.First)
}

// keyOf tells ids apart by who can say them: in a lower tier another's id may stand.
func keyOf(tier roster.Tier, id string) string { return tier.String() + "/" + id }

// keysOfMember are those by which a member is known again: what it has signed, or an
// operator has written. What joins it by its name in a lower tier is no sign that it lives.
func keysOfMember(m *roster.Member) []string {
	out := []string{keyOf(m.Tier, m.ID)}
	for _, e := range m.Entries {
		if k := keyOf(e.Source.Tier, e.ID); e.Source.Tier >= roster.TierNative && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// keeping are the bounds of what is learned.
type keeping struct {
	most    time.Duration // for how long a range stays closed
	members int
	ranges  int
}

// next is what is known after a look at the members, and what was left out of it because
// there is too much.
func (b learned) next(r roster.Result, now time.Time, bounds keeping) (out learned, left int) {
	out.Own = b.Own
	before := map[string]*lesson{}
	for i := range b.Members {
		for _, k := range b.Members[i].Keys {
			before[k] = &b.Members[i]
		}
	}
	gone := map[string]bool{} // for which nothing is to stay
	for _, id := range r.Removed {
		gone[keyOf(roster.TierNative, id)] = true
	}
	gone[keyOf(roster.TierNative, r.Self.ID)] = true
	for i := range r.Members {
		m := &r.Members[i]
		l := lesson{ID: m.ID, Keys: keysOfMember(m), Node: m.Node, Ranges: m.Ranges, Excluded: m.Excluded, First: now, Keyed: m.Key != roster.Key{}}
		for _, e := range m.Entries {
			if e.Source.Tier >= roster.TierNative {
				gone[keyOf(e.Source.Tier, e.Succeeds)] = true
			}
		}
		for _, k := range l.Keys {
			gone[k] = true
			was := before[k]
			if was == nil {
				continue
			}
			if was.First.Before(l.First) {
				l.First = was.First
			}
			if !l.Keyed && was.Keyed {
				l.unkeyed(was.Gone, now, bounds.most)
			}
		}
		if len(l.Ranges) > 0 {
			out.Members = append(out.Members, l)
		}
	}
	for _, l := range b.Members {
		if slices.ContainsFunc(l.Keys, func(k string) bool { return gone[k] }) {
			continue
		}
		if !l.closed() {
			l.Gone = now
		}
		if now.Sub(l.Gone) < bounds.most {
			out.Members = append(out.Members, l)
		}
	}
	out.Members, left = bounded(out.Members, now, bounds)
	return out, left
}

// unkeyed closes the ranges of a member that is there without the key that it has had: a node
// that starts again may say its ranges before it says who it is in the mesh. That was no
// farewell, and counts for as long as silence does.
func (l *lesson) unkeyed(since, now time.Time, most time.Duration) {
	if since.IsZero() {
		since = now
	}
	if now.Sub(since) < most {
		l.Keyed, l.Gone = true, since
	}
}

// bounded keeps whom it knows for the longest time, in the order of ids.
func bounded(all []lesson, now time.Time, k keeping) (out []lesson, left int) {
	slices.SortStableFunc(all, func(a, b lesson) int {
		if d := b.span(now) - a.span(now); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a.ID, b.ID)
	})
	ranges := 0
	for _, l := range all {
		if ranges += len(l.Ranges) + len(l.Excluded); len(out) == k.members || ranges > k.ranges {
			break
		}
		out = append(out, l)
	}
	left = len(all) - len(out)
	slices.SortFunc(out, func(a, b lesson) int { return strings.Compare(a.ID, b.ID) })
	return out, left
}

// closed are the ranges of members that are gone.
func (b learned) closed() []topology.Closed {
	var out []topology.Closed
	for _, l := range b.Members {
		if l.closed() {
			out = append(out, topology.Closed{ID: l.ID, Node: l.Node, Ranges: l.Ranges, Excluded: l.Excluded})
		}
	}
	return out
}

// without is what is known without a member that is gone, by its id or the name of its
// node, and how many of that name there were.
func (b learned) without(name string) (out learned, n int) {
	out = b
	out.Members = slices.DeleteFunc(slices.Clone(b.Members), func(l lesson) bool {
		is := l.closed() && (l.Node == name || l.ID == name)
		if is {
			n++
		}
		return is
	})
	return out, n
}

// same says whether two would be the same file.
func (b learned) same(o learned) bool {
	x, err1 := json.Marshal(b)
	y, err2 := json.Marshal(o)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// lacks says whether a file would open something after a kill: ranges of who is there with a key
// are not in it as they are.
func (b learned) lacks(now learned) bool {
	known := make(map[string]*lesson, len(b.Members))
	for i := range b.Members {
		known[b.Members[i].Keys[0]] = &b.Members[i]
	}
	return slices.ContainsFunc(now.Members, func(l lesson) bool {
		was := known[l.Keys[0]]
		return l.Keyed && (was == nil || !was.Keyed || !slices.Equal(was.Ranges, l.Ranges) || !slices.Equal(was.Excluded, l.Excluded))
	})
}

// pause is for how long a file that was just written is left alone, though somebody has come: a
// crowd of whom each comes at another moment costs a write of all of them in a while.
func (b learned) pause() time.Duration {
	return min(limit.MeshQuiet, time.Duration(len(b.Members))*limit.MeshLearnedPause)
}

// readLearned reads what the last run knew. That there is none yet is no mistake; what
// cannot be read is: ranges that nobody speaks of would be sent in clear.
func readLearned(dir string) (learned, error) {
	path := filepath.Join(dir, learnedFile)
	text, err := private.ReadPublic(path, limit.MeshLearnedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return learned{}, nil
	}
	if err != nil {
		return learned{}, fault.New(fault.CodeStateAccess, "the known ranges are not read").Because(err).Hint("run as the user that owns %s", path)
	}
	return parseLearned(path, text)
}

func parseLearned(path string, text []byte) (learned, error) {
	var out learned
	err := json.Unmarshal(text, &out)
	if err == nil && (len(out.Members) > limit.MeshLearned || slices.ContainsFunc(out.Members, func(l lesson) bool { return l.ID == "" || len(l.Keys) == 0 })) {
		err = errors.New("it is none of ours")
	}
	if err != nil {
		return learned{}, fault.New(fault.CodeStateCorrupt, "the known ranges in "+path+" cannot be read").Because(err).
			Hint("remove the file: ranges of nodes that are gone are no longer closed then")
	}
	return out, nil
}

func (b learned) write(dir string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fault.New(fault.CodeInternal, "the known ranges are not encoded").Because(err)
	}
	path := filepath.Join(dir, learnedFile)
	return written(path, store.Write(path, append(text, '\n')))
}

// learn takes over who is there now, and says after how long it wants to be asked again, as not
// all of that is on disk; 0, if it is. Who has come is on disk before anything is routed there,
// but in a crowd: a killed node would open its ranges at the next start. What cannot be written
// counts all the same, until the end of this process.
func (m *Mesh) learn(r roster.Result, now time.Time) (again time.Duration) {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	was := m.learned
	k := keeping{m.set.ClosedFor, limit.MeshLearned, limit.MeshLearnedRanges}
	m.mu.Unlock()
	next, left := was.next(r, now, k)
	m.mu.Lock()
	m.learned, m.unlearned = next, left
	since, lacks, pause := now.Sub(m.keptAt).Abs(), m.onDisk.lacks(next), next.pause()
	if m.unkept != nil {
		pause = limit.MeshQuiet
	}
	m.mu.Unlock()
	if since >= limit.MeshQuiet || len(next.closed()) != len(was.closed()) || lacks && since >= pause {
		m.keepLearned(next, now)
		since = 0
	}
	m.tellClosed(was, next)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.onDisk.lacks(next) {
		return 0
	}
	if m.unkept != nil {
		pause = limit.MeshQuiet
	}
	return max(pause-since, limit.MeshGather)
}

// keepLast writes what the end of the process would lose.
func (m *Mesh) keepLast() {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	now := m.learned
	m.mu.Unlock()
	m.keepLearned(now, time.Now())
}

// had remembers the ranges of this node with which it runs.
func (m *Mesh) had(own []netip.Prefix) {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	was := m.learned
	m.mu.Unlock()
	next := was
	next.Own = slices.Clone(own)
	m.keepLearned(next, time.Now())
}

// keepLearned puts what is known on disk, if that has something else. Who calls it holds
// learning.
func (m *Mesh) keepLearned(next learned, now time.Time) {
	m.mu.Lock()
	m.learned, m.keptAt = next, now
	same := m.onDisk.same(next)
	m.mu.Unlock()
	if same {
		return
	}
	err := next.write(m.cfg.StateDir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.onDisk = next
	}
	if err != nil && m.unkept == nil {
		m.log.Error("the known ranges are not kept: a restart sends those of nodes that are gone in clear", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
	}
	m.unkept = err
}

// tellClosed logs whose ranges are closed from now on, and whose are open again.
func (m *Mesh) tellClosed(was, next learned) {
	before := map[string]bool{}
	for _, l := range was.Members {
		before[l.Keys[0]] = l.closed()
	}
	told := 0
	for _, l := range next.Members {
		if l.closed() && !before[l.Keys[0]] && told < limit.RoutingTold {
			told++
			m.log.Warn("nothing is heard of a member, or of its key, any more: its ranges are closed, and packets for them are lost", "node", l.Node, "id", l.ID, "ranges", l.Ranges)
		}
	}
}

// Forget opens the ranges of a member that is gone: its packets go by this machine's own
// routes from then on.
func (m *Mesh) Forget(name string) (Forgotten, error) {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	was := m.learned
	m.mu.Unlock()
	next, n := was.without(name)
	if n == 0 {
		return Forgotten{}, fault.Newf(fault.CodeNotFound, "no range of %.80q is closed", name).
			Hint("'tombolo mesh status' lists whose ranges are; what a member that is there has is excluded with mesh.exclude")
	}
	out := Forgotten{Meta: meta(KindForgotten), Node: name}
	for _, l := range was.Members {
		if l.closed() && !slices.ContainsFunc(next.Members, func(o lesson) bool { return o.Keys[0] == l.Keys[0] }) {
			out.Ranges = append(out.Ranges, l.Ranges...)
		}
	}
	m.keepLearned(next, time.Now())
	m.log.Warn("closed ranges are opened", "node", name, "ranges", out.Ranges)
	ring(m.look)
	return out, nil
}
