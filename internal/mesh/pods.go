// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// assigned is what Kubernetes has reported about this machine's Node. It is kept on disk: a node that
// starts while the API server is away announces what it did before.
type assigned struct {
	Node   string    `json:"node"`
	UID    string    `json:"uid,omitempty"` // empty: there is no such Node
	Ranges []string  `json:"ranges,omitempty"`
	Said   time.Time `json:"said"` // when it was said last
}

// podRanges are the ranges of this node's pods: what Kubernetes says, and what of it is announced.
type podRanges struct {
	said     assigned // Node is empty: none are announced
	written  time.Time
	lost     []lost // given up until the API server is heard again
	ranges   []netip.Prefix
	problems []Problem
}

// readPods reads what Kubernetes reported earlier about a Node. A file that is no longer needed is
// removed: later it would be out of date. With broken, which says why the file cannot be read,
// no range of the pods is announced until the API server is heard.
func readPods(dir, node string) (p podRanges, broken, err error) {
	p.said = assigned{Node: node}
	file := filepath.Join(dir, podsFile)
	if node == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, nil, written(file, err)
		}
		return p, nil, nil
	}
	text, err := private.ReadPublic(file, limit.PrivateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil, nil
	}
	if err == nil {
		p.said, err = parsePods(text, node)
	}
	if err != nil {
		broken = fault.New(fault.CodeStateCorrupt, "the ranges of pods in "+file+" cannot be read").Because(err).
			Hint("nothing needs to be done while the API server answers: it reports them again; " +
				"until then none of them is announced")
	}
	return p, broken, nil
}

// parsePods reads a file of the state directory. What another Node had is ignored.
func parsePods(text []byte, node string) (assigned, error) {
	var a assigned
	none := assigned{Node: node}
	if err := json.Unmarshal(text, &a); err != nil {
		return none, err
	}
	if a.Node == "" || a.Said.IsZero() || a.UID == "" && len(a.Ranges) > 0 || len(a.Ranges) > limit.PodRanges+1 {
		return none, errors.New("it is not what the API server reports about a Node")
	}
	if a.Node != node {
		return none, nil
	}
	return a, nil
}

func (a assigned) write(dir string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fault.New(fault.CodeInternal, "the ranges of pods are not encoded").Because(err)
	}
	path := filepath.Join(dir, podsFile)
	return written(path, store.Write(path, append(text, '\n')))
}

// hear takes what Kubernetes reports about the Node, and says whether it is new, and whether it is to
// be written.
func (p podRanges) hear(a assigned) (next podRanges, fresh, write bool) {
	if p.said.Node == "" || a.Said.Equal(p.said.Said) {
		return p, false, false
	}
	fresh = p.said.UID != a.UID || !slices.Equal(p.said.Ranges, a.Ranges) || p.said.Said.IsZero()
	write = fresh || a.Said.Sub(p.written).Abs() >= podRangeLease/3
	p.said, p.lost = assigned{p.said.Node, a.UID, a.Ranges, a.Said}, nil
	if write {
		p.written = a.Said
	}
	return p, fresh, write
}

// judge decides which ranges are announced, and gives the problems that are new. A range that is
// given up to another member is not taken back before the API server is heard: two nodes would
// take it from each other forever.
func (p podRanges) judge(
	in podInput, own string, members map[string]*roster.Member, now time.Time,
) (next podRanges, fresh []Problem) {
	if now.Sub(p.said.Said).Abs() > podRangeLease {
		given := slices.Clone(p.lost)
		for _, l := range lostTo(p.said.Ranges, own, p.said.Node, members) {
			if !slices.ContainsFunc(given, func(o lost) bool { return o.text == l.text }) {
				given = append(given, l)
			}
		}
		p.lost = given
	}
	before := p.problems
	in.texts, in.lost = p.said.Ranges, p.lost
	p.ranges, p.problems = judgePods(in)
	for _, q := range p.problems {
		if !slices.Contains(before, q) {
			fresh = append(fresh, q)
		}
	}
	return p, fresh
}

// judgePods decides which ranges of this node's pods are announced.
func (s *state) judgePods(now time.Time, do *effects) {
	if said := s.world.pods; said != nil {
		next, fresh, write := s.pods.hear(*said)
		if s.pods = next; fresh {
			do.logs(slog.LevelInfo, "Kubernetes says which ranges the pods of this node have", "node", next.said.Node,
				"uid", next.said.UID, "ranges", next.said.Ranges)
		}
		if write {
			do.pods = &next.said
		}
	}
	if len(s.pods.said.Ranges) == 0 && len(s.pods.ranges) == 0 && len(s.pods.problems) == 0 {
		return
	}
	next, fresh := s.pods.judge(s.podInput(), s.base.Node, s.members, now)
	s.pods = next
	for _, q := range fresh {
		do.logs(slog.LevelWarn, "a range of this node's pods is not announced", telemetry.AttrCode, fault.CodeRange,
			"range", prefixText(q.Range), telemetry.AttrReason, q.Why)
	}
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// podInput is what ranges of pods are judged by.
func (s *state) podInput() podInput {
	in := podInput{
		stated: s.base.Ranges, excluded: s.base.Excluded, accept: s.set.Options.Accept,
		overlay: []netip.Prefix{s.overlay.Prefix, s.cfg.Options.Overlay4},
		places:  placesOf(s.world.interfaces, s.set.Without, s.cfg.Options.Link, s.world.local),
	}
	for _, a := range s.base.Addresses {
		in.places = append(in.places, place{a, "an address that this node announces"})
	}
	for _, e := range slices.Concat(s.base.Endpoints, s.saying().endpoints) {
		if e.Kind != member.KindOwn {
			in.places = append(in.places, place{e.Addr.Addr().Unmap(), "an endpoint of this node"})
		}
	}
	return in
}

// into adds ranges and what is wrong with them to the status.
func (p podRanges) into(s *Status, stated []netip.Prefix, now time.Time) {
	s.Announced = announcedOf(stated, p.ranges)
	for _, q := range p.problems {
		q.Node = s.Node
		s.Problems = append(s.Problems, q)
	}
	if w := podWarning(p.said, now); w != "" {
		s.Warnings = append(s.Warnings, w)
	}
}

// count is for the metrics.
func (p podRanges) count(state string) float64 {
	if state == "announced" {
		return float64(len(p.ranges))
	}
	return float64(len(p.problems))
}
