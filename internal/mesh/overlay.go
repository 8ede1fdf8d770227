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
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// overlay is the prefix of all nodes in the mesh, and the addresses of this node. The
// addresses follow from the prefix, the pool and the member id (docs/decisions/0020).
type overlay struct {
	Clusters []string     `json:"clusters"` // native ids of the secrets under which the prefix was chosen, and since
	ID       string       `json:"id"`       // of the member whose addresses these are
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Six      netip.Addr   `json:"overlay6,omitzero"`
	Four     netip.Addr   `json:"overlay4,omitzero"`
	Gave     *gave        `json:"gave,omitempty"` // what was given up last
}

// readOverlay reads what an earlier run had; nothing if there is none, or if it is of a cluster
// of which this node no longer has a secret. What cannot be read is chosen again: it is no
// secret, and mostly becomes the same. broken says why it cannot.
func readOverlay(dir, id string, clusters []string) (o overlay, broken error) {
	path := filepath.Join(dir, overlayFile)
	text, err := private.ReadPublic(path, limit.PrivateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return overlay{ID: id}, nil
	}
	if err == nil {
		o, err = parseOverlay(text, id, clusters)
	}
	if err != nil {
		return overlay{ID: id}, fault.New(fault.CodeStateCorrupt, "the overlay addresses in "+path+" cannot be read").
			Because(err).
			Hint("the node has chosen new ones; if the old ones are written down somewhere, " +
				"restore the file from a backup and start the node again")
	}
	return o, nil
}

func parseOverlay(text []byte, id string, clusters []string) (overlay, error) {
	var o overlay
	if err := json.Unmarshal(text, &o); err != nil {
		return o, err
	}
	if !o.can() {
		return o, errors.New("they are no addresses of a mesh")
	}
	if !slices.ContainsFunc(o.Clusters, func(c string) bool { return slices.Contains(clusters, c) }) {
		return overlay{ID: id}, nil
	}
	if o.ID != id { // the prefix is the cluster's; the addresses were another member's
		o = overlay{Clusters: o.Clusters, ID: id, Prefix: o.Prefix}
	}
	return o, nil
}

// can reports whether these may be what was chosen: a prefix as wide as the internet, in a
// damaged file, would lead all of it into the mesh.
func (o overlay) can() bool {
	six, four := o.Six, o.Four
	return (!o.Prefix.IsValid() || member.IsOverlay6(o.Prefix)) && (!four.IsValid() || four.Is4()) &&
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

// ranges are where the mesh has addresses of its own: not the whole pool, the rest of which a provider's NAT may use.
func (o overlay) ranges() []netip.Prefix {
	out := []netip.Prefix{o.Prefix}
	if o.Four.IsValid() {
		out = append(out, netip.PrefixFrom(o.Four, o.Four.BitLen()))
	}
	return out
}

// choice is what overlay addresses depend on.
type choice struct {
	clusters []string // native ids of the secrets
	// named is the prefix of the cluster's configured name; not valid: it has none, and the
	// prefix is derived, from its first secret.
	named, derived netip.Prefix
	pool           netip.Prefix // of IPv4; not valid: none
	six, four      netip.Addr   // that the operator wants; not valid: none
	others         []roster.Member
}

// choose gives the addresses that follow from a choice. Of the small pool of IPv4 a member
// keeps what it has, unless another member that signs its entry and has the smaller id has
// it too; and it takes nothing that anybody has.
func (o overlay) choose(c choice, now time.Time) overlay {
	next := o
	next.Clusters, next.Prefix = c.clusters, o.prefix(c)
	if next.Six = c.six; !c.six.IsValid() {
		next.Six = member.Address6(next.Prefix, o.ID)
	}
	node, winner := o.winner(c)
	switch {
	case c.four.IsValid():
		next.Four = c.four
	case !c.pool.IsValid():
		next.Four = netip.Addr{}
	case !o.Four.IsValid() || !c.pool.Contains(o.Four) || winner != "":
		next.Four = member.Address4(c.pool, o.ID, func(a netip.Addr) bool {
			return slices.ContainsFunc(c.others, func(m roster.Member) bool { return m.Overlay4 == a })
		})
	}
	if winner != "" && next.Four != o.Four {
		next.Gave = &gave{Address: o.Four, Now: next.Four, Node: node, ID: winner, At: now.Round(0)}
	}
	return next
}

// winner is the member that has this node's address of the pool, with a better right to it: it signs that it has the
// address, and its id is smaller. A list on this machine that names the same member changes nothing.
func (o overlay) winner(c choice) (node, id string) {
	for i := range c.others {
		m := &c.others[i]
		signs := func(s roster.Source) bool { return s.Tier == roster.TierNative }
		if !o.Four.IsValid() || m.Overlay4 != o.Four || !slices.ContainsFunc(m.Sources[roster.FieldOverlay4], signs) {
			continue
		}
		for _, e := range m.Entries {
			if signs(e.Source) && e.ID < o.ID {
				return m.Node, e.ID
			}
		}
	}
	return "", ""
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
		if p := netip.PrefixFrom(c.others[i].Overlay6, c.derived.Bits()).Masked(); member.IsOverlay6(p) {
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

// sameAddresses reports whether nothing moves: what is not written then is no reason not to start.
func (o overlay) sameAddresses(p overlay) bool {
	return o.Prefix == p.Prefix && o.Six == p.Six && o.Four == p.Four
}

// gave is an address that was given up.
type gave struct {
	Address netip.Addr `json:"address"`
	Now     netip.Addr `json:"now,omitzero"`
	Node    string     `json:"node,omitempty"`
	ID      string     `json:"id"`
	At      time.Time  `json:"at"`
}

func (g *gave) fault() *fault.Fault {
	return fault.Newf(fault.CodeOverlay, "this node has given up the overlay address %s", g.Address).
		Whyf("%s (member %s) has it too, and the smaller id: this node has %s now", g.Node, g.ID, g.Now).
		Hint("correct where the old address is written down; announce.overlay4 chooses an address")
}
