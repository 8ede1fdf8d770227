// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// World is an API server under test.
type World interface {
	// AddNode makes a Node and gives its uid.
	AddNode(t testing.TB, name string) string
	DeleteNode(t testing.TB, name string)
	// Assigned are the ranges of a Node's pods, once it has some.
	Assigned(t testing.TB, node string) []string
	// Client speaks as the kubelet of a node.
	Client(t testing.TB, node string) *kube.Client
}

// Facts are those of a node with a number.
func Facts(n byte) member.Facts {
	return member.Facts{
		Node: fmt.Sprintf("node-%d", n), Clusters: []string{"t1-" + strings.Repeat("v", 52)},
		Hostname: "host", Key: member.Key{n, 7}, Pin: member.Pin{n, 8}, Engine: member.IPsec, Role: "worker", APIServerPort: 6443, OS: "Debian 12",
		Overlay6:  netip.AddrFrom16([16]byte{0xfd, 15: n}),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})},
		Endpoints: []member.Endpoint{{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 51820)}},
		Ranges:    []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, n, 0}), 24)},
	}
}

// Reader is a source that runs, and what it said last.
type Reader struct {
	Source *kube.Source
	Stop   func()
	Log    *Lines

	mu   sync.Mutex
	said []roster.Said
	few  int // the fewest that were said at once since Watch
}

// Lines is a log.
type Lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Count counts lines that contain something.
func (l *Lines) Count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Start runs a source until the end of the test.
func Start(t testing.TB, c *kube.Client, o kube.Options) *Reader {
	t.Helper()
	r := &Reader{Log: &Lines{}}
	o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(r.Log, t.Output()), nil))
	source, err := kube.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Source = source
	group := run.NewGroup(t.Context())
	group.Go("source", func(ctx context.Context) error { return source.Run(ctx, r.take) })
	r.Stop = sync.OnceFunc(func() {
		group.Stop()
		if err := group.Wait(); err != nil {
			t.Errorf("the source ended with %v", err)
		}
	})
	t.Cleanup(r.Stop)
	return r
}

func (r *Reader) take(said []roster.Said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = said
	r.few = min(r.few, len(said))
}

// Said is what is said now of all.
func (r *Reader) Said() []roster.Said {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// Watch begins to note the fewest members that are said at once; Fewest gives it.
func (r *Reader) Watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.few = len(r.said)
}

// Fewest is the smallest number of members that was said since Watch.
func (r *Reader) Fewest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.few
}

// Find is what a source says of a name.
func (r *Reader) Find(source, name string) (roster.Said, bool) {
	for _, s := range r.Said() {
		if s.Source.Name == source && s.Facts.ID == name {
			return s, true
		}
	}
	return roster.Said{}, false
}

// Knows reports whether the objects say of a name what its number gives.
func (r *Reader) Knows(name string, n byte) bool {
	s, ok := r.Find("members", name)
	return ok && s.Facts.Key == Facts(n).Key && s.Facts.Nodename == name &&
		len(s.Facts.Ranges) == 1 && s.Facts.Ranges[0] == Facts(n).Ranges[0]
}

// Part is a part of the source by name.
func (r *Reader) Part(name string) kube.Part {
	for _, p := range r.Source.Parts() {
		if p.Name == name {
			return p
		}
	}
	return kube.Part{}
}

func text(s v1alpha1.MemberSpec) string {
	out, err := json.Marshal(s)
	return fmt.Sprint(string(out), err)
}

// Contract is what holds with every API server.
func Contract(t *testing.T, w World) {
	p := &pair{w: w, lease: 20 * time.Second, ofB: Facts(2), changed: make(chan struct{}, 1)}
	w.AddNode(t, "ka")
	p.uidB = w.AddNode(t, "kb")
	p.clientA = w.Client(t, "ka")
	p.a = Start(t, p.clientA, kube.Options{Node: "ka", Self: func() member.Facts { return Facts(1) }, Lease: p.lease,
		NodeAnnotations: true})
	p.b = Start(t, w.Client(t, "kb"), kube.Options{Node: "kb", Self: p.selfB, Changed: p.changed, Lease: p.lease,
		WriteAnnotations: true})
	t.Run("each sees all", p.each)
	t.Run("none writes another's", p.others)
	t.Run("nodes cannot be listed, which harms nothing", p.nodes)
	t.Run("own annotations", p.annotations)
	t.Run("a change is seen", p.change)
	t.Run("own object is put back", p.putBack)
	t.Run("the dead expire", p.expire)
	t.Run("a member goes with its Node", p.deleted)
	t.Run("leave", p.leave)
	t.Run("own Node", p.ownNode)
}

