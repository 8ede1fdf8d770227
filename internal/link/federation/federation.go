// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/link/doubled"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// The parts of the source, by their names in a status.
const (
	PartClusters = "clusters"
	PartNodes    = "clusternodes"
)

// Options say whose view it is.
type Options struct {
	Log  *slog.Logger
	Self reach.Name
	// Client makes a client of the own cluster's API server.
	Client func() *kube.Client
	Server string // for people
	// StateDir keeps what was known last; empty: nothing is kept.
	StateDir string
	// Changed is called when View gives something else; it must not block.
	Changed func()
}

// statedNode is a node, and the member that it is to this one.
type statedNode struct {
	reach.Node
	said     roster.Said
	created  time.Time
	order    uint64 // that the host cluster has noted; 0: none
	marked   string // why it lost to another one once; empty: it did not
	accepted bool   // its cluster is
}

// placeholder reports whether it only claims the address of a node whose object is made anew.
func (n statedNode) placeholder() bool {
	return n.Key.IsZero() && (n.said.Facts.Overlay4.IsValid() || n.said.Facts.Overlay6.IsValid())
}

// claim is what the node says is its own.
//
//	self: the own cluster
func (n statedNode) claim(self string) doubled.Claim {
	c := doubled.Claim{Cluster: n.Cluster, Node: n.Name.Node, Own: n.Cluster == self, Accepted: n.accepted,
		Created: n.created, Order: n.order, Marked: n.marked}
	if !n.Key.IsZero() {
		c.Key = n.Key.String()
	}
	for _, a := range []netip.Addr{n.said.Facts.Overlay4, n.said.Facts.Overlay6} {
		if a.IsValid() {
			c.Addresses = append(c.Addresses, a)
		}
	}
	return c
}

// Federation follows the objects of linked clusters.
type Federation struct {
	o        Options
	clusters *part[statedCluster]
	nodes    *part[statedNode]

	mu   sync.Mutex // of what follows, and of the parts
	view reach.View
	said []roster.Said
	// clashes are nodes of other clusters with what is another one's.
	clashes map[string]error
	wake    chan struct{}
}

// New makes a federation, with what the state directory has. Run follows the objects.
func New(o Options) *Federation {
	f := &Federation{o: o, wake: make(chan struct{}, 1)}
	f.clusters = newPart[clusterObject](PartClusters, f, readCluster)
	f.nodes = newPart[nodeObject](PartNodes, f, func(raw json.RawMessage) (statedNode, error) {
		return readNode(raw, time.Now())
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadLocked(); err != nil {
		x := fault.From(err)
		o.Log.Warn("what was known of linked clusters is learned again", telemetry.AttrCode, x.Code, telemetry.AttrReason,
			x.Error())
	}
	f.decideLocked()
	return f
}

// View is what is known now.
func (f *Federation) View() reach.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

// Run follows until ctx ends, and calls out with the nodes of other clusters when they change.
func (f *Federation) Run(ctx context.Context, out func([]roster.Said)) error {
	g := run.NewGroup(ctx)
	g.Go("kubernetes "+PartClusters, func(ctx context.Context) error {
		return kube.NewClusters(f.o.Client(), f.o.Log).Run(ctx, f.clusters)
	})
	g.Go("kubernetes "+PartNodes, func(ctx context.Context) error {
		return kube.NewClusterNodes(f.o.Client(), f.o.Log).Run(ctx, f.nodes)
	})
	g.Go("linked clusters", func(ctx context.Context) error { return f.follow(ctx, out) })
	return g.Wait()
}

// follow decides when there is something new, and hands over what comes of it.
func (f *Federation) follow(ctx context.Context, out func([]roster.Said)) error {
	f.mu.Lock()
	said := f.said
	f.mu.Unlock()
	out(said)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		f.mu.Lock()
		f.decideLocked()
		said := f.said
		f.mu.Unlock()
		out(said)
		f.gave()
		f.o.Changed()
		f.keep()
		if !run.Wait(ctx, gather) {
			return nil
		}
	}
}

// gave notes that the receiver has what was decided last.
func (f *Federation) gave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters.handed, f.nodes.handed = f.clusters.taken, f.nodes.taken
}

