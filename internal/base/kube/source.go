// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Options configure what a source reads and writes.
type Options struct {
	Name string // distinguishes several API servers; may be empty
	Log  *slog.Logger

	// NodeAnnotations reads the annotations of all Nodes too, which Kubernetes does not
	// permit a kubelet since 1.32. SkipMembers reads no Member objects.
	NodeAnnotations, SkipMembers bool

	// Node is the name of this machine's Node. Without it nothing is written.
	Node string
	Self func() member.Facts // this node's present facts; required with Node
	// Changed signals that Self has changed; may be nil.
	Changed <-chan struct{}
	// WriteAnnotations writes the own Node's annotations too. SkipObject writes no
	// Member object.
	WriteAnnotations, SkipObject bool
	Lease                        time.Duration // of the own object; 0: limit.KubeLease
	// OwnNode is called each time that the API server confirms this machine's own Node;
	// nil: the Node is not read. It must not block.
	OwnNode func(Node)
}

// Source is an API server as a source of members.
type Source struct {
	client    *Client
	node      string
	prefix    string // of the names of parts
	followers []*follower
	parts     []string // their names
	announcer *announcer
	own       *ownNode // nil: it is not read
	guard     *guard   // nil: no Member is read or written

	wake chan struct{} // due is another one
	mu   sync.Mutex
	due  time.Time // when to report the statements; zero: they are reported
}

// New makes a source. It reads nothing yet.
func New(client *Client, o Options) (*Source, error) {
	lease := cmp.Or(o.Lease, limit.KubeLease)
	writes := o.Node != "" && (!o.SkipObject || o.WriteAnnotations)
	switch {
	case writes && o.Self == nil:
		return nil, fault.New(fault.CodeInternal, "a node is to be announced without its facts")
	case o.OwnNode != nil && o.Node == "":
		return nil, fault.New(fault.CodeInternal, "the own Node is to be read without its name")
	case lease < 10*time.Second || lease > limit.DiscoveryTTL:
		return nil, fault.Newf(fault.CodeConfig, "a lease of %v cannot be kept", lease).
			Whyf("it is not within 10s and %v", limit.DiscoveryTTL).Hint("leave it out for %v", limit.KubeLease)
	}
	prefix := ""
	if o.Name != "" {
		prefix = o.Name + "-"
	}
	s := &Source{client: client, node: o.Node, prefix: prefix, wake: make(chan struct{}, 1)}
	add := func(name string, of func(source string) collection) {
		s.parts = append(s.parts, prefix+name)
		s.followers = append(s.followers, &follower{
			what: of(prefix + name), client: client, log: o.Log, clock: time.Now, random: rand.Float64,
			changed: s.stir, book: newBook(), mistakes: map[string]time.Time{},
		})
	}
	if !o.SkipMembers {
		add(PartMembers, membersOf)
	}
	if o.NodeAnnotations {
		add(PartAnnotations, nodesOf)
	}
	if !o.SkipMembers || writes && !o.SkipObject {
		s.guard = &guard{client: client, log: o.Log, random: rand.Float64}
	}
	if o.OwnNode != nil {
		s.own = &ownNode{client: client, log: o.Log, clock: time.Now, random: rand.Float64, node: o.Node, tell: o.OwnNode}
	}
	if writes {
		s.announcer = &announcer{
			client: client, log: o.Log, clock: time.Now, random: rand.Float64, node: o.Node, lease: lease,
			annotations: o.WriteAnnotations, object: !o.SkipObject, self: o.Self, changed: o.Changed,
			lost: make(chan struct{}, 1),
		}
		if !o.SkipMembers {
			s.followers[0].removed = s.removed
		}
	}
	return s, nil
}

// Run reads and writes until ctx ends. It calls out with all statements when some of
// them have changed; an end of a lease is not a change. Calls do not overlap, and are
// the rarer the more statements there are: see hand.
func (s *Source) Run(ctx context.Context, out func([]roster.Said)) error {
	defer s.client.Close()
	group := run.NewGroup(ctx)
	for i, f := range s.followers {
		group.Go("kubernetes "+s.parts[i], f.run)
	}
	if len(s.followers) > 0 {
		group.Go("kubernetes news", func(ctx context.Context) error { return s.hand(ctx, out) })
	}
	if s.own != nil {
		group.Go("kubernetes own node", s.own.run)
	}
	if s.announcer != nil {
		group.Go("kubernetes announcement", s.announcer.run)
	}
	if s.guard != nil {
		group.Go("kubernetes policy", s.guard.run)
	}
	return group.Wait()
}

// stir makes hand report by the time due.
func (s *Source) stir(due time.Time) {
	s.mu.Lock()
	sooner := s.due.IsZero() || due.Before(s.due)
	if sooner {
		s.due = due
	}
	s.mu.Unlock()
	if !sooner {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// hand reports the statements: changes at once after a quiet time, and then after a
// pause that grows with their number. So the work per second is bounded, however many
// members there are and however often they change.
func (s *Source) hand(ctx context.Context, out func([]roster.Said)) error {
	for {
		s.mu.Lock()
		due := s.due
		s.mu.Unlock()
		var at <-chan time.Time
		stop := func() {}
		if !due.IsZero() {
			t := time.NewTimer(time.Until(due))
			at, stop = t.C, func() { t.Stop() }
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-s.wake:
			stop()
			continue
		case <-at:
		}
		s.mu.Lock()
		s.due = time.Time{}
		s.mu.Unlock()
		var all []roster.Said
		for _, f := range s.followers {
			all = append(all, f.said()...)
		}
		out(all)
		for _, f := range s.followers {
			f.gave()
		}
		if !run.Wait(ctx, kubeGather+time.Duration(len(all))*kubeGatherEach) {
			return nil
		}
	}
}

func (s *Source) removed(name string) {
	if name == s.node && s.announcer != nil {
		s.announcer.gone()
	}
}

// Leave removes what this node has written. Call it after Run has ended, when the node
// will not return soon.
func (s *Source) Leave(ctx context.Context) error {
	if s.announcer == nil {
		return nil
	}
	defer s.client.Close()
	return s.announcer.leave(ctx)
}

// The parts of a source, by their names without a prefix.
const (
	PartMembers      = "members"
	PartAnnotations  = "annotations"
	PartAnnouncement = "announcement"
	PartNode         = "node"
)

// Part is the status of a part of a source.
type Part struct {
	Name    string
	Writes  bool      // it is the announcement of this node
	Own     bool      // it reads this machine's own Node, and no members
	Contact time.Time // when the API server last succeeded; zero: never
	Told    bool      // the receiver has everything that existed at the first contact
	Objects int       // known
	Members int       // of these, about a member
	Bad     int       // of these, invalid and ignored
	Err     error     // failure since Contact
	Warning error     // on the first part: what the cluster lacks to be safe
}

// Parts returns the status of each part.
func (s *Source) Parts() []Part {
	var out []Part
	for i, f := range s.followers {
		p := f.part()
		p.Name = s.parts[i]
		out = append(out, p)
	}
	if s.own != nil {
		p := s.own.part()
		p.Name = s.prefix + PartNode
		out = append(out, p)
	}
	if a := s.announcer; a != nil {
		a.mu.Lock()
		out = append(out, Part{Name: s.prefix + PartAnnouncement, Writes: true, Contact: a.contact, Err: a.err})
		a.mu.Unlock()
	}
	if s.guard != nil && len(out) > 0 {
		out[0].Warning = s.guard.missing()
	}
	return slices.Clip(out)
}
