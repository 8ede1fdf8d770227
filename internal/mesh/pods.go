// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// assigned is what Kubernetes has said of this machine's Node, as it is kept on disk too: a
// node that starts while the API server is away announces what it did before.
type assigned struct {
	Node   string    `json:"node"`
	UID    string    `json:"uid,omitempty"` // empty: there is no such Node
	Ranges []string  `json:"ranges,omitempty"`
	Said   time.Time `json:"said"` // when it was said last
}

// pods are the ranges of this node's pods.
type pods struct {
	dir string

	mu       sync.Mutex
	said     assigned // Node is empty: none are announced
	written  time.Time
	lost     []lost // given up until the API server is heard again
	ranges   []netip.Prefix
	problems []Problem
}

// readPods reads what was said before of a node; nothing if it is none's, or another one's.
// What nobody wants to know any more is removed: later it would be old. What cannot be read
// is learned anew, and broken says why it cannot: until the API server is heard this node
// announces no range of its pods.
func readPods(dir, node string) (p *pods, broken, err error) {
	p = &pods{dir: dir, said: assigned{Node: node}}
	file := filepath.Join(dir, podsFile)
	if node == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, written(file, err)
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
			Hint("nothing needs to be done while the API server answers: it says them anew; until then none of them is announced")
	}
	return p, broken, nil
}

// parsePods reads a file of the state directory. What is of another Node is none of this
// one's; what cannot be read is none either.
func parsePods(text []byte, node string) (assigned, error) {
	var a assigned
	none := assigned{Node: node}
	if err := json.Unmarshal(text, &a); err != nil {
		return none, err
	}
	if a.Node == "" || a.Said.IsZero() || a.UID == "" && len(a.Ranges) > 0 || len(a.Ranges) > limit.PodRanges+1 {
		return none, errors.New("it is not what the API server says of a Node")
	}
	if a.Node != node {
		return none, nil
	}
	return a, nil
}

// OwnNode is told what Kubernetes says of this machine's Node: each time that it says it,
// also if that is nothing new. Without a uid there is no such Node.
func (m *Mesh) OwnNode(uid string, ranges []string) {
	p, now := m.pods, time.Now().Round(0)
	p.mu.Lock()
	if p.said.Node == "" {
		p.mu.Unlock()
		return
	}
	next := assigned{p.said.Node, uid, slices.Clone(ranges), now}
	same := p.said.UID == uid && slices.Equal(p.said.Ranges, ranges) && !p.said.Said.IsZero()
	again := !same || len(p.lost) > 0
	due := !same || now.Sub(p.written).Abs() >= limit.PodRangeLease/3
	p.said, p.lost = next, nil
	if due {
		p.written = now
	}
	p.mu.Unlock()
	if !same {
		m.log.Info("Kubernetes says which ranges the pods of this node have", "node", next.Node, "uid", uid, "ranges", ranges)
	}
	if due {
		if err := p.write(next); err != nil {
			m.log.Warn("the ranges of pods are not kept: a start without the API server announces none, or old ones", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
		}
	}
	if again {
		ring(m.say)
		ring(m.look)
	}
}

func (p *pods) write(a assigned) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fault.New(fault.CodeInternal, "the ranges of pods are not encoded").Because(err)
	}
	path := filepath.Join(p.dir, podsFile)
	return written(path, store.Write(path, append(text, '\n')))
}

// withPods are the ranges that this node announces: those of the configuration, and of its pods.
func (m *Mesh) withPods(base seal.Member, s saying) []netip.Prefix {
	m.pods.mu.Lock()
	none := len(m.pods.said.Ranges) == 0 && len(m.pods.ranges) == 0 && len(m.pods.problems) == 0
	m.pods.mu.Unlock()
	if none {
		return base.Ranges
	}
	ranges, fresh, changed := m.pods.judge(m.podInput(base, s), m.lostPods())
	if changed {
		ring(m.say)
	}
	for _, q := range fresh {
		m.log.Warn("a range of this node's pods is not announced", telemetry.AttrCode, fault.CodeRange, "range", prefixOf(q.Range), telemetry.AttrReason, q.Why)
	}
	out := slices.Clone(base.Ranges)
	for _, r := range ranges {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

func prefixOf(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// judge decides with what is said now, and gives which problems are new, and whether the ranges are.
func (p *pods) judge(in podInput, claims func(a assigned) []lost) (ranges []netip.Prefix, fresh []Problem, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in.texts = p.said.Ranges
	if time.Since(p.said.Said).Abs() > limit.PodRangeLease {
		for _, l := range claims(p.said) { // who has given a range up does not take it back by itself: two would forever
			if !slices.ContainsFunc(p.lost, func(o lost) bool { return o.text == l.text }) {
				p.lost = append(p.lost, l)
			}
		}
	}
	in.lost = p.lost
	before, had := p.problems, p.ranges
	p.ranges, p.problems = judgePods(in)
	for _, q := range p.problems {
		if !slices.Contains(before, q) {
			fresh = append(fresh, q)
		}
	}
	return p.ranges, fresh, !slices.Equal(had, p.ranges)
}

// lostPods looks whether other members announce what was this node's.
func (m *Mesh) lostPods() func(a assigned) []lost {
	m.mu.Lock()
	members, own := m.members, m.cfg.Announce.Node
	m.mu.Unlock()
	return func(a assigned) []lost { return lostTo(a.Ranges, own, a.Node, members) }
}

// podInput is what ranges of pods are judged by now.
func (m *Mesh) podInput(base seal.Member, s saying) podInput {
	m.mu.Lock()
	in := podInput{
		stated: base.Ranges, excluded: base.Excluded, accept: m.set.Options.Accept,
		overlay: []netip.Prefix{m.overlay.Prefix, m.cfg.Options.Overlay4},
	}
	link, without := m.cfg.Options.Link, m.set.Without
	m.mu.Unlock()
	all, err := machine.Addresses()
	if err != nil {
		m.log.Warn("the addresses of this machine cannot be read", telemetry.AttrReason, err)
	}
	in.places = placesOf(all, without, link, m.localNow())
	for _, a := range base.Addresses {
		in.places = append(in.places, place{a, "an address that this node announces"})
	}
	for _, e := range slices.Concat(base.Endpoints, s.endpoints) {
		if e.Kind != seal.KindOwn {
			in.places = append(in.places, place{e.At.Addr().Unmap(), "an endpoint of this node"})
		}
	}
	return in
}

// localNow is what this machine must reach in clear, looked up where it was not yet.
func (m *Mesh) localNow() topology.Local {
	m.mu.Lock()
	l := m.local
	m.mu.Unlock()
	if len(l.Addresses) > 0 {
		return l
	}
	l, err := m.around()
	if err != nil {
		m.log.Warn("the gateways of this machine cannot be read", telemetry.AttrReason, err)
	}
	return l
}

// into tells of ranges and what is wrong with them.
func (p *pods) into(s *Status, stated []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Announced = announcedOf(stated, p.ranges)
	for _, q := range p.problems {
		q.Node = s.Node
		s.Problems = append(s.Problems, q)
	}
	if w := podWarning(p.said, time.Now()); w != "" {
		s.Warnings = append(s.Warnings, w)
	}
}

// count is for the metrics.
func (p *pods) count(state string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == "announced" {
		return float64(len(p.ranges))
	}
	return float64(len(p.problems))
}
