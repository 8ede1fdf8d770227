// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// problem waits until a node tells one of a range, with a word.
func (n *node) problem(of, word string) {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" tells of "+of, n.role, func() error {
		text, s := n.mustStatus()
		for _, p := range s.Problems {
			if p.Range == of && strings.Contains(p.Why, word) {
				return nil
			}
		}
		return errors.New(text)
	})
}

// explained waits until a node explains an address with a word.
func (n *node) explained(addr, word string) {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" explains "+addr, n.role, func() error {
		out, err := n.verb("explain", addr)
		if err == nil && !strings.Contains(out, word) {
			err = fmt.Errorf("%q is not in\n%s", word, out)
		}
		return err
	})
}

// explainedTo waits until a node explains that an address is a peer's.
func (n *node) explainedTo(addr string, peer *node) {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" explains "+addr, n.role, func() error {
		var e explanation
		if n.answer("MeshExplanation", &e, "explain", addr); !e.InMesh || e.Peer == nil || e.Peer.Node != peer.host.Name() {
			return fmt.Errorf("%+v, want %s", e, peer.name)
		}
		return nil
	})
}

// TestMeshOwnNetwork: a node does not start with the very network by which it reaches the
// others as its range, nor with another's; nothing is changed. Where such a network comes
// later its range is withheld, and told.
func TestMeshOwnNetwork(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "open")
	lan := netip.PrefixFrom(r.grid.All[0].Addr4, 24).Masked().String()
	b := r.node(r.grid.All[1], settings{ranges: []string{"10.67.0.0/24"}})
	together(b)
	for _, c := range []struct{ announced, says string }{
		{lan, "it covers " + r.grid.All[0].Addr4.String()},
		{"10.67.0.0/24", b.host.Name()},
	} {
		a := r.node(r.grid.All[0], settings{ranges: []string{c.announced}})
		before := r.kernel(a.host)
		said, exit := refused(t, a, false)
		_, said, _ = strings.Cut(said, "error: ")
		if exit != 2 || !strings.HasPrefix(said, "mesh_range: ") || !strings.Contains(said, c.announced) || !strings.Contains(said, c.says) || !strings.Contains(said, "hint: ") {
			t.Errorf("%s: exit %d, and it said %s", c.announced, exit, said)
		}
		if after := r.kernel(a.host); after != before {
			t.Errorf("the refusal of %s has left\n%s\nof what was\n%s", c.announced, after, before)
		}
	}
	const late = "10.66.0.0/24"
	a := r.node(r.grid.All[0], settings{ranges: []string{late, "10.68.0.0/24"}})
	together(a)
	known(a, b)
	awaitDirect(a, b)
	has := func(want []string) {
		t.Helper()
		r.eventually(fmt.Sprintf("b routes %v to a", want), b.role, func() error {
			p, err := b.peer(a)
			if err == nil && !slices.Equal(p.Ranges, want) {
				err = fmt.Errorf("it routes %v", p.Ranges)
			}
			return err
		})
	}
	has([]string{late, "10.68.0.0/24"})
	r.shell(a.host, "ip address add 10.66.0.7/24 dev eth0")
	a.problem(late, "it covers 10.66.0.7")
	has([]string{"10.68.0.0/24"})
	r.awaitAfter(a.flood(b.overlay4), time.Now())
	r.shell(a.host, "ip address delete 10.66.0.7/24 dev eth0")
	has([]string{late, "10.68.0.0/24"})
}

// TestMeshOneAddress: two nodes that could not see each other have one address. When they
// meet the one with the smaller id keeps it, and the other one takes another and says so.
func TestMeshOneAddress(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	a, b, c := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{}), r.node(r.grid.All[2], settings{})
	together(a, b, c)
	known(a, b, c)
	four := a.overlay4
	for _, n := range []*node{a, b} {
		n.stop()
		path := filepath.Join(n.dir, "state", "overlay")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var kept map[string]any
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		kept["overlay4"] = four.String()
		if text, err = json.Marshal(kept); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Remove(filepath.Join(n.dir, "state", "members.cache"))); err != nil {
			t.Fatal(err)
		}
	}
	together(a, b)
	var keeps, gives *node
	r.eventually("one of them has given the address up", a.role, func() error {
		_, sa := a.mustStatus()
		_, sb := b.mustStatus()
		switch {
		case sa.Overlay4 == sb.Overlay4:
			return errors.New("both have " + sa.Overlay4)
		case sa.Overlay4 == four.String():
			keeps, gives = a, b
		default:
			keeps, gives = b, a
		}
		return nil
	})
	text, s := gives.mustStatus()
	if !strings.Contains(text, "mesh_overlay") || !strings.Contains(text, four.String()) || gives.said("mesh_overlay") == 0 {
		t.Errorf("the one that has given it up says\n%s", text)
	}
	if text, s := keeps.mustStatus(); s.Overlay4 != four.String() || strings.Contains(text, "mesh_overlay") {
		t.Errorf("the one that keeps it says\n%s", text)
	}
	gives.overlay4 = netip.MustParseAddr(s.Overlay4)
	for _, n := range []*node{keeps, c} {
		r.eventually(n.name+" has the new address", n.role, func() error {
			p, err := n.peer(gives)
			if err == nil && p.Overlay4 != s.Overlay4 {
				err = errors.New("it has " + p.Overlay4)
			}
			return err
		})
	}
	r.awaitAfter(c.flood(four), time.Now())
	r.awaitAfter(c.flood(gives.overlay4), time.Now())
	r.awaitAfter(keeps.flood(gives.overlay4), time.Now())
	if p, err := c.peer(keeps); err != nil || p.Overlay4 != four.String() {
		t.Errorf("a third one has %+v, %v", p, err)
	}
}