// pair is two nodes at one API server.
type pair struct {
	w       World
	a, b    *Reader
	clientA *kube.Client
	uidB    string
	lease   time.Duration
	changed chan struct{}

	mu  sync.Mutex
	ofB member.Facts
}

func (p *pair) selfB() member.Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ofB
}

func (p *pair) each(t *testing.T) {
	for _, r := range []*Reader{p.a, p.b} {
		runtest.Eventually(t, "both members", func() bool { return r.Knows("ka", 1) && r.Knows("kb", 2) })
	}
	s, _ := p.a.Find("members", "kb")
	if s.Facts.Node != "node-2" || !slices.Equal(s.Facts.Clusters, Facts(2).Clusters) {
		t.Errorf("kb is %q under %v", s.Facts.Node, s.Facts.Clusters)
	}
	wanted := Facts(2)
	wanted.Nodename = "kb"
	got, want := roster.Spec(s.Facts), roster.Spec(wanted)
	if gotText, wantText := text(got), text(want); gotText != wantText {
		t.Errorf("of kb is known\n%s, not\n%s", gotText, wantText)
	}
	if s.Version == 0 || s.Source.Tier != roster.TierKubernetes {
		t.Errorf("version %d, tier %v", s.Version, s.Source.Tier)
	}
}

func (p *pair) others(t *testing.T) {
	for what, err := range map[string]error{
		"change": p.clientA.PutMember(t.Context(), "kb", p.uidB, Facts(9), p.lease),
		"make":   p.clientA.PutMember(t.Context(), "kc", p.uidB, Facts(9), p.lease),
		"remove": p.clientA.DeleteMember(t.Context(), "kb"),
	} {
		if !fault.Has(err, fault.CodeKubeDenied) {
			t.Errorf("%s: %v, not %s", what, err, fault.CodeKubeDenied)
		}
	}
	if !p.a.Knows("kb", 2) {
		t.Error("what kb says was touched")
	}
	other := Start(t, p.clientA, kube.Options{Node: "kb", SkipMembers: true, SkipObject: true,
		OwnNode: func(n kube.Node) { t.Errorf("the Node of another is read: %+v", n) }})
	runtest.Eventually(t, "the refusal of another's Node",
		func() bool { return fault.Has(other.Part("node").Err, fault.CodeKubeDenied) })
	if err := p.a.Part("members").Warning; err != nil {
		t.Errorf("the policy is there, and yet: %v", err)
	}
}

func (p *pair) nodes(t *testing.T) {
	runtest.Eventually(t, "the refusal",
		func() bool { return fault.Has(p.a.Part("annotations").Err, fault.CodeKubeDenied) })
	if n := p.a.Log.Count("code=" + string(fault.CodeKubeDenied)); n != 1 {
		t.Errorf("said %d times:\n%s", n, p.a.Log)
	}
	if !strings.Contains(p.a.Log.String(), "tombolo discovery manifest") {
		t.Errorf("not said what to do:\n%s", p.a.Log)
	}
	if p := p.a.Part("members"); p.Err != nil || p.Objects != 2 {
		t.Errorf("members: %+v", p)
	}
}

func (p *pair) annotations(t *testing.T) {
	runtest.Eventually(t, "kb's announcement", func() bool { return !p.b.Part("announcement").Contact.IsZero() })
	if err := p.b.Part("announcement").Err; err != nil {
		t.Error(err)
	}
}