// stir has Run decide again.
func (f *Federation) stir() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// decideLocked makes the view of the objects; mu is held.
func (f *Federation) decideLocked() {
	f.clusters.taken, f.nodes.taken = f.clusters.heard, f.nodes.heard
	view := reach.View{Self: f.o.Self, Whole: f.clusters.heard && f.nodes.heard}
	var clusters []statedCluster
	for _, c := range f.clusters.goodLocked() {
		clusters = append(clusters, c.value)
		view.Clusters = append(view.Clusters, c.value.Cluster)
		if c.value.Name == f.o.Self.Cluster {
			view.MTU, view.NIC = c.value.spec.MTU, c.value.spec.NICOf(f.o.Self.Node)
		}
	}
	var own []netip.Prefix
	for _, c := range f.clusters.objects {
		if c.value.Name == f.o.Self.Cluster {
			own = c.value.stated
		}
	}
	var nodes []statedNode
	for _, n := range f.nodes.goodLocked() {
		nodes = append(nodes, n.value)
	}
	var said []roster.Said
	clashes := map[string]error{}
	for _, n := range judge(f.o.Self.Cluster, own, clusters, nodes) {
		if !n.placeholder() {
			view.Nodes = append(view.Nodes, n.Node)
		}
		switch name := n.String(); {
		case n.Cluster == f.o.Self.Cluster:
		case n.Doubled != "":
			clashes[name] = refused(v1alpha1.KindClusterNode, name, "%s", n.Doubled)
			if f.clashes[name] == nil {
				f.tell(clashes[name])
			}
		case n.placeholder():
		case n.accepted: // of others nothing is taken, no endpoints either
			said = append(said, n.said)
		}
	}
	f.clashes = clashes
	f.view, f.said = view, said
}

// within are those of a node's ranges that its cluster has: a node cannot take others, whatever its object says.
func within(ranges, of []netip.Prefix) (out []netip.Prefix) {
	for _, p := range ranges {
		if slices.ContainsFunc(of, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	return out
}

// Status is how each part does.
func (f *Federation) Status() []discoveryclient.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := f.nodes.statusLocked(f.o.Server)
	nodes.Members, nodes.Junk = len(f.said), nodes.Junk+len(f.clashes)
	for _, name := range slices.Sorted(maps.Keys(f.clashes)) {
		nodes.Warning = fault.From(f.clashes[name]).Explain()
		break
	}
	return []discoveryclient.Status{f.clusters.statusLocked(f.o.Server), nodes}
}

// kept is what the file has.
type kept struct {
	Clusters map[string]json.RawMessage `json:"clusters"`
	Nodes    map[string]json.RawMessage `json:"nodes"`
}

// files are where what is known is kept, twice: were the first one damaged, a start without the API server would leave
// the ranges of other clusters open, and packets to them would leave in clear.
func (f *Federation) files() []string {
	return []string{filepath.Join(f.o.StateDir, "linked.json"), filepath.Join(f.o.StateDir, "linked-spare.json")}
}

// loadLocked reads what was known, from the first file that can be read; mu is held.
func (f *Federation) loadLocked() error {
	if f.o.StateDir == "" {
		return nil
	}
	var damaged []error
	for _, file := range f.files() {
		text, err := private.ReadPublic(file, keptBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var k kept
		if err == nil {
			err = json.Unmarshal(text, &k)
		}
		if err != nil {
			damaged = append(damaged, fault.New(fault.CodeStateCorrupt, file+" cannot be read").Because(err))
			continue
		}
		for name, raw := range k.Clusters {
			f.clusters.putLocked(name, raw)
		}
		for name, raw := range k.Nodes {
			f.nodes.putLocked(name, raw)
		}
		break
	}
	return errors.Join(damaged...)
}

// keep writes what is known, if the API server has given all of it.
func (f *Federation) keep() {
	f.mu.Lock()
	whole := f.clusters.heard && f.nodes.heard
	text, err := json.Marshal(kept{f.clusters.raw(), f.nodes.raw()})
	f.mu.Unlock()
	if f.o.StateDir == "" || !whole || err != nil || len(text) > keptBytes {
		return
	}
	for _, file := range f.files() {
		if old, err := private.ReadPublic(file, keptBytes); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := store.Write(file, text); err != nil {
			f.o.Log.Warn("what is known of linked clusters is not kept: a start needs the API server",
				telemetry.AttrReason, err)
		}
	}
}
