// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
)

// heardAtFirst has packets of linked ranges leave in clear while there is no mesh, which shows that the listener at each
// node would hear them. It returns how many there have been.
func (r *linkedRig) heardAtFirst() map[*node]int {
	r.t.Helper()
	heard := map[*node]int{}
	var pods []pod
	for _, c := range r.linked {
		pods = append(pods, c.pods...)
	}
	var floods []*lab.Flood
	for i := range r.all() {
		floods = append(floods, r.flood(pods[i].host, netip.MustParseAddr(pods[(i+1)%len(pods)].addr)))
	}
	for _, n := range r.all() {
		r.eventually("the listener at "+n.name+" hears packets", nil, func() error {
			if r.inClear(n) == 0 {
				return errNotYet
			}
			return nil
		})
	}
	var ended sync.WaitGroup // none comes back, and each waits for that
	for _, f := range floods {
		ended.Go(f.End)
	}
	ended.Wait()
	for _, n := range r.all() {
		heard[n] = r.inClear(n)
	}
	return heard
}

// ipsecPhases are those of a node of the east and of the south's. They add the keys by which packets flow.
func (r *linkedRig) ipsecPhases(keys espKeys) phases {
	a, e := r.east.nodes[0], r.south.nodes[0]
	podA, podD, podE := r.east.pods[0], r.west.pods[2], r.south.pods[0]
	return phases{
		a: a, e: e, name: "south.e", engine: meshconf.IPsec, link: "xfrm",
		flows: []*lab.Flood{r.flood(podA.host, netip.MustParseAddr(podE.addr)),
			r.flood(podE.host, netip.MustParseAddr(podA.addr6)),
			r.flood(podE.host, netip.MustParseAddr(strings.Replace(podD.addr, "10.99.", "240.99.", 1)))},
		renew: func() { r.worn(a, "south.e") },
		gone:  func() error { return r.statesOf(a, e) },
		shown: func() { r.shows(a, "south.e") },
		came:  func() { keys.add(r.keys()) },
	}
}

// worn has the state by which a node sends to a peer be as if it had sent as much as it may: the node agrees on new keys.
func (r *linkedRig) worn(n *node, peer string) {
	r.t.Helper()
	sends := func() (string, error) {
		s, err := n.status()
		if err != nil {
			return "", err
		}
		for _, p := range s.Peers {
			for _, a := range p.SecurityAssociations {
				if p.Node == peer && a.Sends {
					return a.SPIOut, nil
				}
			}
		}
		return "", fmt.Errorf("nothing is sent to %s", peer)
	}
	const much = 1 << 35 // packets: more than a node sends by the keys of one exchange
	const reason = `reason="much was sent"`
	noted, before := n.said(reason), ""
	r.eventually("the keys by which "+n.name+" sends to "+peer+" are worn", n.role, func() (err error) {
		if before, err = sends(); err != nil {
			return err
		}
		all, err := lab.SAs(n.host)
		at := slices.IndexFunc(all, func(s lab.SA) bool { return fmt.Sprintf("%#x", s.SPI) == before })
		if err != nil || at < 0 { // other ones have just taken their place
			return fmt.Errorf("there is no state %s: %w", before, err)
		}
		return lab.Age(n.host, all[at], lab.Wear{Packets: much})
	})
	r.eventually(n.name+" sends to "+peer+" by new keys", n.role, func() error {
		if now, err := sends(); err != nil || now == before || n.said(reason) == noted {
			return fmt.Errorf("it is %s, %w", now, err)
		}
		return nil
	})
}

// statesOf is an error if a node has states from or to another one.
func (r *linkedRig) statesOf(n, other *node) error {
	all, err := lab.SAs(n.host)
	for _, s := range all {
		for _, addr := range []netip.Addr{other.place.Addr4, other.place.Addr6} {
			if s.From == addr || s.To == addr {
				err = fmt.Errorf("there is one from %s to %s", s.From, s.To)
			}
		}
	}
	return err
}

// linkedRanges are those between which nothing may be in clear: of pods, of Services, mapped ones, and the mesh's own.
var linkedRanges = []netip.Prefix{
	netip.MustParsePrefix("10.99.0.0/16"), netip.MustParsePrefix("10.101.0.0/16"), netip.MustParsePrefix("10.102.0.0/16"),
	netip.MustParsePrefix("10.103.0.0/16"), netip.MustParsePrefix("240.0.0.0/8"), netip.MustParsePrefix("fd99::/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd00::/8"),
}

// ofLinked reports whether a frame is a packet from or to one of the ranges: outside of the mesh it is in clear.
func ofLinked(frame []byte) bool {
	if len(frame) < 14+20 {
		return false
	}
	var ends [2]netip.Addr
	switch kind, ip := uint16(frame[12])<<8|uint16(frame[13]), frame[14:]; {
	case kind == 0x0800:
		ends = [2]netip.Addr{netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))}
	case kind == 0x86dd && len(ip) >= 40:
		ends = [2]netip.Addr{netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))}
	default:
		return false
	}
	return slices.ContainsFunc(linkedRanges, func(p netip.Prefix) bool { return p.Contains(ends[0]) || p.Contains(ends[1]) })
}

// inClear is how many packets of linked ranges, or with what is said between pods, were on a node's cable.
func (r *linkedRig) inClear(n *node) int {
	r.t.Helper()
	count, err := n.wire.Count(func(frame []byte) bool { return ofLinked(frame) || bytes.Contains(frame, []byte(marker)) })
	if err != nil {
		r.t.Fatal(err)
	}
	return count
}

// nothingInClear looks at all cables: since some were heard there are no more packets of linked ranges.
func (r *linkedRig) nothingInClear(heard map[*node]int) {
	r.t.Helper()
	for _, n := range r.all() {
		if more := r.inClear(n) - heard[n]; more != 0 {
			r.t.Errorf("%d packets of linked ranges were in clear at %s, of %d: %s", more, n.name, n.wire.Packets(),
				r.describeClear(n, heard[n]))
		}
	}
}

// describeClear says of some packets that were in clear what they are, after the first ones.
func (r *linkedRig) describeClear(n *node, first int) string {
	var text strings.Builder
	at, seen := 0, 0
	_, err := n.wire.Count(func(frame []byte) bool {
		at++
		if !ofLinked(frame) && !bytes.Contains(frame, []byte(marker)) {
			return false
		}
		if seen++; seen > first && seen <= first+20 {
			fmt.Fprintf(&text, "\n%d: %x", at, frame[:min(len(frame), 120)])
		}
		return true
	})
	if err != nil {
		fmt.Fprint(&text, err)
	}
	return text.String()
}
