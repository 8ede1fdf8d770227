// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// overlay are the addresses of this node in the mesh, and the prefix of all nodes'.
type overlay struct {
	Clusters []string     `json:"clusters"` // native ids of the secrets under which it was chosen, and since
	Node     string       `json:"node"`
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Six      netip.Addr   `json:"overlay6,omitzero"`
	Four     netip.Addr   `json:"overlay4,omitzero"`
	Since    time.Time    `json:"since,omitzero"` // when the newer of them was chosen
	Gave     *gave        `json:"gave,omitempty"` // what was given up last
	witness
	kept     witness              // as it is on disk
	disputes map[string]time.Time // since when another member has an address of this node, by its id
}

// readOverlay reads what was chosen before; nothing if there is none, or if it was for
// another name or for a cluster of which no secret is ours any more. What cannot be read
// is chosen anew: it is no secret, and mostly becomes the same. broken says why it cannot.
func readOverlay(dir, node string, clusters []string) (o overlay, broken error) {
	path := filepath.Join(dir, overlayFile)
	text, err := private.ReadPublic(path, limit.PrivateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return overlay{Clusters: clusters, Node: node}, nil
	}
	if err == nil {
		o, err = parseOverlay(text, node, clusters)
	}
	if err != nil {
		return overlay{Clusters: clusters, Node: node}, fault.New(fault.CodeStateCorrupt, "the overlay addresses in "+path+" cannot be read").Because(err).
			Hint("the node has chosen them anew; where they are not what others have written down, put the file back from a backup and start the node again")
	}
	return o, nil
}

func parseOverlay(text []byte, node string, clusters []string) (overlay, error) {
	var o overlay
	if err := json.Unmarshal(text, &o); err != nil {
		return o, err
	}
	if !o.can() {
		return o, errors.New("they are no addresses of a mesh")
	}
	ours := func(c string) bool { return slices.Contains(clusters, c) }
	if o.Node != node || !slices.ContainsFunc(o.Clusters, ours) {
		return overlay{Clusters: clusters, Node: node}, nil
	}
	o.Clusters = clusters // a secret that came or went changes no address
	return o, nil
}

// can says whether these may be what was chosen: a prefix as wide as the internet, in a
// damaged file, would lead all of it into the mesh.
func (o overlay) can() bool {
	six, four := o.Six, o.Four
	return (!o.Prefix.IsValid() || topology.IsOverlay6(o.Prefix)) && (!four.IsValid() || four.Is4()) &&
		(!six.IsValid() || six.Is6() && !six.Is4In6() && six.Zone() == "")
}

func (o overlay) write(dir string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fault.New(fault.CodeInternal, "the overlay addresses are not encoded").Because(err)
	}
	path := filepath.Join(dir, overlayFile)
	return written(path, store.Write(path, append(text, '\n')))
}

// choice is what overlay addresses depend on.
type choice struct {
	// named is the prefix of the cluster's configured name; not valid: it has none, and is
	// as old as its first secret, which derived is made of.
	named, derived netip.Prefix
	pool           netip.Prefix // of IPv4; not valid: none
	hardware       []byte       // the machine's first hardware address; may be none
	six, four      netip.Addr   // that the operator wants; not valid: none
	id             string       // this node's member id
	others         []roster.Member
	claims         []claim
	young          time.Duration // for how long after a choice it is given up to who has the smaller id
}

// choose keeps the addresses that still hold, and chooses what is missing. One that
// somebody else has too is given up where yields says so.
func (o overlay) choose(c choice, now time.Time) overlay {
	next := o
	next.disputes = o.disputed(c.claims, now)
	taken := func(of func(*roster.Member) netip.Addr, mine netip.Addr) func(netip.Addr) bool {
		return func(a netip.Addr) bool {
			if a == mine {
				_, lost := next.loses(c, a, now)
				return lost
			}
			return slices.ContainsFunc(c.others, func(m roster.Member) bool { return of(&m) == a && m.Node != o.Node })
		}
	}
	six := taken(func(m *roster.Member) netip.Addr { return m.Overlay6 }, o.Six)
	four := taken(func(m *roster.Member) netip.Addr { return m.Overlay4 }, o.Four)
	next.Prefix = o.prefix(c)
	switch {
	case c.six.IsValid():
		next.Six = c.six
	case !o.Six.IsValid() || !next.Prefix.Contains(o.Six) || six(o.Six):
		next.Six = topology.Choose6(next.Prefix, c.hardware, o.Node, six)
	}
	switch {
	case c.four.IsValid():
		next.Four = c.four
	case !c.pool.IsValid():
		next.Four = netip.Addr{}
	case !o.Four.IsValid() || !c.pool.Contains(o.Four) || four(o.Four):
		next.Four = topology.Choose4(c.pool, o.Node, four)
	}
	for _, mine := range []struct{ was, is netip.Addr }{{o.Six, next.Six}, {o.Four, next.Four}} {
		if to, lost := next.loses(c, mine.was, now); lost && mine.was.IsValid() && mine.is != mine.was {
			next.Gave = &gave{Address: mine.was, Now: mine.is, Node: to.node, ID: to.id, At: now.Round(0)}
		}
	}
	if next.Six != o.Six || next.Four != o.Four {
		next.Since, next.disputes = now, nil
		if !o.Since.IsZero() { // nobody has missed what was chosen just now
			next.Absent = nil
		}
	}
	return next
}

// prefix is that of all nodes. A cluster without a configured name keeps the one of its
// first secret when that is replaced; who comes after that takes it over from the others.
func (o overlay) prefix(c choice) netip.Prefix {
	switch {
	case c.named.IsValid():
		return c.named
	case o.Prefix.IsValid():
		return o.Prefix
	}
	count := map[netip.Prefix]int{}
	for i := range c.others {
		if p := netip.PrefixFrom(c.others[i].Overlay6, c.derived.Bits()).Masked(); topology.IsOverlay6(p) {
			count[p]++
		}
	}
	best := c.derived
	for p, n := range count {
		if n > count[best] || n == count[best] && best != c.derived && p.Addr().Less(best.Addr()) {
			best = p
		}
	}
	return best
}

func (o overlay) equal(p overlay) bool {
	return slices.Equal(o.Clusters, p.Clusters) && o.Node == p.Node && o.Prefix == p.Prefix && o.Six == p.Six && o.Four == p.Four
}