func (p *pair) change(t *testing.T) {
	p.mu.Lock()
	p.ofB = Facts(3)
	p.mu.Unlock()
	p.changed <- struct{}{}
	runtest.Eventually(t, "kb's new facts", func() bool { return p.a.Knows("kb", 3) })
}

func (p *pair) putBack(t *testing.T) {
	before, _ := p.a.Find("members", "kb")
	if err := p.w.Client(t, "kb").DeleteMember(t.Context(), "kb"); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "kb's object", func() bool {
		s, ok := p.a.Find("members", "kb")
		return ok && s.Heard.After(before.Heard)
	})
}

func (p *pair) expire(t *testing.T) {
	p.b.Stop()
	end := time.Now()
	s, ok := p.a.Find("members", "kb")
	if left, _ := roster.Expire(end.Add(p.lease+time.Second), p.a.Said()); !ok || s.Until.IsZero() ||
		slices.ContainsFunc(left, func(s roster.Said) bool { return s.Facts.ID == "kb" }) {
		t.Errorf("kb lives until %v, %v after its end", s.Until, s.Until.Sub(end))
	}
	left, _ := roster.Expire(end.Add(time.Second), p.a.Said())
	if !slices.ContainsFunc(left, func(s roster.Said) bool { return s.Facts.ID == "kb" }) {
		t.Errorf("kb's lease ended at %v, at once", s.Until)
	}
}

func (p *pair) deleted(t *testing.T) {
	p.w.DeleteNode(t, "kb")
	runtest.Eventually(t, "the end of kb", func() bool {
		_, there := p.a.Find("members", "kb")
		return !there
	})
	if !p.a.Knows("ka", 1) {
		t.Error("ka is gone too")
	}
}

func (p *pair) leave(t *testing.T) {
	watching := Start(t, p.w.Client(t, "ka"), kube.Options{})
	runtest.Eventually(t, "ka", func() bool { return watching.Knows("ka", 1) })
	p.a.Stop()
	for range 2 {
		if err := p.a.Source.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Eventually(t, "the end of ka", func() bool { return len(watching.Said()) == 0 })
}

// Own keeps what a source is told of its own Node.
type Own struct {
	mu   sync.Mutex
	last kube.Node
	told int
}

// Take is kube.Options.OwnNode.
func (n *Own) Take(of kube.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.told = of, n.told+1
}

// Last is what was told last, and how often something was.
func (n *Own) Last() (kube.Node, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last, n.told
}

// ownNode: a kubelet follows its own Node, and no other one: its ranges come later than itself, and a Node
// that is made again is another one.
func (p *pair) ownNode(t *testing.T) {
	for _, other := range []string{"ka", "another"} {
		p.w.AddNode(t, other)
	}
	var seen Own
	r := Start(t, p.w.Client(t, "kn"), kube.Options{Node: "kn", SkipMembers: true, SkipObject: true, OwnNode: seen.Take})
	told := func(what string, is func(kube.Node) bool) {
		t.Helper()
		runtest.Eventually(t, what, func() bool { n, times := seen.Last(); return times > 0 && is(n) })
	}
	told("that there is no Node", func(n kube.Node) bool { return n.UID == "" && len(n.PodCIDRs) == 0 })
	uid := p.w.AddNode(t, "kn")
	told("its Node", func(n kube.Node) bool { return n.UID == uid })
	ranges := p.w.Assigned(t, "kn")
	told("its ranges", func(n kube.Node) bool { return n.UID == uid && slices.Equal(n.PodCIDRs, ranges) })
	if part := r.Part(kube.PartNode); !part.Own || part.Writes || part.Err != nil || part.Contact.IsZero() {
		t.Errorf("the part: %+v", part)
	}
	p.w.DeleteNode(t, "kn")
	told("its end", func(n kube.Node) bool { return n.UID == "" && len(n.PodCIDRs) == 0 })
	again := p.w.AddNode(t, "kn")
	ranges = p.w.Assigned(t, "kn")
	told("the new one", func(n kube.Node) bool { return n.UID == again && slices.Equal(n.PodCIDRs, ranges) })
	p.w.DeleteNode(t, "kn")
}
