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

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/run"
)

// Options say what a source reads and writes.
type Options struct {
	Name string // distinguishes several API servers; may be empty
	Log  *slog.Logger

	// NodeAnnotations reads those of all nodes too, for which Kubernetes gives a
	// kubelet no permission since 1.32.
	NodeAnnotations bool

	// Node is the name of this machine's Node. Without it nothing is written.
	Node string
	Self func() roster.Facts // what this node says of itself now; needed with Node
	// Changed tells that Self says something else; may be nil.
	Changed <-chan struct{}
	// WriteAnnotations writes those of the own Node too.
	WriteAnnotations bool
	Lease            time.Duration // of the own object; 0: limit.KubeLease
}

// Source is an API server as a source of members.
type Source struct {
	client    *Client
	node      string
	followers []*follower
	parts     []string // their names
	announcer *announcer

	mu  sync.Mutex // one result is handed out after the other
	out func([]roster.Said)
}

// New makes a source. It reads nothing yet.
func New(client *Client, o Options) (*Source, error) {
	lease := cmp.Or(o.Lease, limit.KubeLease)
	switch {
	case o.Node != "" && o.Self == nil:
		return nil, fault.New(fault.CodeInternal, "a node is to be announced of which nothing is known")
	case lease < 10*time.Second || lease > limit.DiscoveryTTL:
		return nil, fault.Newf(fault.CodeConfig, "a lease of %v cannot be kept", lease).
			Whyf("it is not within 10s and %v", limit.DiscoveryTTL).Hint("leave it out for %v", limit.KubeLease)
	}
	s := &Source{client: client, node: o.Node}
	prefix := ""
	if o.Name != "" {
		prefix = o.Name + "-"
	}
	add := func(name string, of func(source string) collection) {
		s.parts = append(s.parts, prefix+name)
		s.followers = append(s.followers, &follower{
			what: of(prefix + name), client: client, log: o.Log, clock: time.Now, random: rand.Float64,
			changed: s.publish, book: newBook(), mistakes: map[string]time.Time{},
		})
	}
	add("members", membersOf)
	if o.NodeAnnotations {
		add("annotations", nodesOf)
	}
	if o.Node != "" {
		s.announcer = &announcer{
			client: client, log: o.Log, clock: time.Now, random: rand.Float64, node: o.Node, lease: lease,
			annotations: o.WriteAnnotations, self: o.Self, changed: o.Changed, lost: make(chan struct{}, 1),
		}
		s.followers[0].removed = s.removed
	}
	return s, nil
}

// Run reads and writes until ctx ends. out gets everything that is said, each time
// that some of it changes; leases in it end by themselves. It is never called
// twice at a time, and a slow one holds up reading.
func (s *Source) Run(ctx context.Context, out func([]roster.Said)) error {
	s.mu.Lock()
	s.out = out
	s.mu.Unlock()
	defer s.client.Close()
	group := run.NewGroup(ctx)
	for i, f := range s.followers {
		group.Go("kubernetes "+s.parts[i], f.run)
	}
	if s.announcer != nil {
		group.Go("kubernetes announcement", s.announcer.run)
	}
	return group.Wait()
}

func (s *Source) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []roster.Said
	for _, f := range s.followers {
		all = append(all, f.said()...)
	}
	s.out(all)
}

func (s *Source) removed(name string) {
	if name == s.node {
		s.announcer.gone()
	}
}

// Leave removes the own object, after Run has ended: this node will not come back soon.
func (s *Source) Leave(ctx context.Context) error {
	if s.node == "" {
		return nil
	}
	defer s.client.Close()
	return s.client.DeleteMember(ctx, s.node)
}

// Part is how a part of a source does.
type Part struct {
	Name    string
	Contact time.Time // when the API server last did as it was asked; zero: never
	Objects int       // that are known
	Bad     int       // of these, that cannot be read: nothing of them counts
	Err     error     // why not since Contact
}

// Parts tells how the source does.
func (s *Source) Parts() []Part {
	var out []Part
	for i, f := range s.followers {
		p := f.part()
		p.Name = s.parts[i]
		out = append(out, p)
	}
	if a := s.announcer; a != nil {
		a.mu.Lock()
		out = append(out, Part{Name: "announcement", Contact: a.contact, Err: a.err})
		a.mu.Unlock()
	}
	return slices.Clip(out)
}
