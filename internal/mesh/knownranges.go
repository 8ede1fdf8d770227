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
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// knownRanges are the ranges of all members that this node has learned of. A range that was once
// a member's is never sent in clear because the member is silent: it stays closed until the
// member comes back or leaves with a farewell, another member has it, the operator opens it, or
// its time is over.
type knownRanges struct {
	Own     []netip.Prefix `json:"own,omitempty"` // of this node, when it ran last
	Members []knownMember  `json:"members,omitempty"`
}

// knownMember has the ranges of one member.
type knownMember struct {
	ID       string         `json:"id"`
	Keys     []string       `json:"keys"` // tier and id, by which it is recognised when it is back
	Node     string         `json:"node,omitempty"`
	Ranges   []netip.Prefix `json:"ranges"`
	Excluded []netip.Prefix `json:"excluded,omitempty"`
	First    time.Time      `json:"first"`           // when it was first known
	Keyed    bool           `json:"keyed,omitempty"` // it had a key: what was sent to it went into the mesh
	Gone     time.Time      `json:"gone,omitzero"`   // since when it is silent, or present without its key
}

// closed reports whether the member is gone, or has no key any more.
func (m *knownMember) closed() bool { return !m.Gone.IsZero() }

// age is for how long a member was present. The youngest are forgotten first, so that names
// that come and go displace nobody.
func (m *knownMember) age(now time.Time) time.Duration {
	if m.closed() {
		return m.Gone.Sub(m.First)
	}
	return now.Sub(m.First)
}

// keyOf qualifies an id with its tier: in a lower tier anybody may use another member's id.
func keyOf(tier roster.Tier, id string) string { return tier.String() + "/" + id }