// TestMeshClosedRange: what was a range of a node of which nothing is heard any more is
// lost, and not sent in clear, also after a restart; until the operator opens it. Who says
// farewell opens its own.
func TestMeshClosedRange(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted")
	a := r.node(r.grid.All[0], settings{})
	b := r.node(r.grid.All[1], settings{ranges: []string{"10.91.0.0/24"}})
	b.args = append(b.args, "--leave")
	if err := os.MkdirAll(filepath.Join(a.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.write(a.host.Name()+"/state/ranges", fmt.Sprintf(`{"members":[{"id":"GONE","keys":["native/GONE"],"node":"ghost","ranges":["10.90.0.0/24"],"first":%q,"gone":%q}]}`,
		time.Now().Add(-9*time.Hour).Format(time.RFC3339), time.Now().Add(-time.Hour).Format(time.RFC3339)))
	together(a, b)
	known(a, b)
	lost := netip.MustParseAddr("10.90.0.7")
	a.explained(lost.String(), "closed: it was in a range of ghost (GONE)")
	a.flood(lost)
	if text, _ := a.mustStatus(); !strings.Contains(text, "closed: 10.90.0.0/24 of ghost, of which, or of whose key, nothing is heard for 1h") {
		t.Errorf("its status is\n%s", text)
	}
	if n := a.metrics().value("tombolo_mesh_closed_ranges"); n != 1 {
		t.Errorf("%v closed ranges are counted, want 1", n)
	}
	r.requireNoClearText(a)
	a.explainedTo("10.91.0.7", b)
	b.stop()
	a.explained("10.91.0.7", "in clear")
	r.requireNoClearText(a)
	a.stop()
	together(a)
	a.explained(lost.String(), "closed: it was in a range of ghost (GONE)")
	if out, err := a.verb("forget", "ghost"); err != nil || !strings.Contains(out, "10.90.0.0/24 of ghost: open") {
		t.Fatalf("forget: %v\n%s", err, out)
	}
	a.explained(lost.String(), "in clear")
	if n := a.metrics().value("tombolo_mesh_closed_ranges"); n != 0 {
		t.Errorf("%v closed ranges are counted when all are open", n)
	}
	if out, err := a.verb("forget", "ghost"); err == nil {
		t.Errorf("what is open is opened again:\n%s", out)
	}
}

// TestMeshDisputedAddress: a member that says that it is at an address in another's range, and
// at another's address in the mesh, opens nothing to clear text and takes neither.
func TestMeshDisputedAddress(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{ranges: []string{"10.83.0.0/24"}})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	disputed := netip.MustParseAddr("10.83.0.9")
	a.explainedTo(disputed.String(), b)
	a.flood(disputed)
	a.flood(disputed.Prev())
	c := r.node(r.grid.All[2], settings{more: map[string]map[string]any{"announce": {
		"addresses": []string{disputed.String(), b.overlay4.String(), b.overlay6.String()}, "endpoints": []string{disputed.String() + ":51820", b.overlay4.String() + ":51820"},
	}}})
	together(c)
	a.problem(disputed.String()+"/32", "is closed")
	a.explained(disputed.String(), "it says that it is there itself")
	a.explained(disputed.String(), "lost in the tunnel")
	a.explainedTo(disputed.Prev().String(), b)
	for _, at := range []netip.Addr{b.overlay4, b.overlay6} {
		r.awaitAfter(a.flood(at), time.Now())
	}
	r.requireNoClearText(a)
}

// TestMeshServicesOutside: a peer's range around the hub leaves the hub alone, for other
// programs of the machine too; the rest of the range is the peer's.
func TestMeshServicesOutside(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "open")
	at := netip.MustParseAddr(lab.HubAddr)
	around := netip.PrefixFrom(at, 30).Masked()
	a := r.node(r.grid.All[0], settings{mesh: map[string]any{"accept": []string{"10.0.0.0/8", around.String()}}})
	b := r.node(r.grid.All[1], settings{ranges: []string{around.String()}})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	a.problem(at.String()+"/32", "is reached without the mesh")
	a.explained(at.String(), "is reached without the mesh")
	a.explainedTo(at.Prev().String(), b)
	r.requireNoClearText(a) // which hears what another program sends to the hub
	r.awaitAfter(a.flood(b.overlay4), time.Now())
}