// keysOfMember are the keys by which a member is recognised: entries that it has signed, or that
// an operator has written. An entry of a lower tier that shares its name is no sign of life.
func keysOfMember(m *roster.Member) []string {
	out := []string{keyOf(m.Tier, m.ID)}
	for _, e := range m.Entries {
		if k := keyOf(e.Source.Tier, e.ID); e.Source.Tier >= roster.TierNative && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// rangeBounds bound what is kept.
type rangeBounds struct {
	most    time.Duration // for how long a range stays closed
	members int
	ranges  int
}

// next is what is known after a look at the members, and how many were left out for lack of room.
func (known knownRanges) next(r roster.Result, now time.Time, bounds rangeBounds) (out knownRanges, left int) {
	out.Own = known.Own
	before := map[string]*knownMember{}
	for i := range known.Members {
		for _, k := range known.Members[i].Keys {
			before[k] = &known.Members[i]
		}
	}
	replaced := map[string]bool{} // keys of members of which the old record goes
	for _, id := range r.Removed {
		replaced[keyOf(roster.TierNative, id)] = true
	}
	replaced[keyOf(roster.TierNative, r.Self.ID)] = true
	for i := range r.Members {
		m := &r.Members[i]
		l := knownMember{ID: m.ID, Keys: keysOfMember(m), Node: m.Node, Ranges: m.Ranges, Excluded: m.Excluded, First: now,
			Keyed: m.Key != member.Key{}}
		for _, e := range m.Entries {
			if e.Source.Tier >= roster.TierNative {
				replaced[keyOf(e.Source.Tier, e.Succeeds)] = true
			}
		}
		for _, k := range l.Keys {
			replaced[k] = true
			was := before[k]
			if was == nil {
				continue
			}
			if was.First.Before(l.First) {
				l.First = was.First
			}
			if !l.Keyed && was.Keyed {
				l.closeWithoutKey(was.Gone, now, bounds.most)
			}
		}
		if len(l.Ranges) > 0 {
			out.Members = append(out.Members, l)
		}
	}
	for _, l := range known.Members {
		if slices.ContainsFunc(l.Keys, func(k string) bool { return replaced[k] }) {
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

// closeWithoutKey closes the ranges of a member that is present without the key that it had: a
// node that starts again may announce its ranges before its key. That is no farewell, and counts
// as silence does.
func (m *knownMember) closeWithoutKey(since, now time.Time, most time.Duration) {
	if since.IsZero() {
		since = now
	}
	if now.Sub(since) < most {
		m.Keyed, m.Gone = true, since
	}
}

// bounded keeps the oldest members, ordered by id.
func bounded(all []knownMember, now time.Time, b rangeBounds) (out []knownMember, left int) {
	slices.SortStableFunc(all, func(x, y knownMember) int {
		if d := y.age(now) - x.age(now); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(x.ID, y.ID)
	})
	ranges := 0
	for _, l := range all {
		if ranges += len(l.Ranges) + len(l.Excluded); len(out) == b.members || ranges > b.ranges {
			break
		}
		out = append(out, l)
	}
	left = len(all) - len(out)
	slices.SortFunc(out, func(x, y knownMember) int { return strings.Compare(x.ID, y.ID) })
	return out, left
}

// closed are the ranges of members that are gone.
func (known knownRanges) closed() []topology.Closed {
	var out []topology.Closed
	for _, l := range known.Members {
		if l.closed() {
			out = append(out, topology.Closed{ID: l.ID, Node: l.Node, Ranges: l.Ranges, Excluded: l.Excluded})
		}
	}
	return out
}

// forget opens the ranges of members that are gone, by the id or the name of the node.
func (known knownRanges) forget(name string) (out knownRanges, opened []netip.Prefix, err error) {
	out, found := known, false
	out.Members = slices.DeleteFunc(slices.Clone(known.Members), func(l knownMember) bool {
		is := l.closed() && (l.Node == name || l.ID == name)
		if is {
			found, opened = true, append(opened, l.Ranges...)
		}
		return is
	})
	if !found {
		return known, nil, fault.Newf(fault.CodeNotFound, "no range of %.80q is closed", name).
			Hint("'tombolo mesh status' lists whose ranges are; what a member that is there has is excluded with mesh.exclude")
	}
	return out, opened, nil
}

// same reports whether both give the same file.
func (known knownRanges) same(o knownRanges) bool {
	x, err1 := json.Marshal(known)
	y, err2 := json.Marshal(o)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// lacks reports whether a start from this file would open something: it does not have the ranges
// of a present member with a key as they are now.
func (known knownRanges) lacks(now knownRanges) bool {
	filed := make(map[string]*knownMember, len(known.Members))
	for i := range known.Members {
		filed[known.Members[i].Keys[0]] = &known.Members[i]
	}
	return slices.ContainsFunc(now.Members, func(l knownMember) bool {
		was := filed[l.Keys[0]]
		return l.Keyed && (was == nil || !was.Keyed || !slices.Equal(was.Ranges, l.Ranges) ||
			!slices.Equal(was.Excluded, l.Excluded))
	})
}

// newlyClosed are the members that are closed now and were not before.
func (known knownRanges) newlyClosed(before knownRanges) (out []knownMember) {
	was := map[string]bool{}
	for _, l := range before.Members {
		was[l.Keys[0]] = l.closed()
	}
	for _, l := range known.Members {
		if l.closed() && !was[l.Keys[0]] {
			out = append(out, l)
		}
	}
	return out
}

// readKnownRanges reads what the last run knew. A missing file is no mistake; one that cannot be
// read is: ranges of silent members would be sent in clear.
func readKnownRanges(dir string) (knownRanges, error) {
	path := filepath.Join(dir, knownRangesFile)
	text, err := private.ReadPublic(path, meshLearnedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return knownRanges{}, nil
	}
	if err != nil {
		return knownRanges{}, fault.New(fault.CodeStateAccess, "the known ranges are not read").Because(err).
			Hint("run as the user that owns %s", path)
	}
	return parseKnownRanges(path, text)
}

func parseKnownRanges(path string, text []byte) (knownRanges, error) {
	var out knownRanges
	err := json.Unmarshal(text, &out)
	if err == nil && (len(out.Members) > meshLearned || slices.ContainsFunc(out.Members,
		func(l knownMember) bool { return l.ID == "" || len(l.Keys) == 0 })) {
		err = errors.New("it is none of ours")
	}
	if err != nil {
		return knownRanges{}, fault.New(fault.CodeStateCorrupt, "the known ranges in "+path+" cannot be read").Because(err).
			Hint("remove the file: ranges of nodes that are gone are no longer closed then")
	}
	return out, nil
}

func (known knownRanges) write(dir string) error {
	text, err := json.Marshal(known)
	if err != nil {
		return fault.New(fault.CodeInternal, "the known ranges are not encoded").Because(err)
	}
	path := filepath.Join(dir, knownRangesFile)
	return written(path, store.Write(path, append(text, '\n')))
}

// rangeMemory is what is known of ranges, and how much of it is on disk.
type rangeMemory struct {
	known, onDisk knownRanges
	tried         time.Time // when known was last brought to disk, or was there already
	failed        error     // why it is not on disk
	left          int       // members for which there was no room
}

// learn takes over the present members. With write it is to be written before anything is routed:
// a killed node would open the ranges of a new member at its next start. Members of a crowd are
// written together.
func (m rangeMemory) learn(r roster.Result, now time.Time, most time.Duration) (next rangeMemory, write bool) {
	next = m
	next.known, next.left = m.known.next(r, now, rangeBounds{most, meshLearned, meshLearnedRanges})
	since := now.Sub(m.tried).Abs()
	closing := len(next.known.closed()) != len(m.known.closed())
	if since < meshQuiet && !closing && (since < next.pause() || !m.onDisk.lacks(next.known)) {
		return next, false
	}
	next.tried = now
	return next, next.unwritten()
}

// again is after how long to learn again, because not all is on disk; 0: all is.
func (m rangeMemory) again(now time.Time) time.Duration {
	if !m.onDisk.lacks(m.known) {
		return 0
	}
	return max(m.pause()-now.Sub(m.tried).Abs(), meshGather)
}

// pause is for how long a file that was just written is left alone, though a member has come:
// members that come one by one do not cost a write of all of them each.
func (m rangeMemory) pause() time.Duration {
	if m.failed != nil {
		return meshQuiet
	}
	return min(meshQuiet, time.Duration(len(m.known.Members))*meshLearnedPause)
}

// unwritten reports whether the file differs from what is known.
func (m rangeMemory) unwritten() bool { return !m.onDisk.same(m.known) }

// wrote notes how a write of what is known has ended.
func (m rangeMemory) wrote(err error) rangeMemory {
	if m.failed = err; err == nil {
		m.onDisk = m.known
	}
	return m
}
