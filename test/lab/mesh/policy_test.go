// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// other is a second port at which pods give back what they get.
const other = 7008

// refusedWithin is how long a packet is waited for that must not come.
const refusedWithin = 700 * time.Millisecond

// accessRules begin a policy of the lab: nodes ping each other.
const accessRules = `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules:
- name: nodes
  allow: [100.112.0.0/12]
`

// TestMeshPolicy: a node lets in what its policy allows, by the caller, by the source and
// by range and port, and drops what it does not. A file that changes counts at once, for
// connections that there are too; a broken one is refused, and the one before stays.
func TestMeshPolicy(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	podA, podB, podC := r.podBehind(r.grid.All[0], bridge, 1), r.podBehind(r.grid.All[1], bridge, 2), r.podBehind(r.grid.All[2], bridge, 3)
	if err := podB.host.Echo(other); err != nil {
		t.Fatal(err)
	}
	rules := func(more string) string { return accessRules + more }
	both := fmt.Sprintf("- name: web\n  callers: [a]\n  allow: [\"%s:%d\"]\n- name: from-a-range\n  sources: [%s]\n  allow: [\"%s:%d\"]\n",
		podB.share, echo, podC.share, podB.share, other)
	file := r.write("b/policy.yaml", rules(both))
	a := r.node(r.grid.All[0], settings{ranges: []string{podA.share}})
	b := r.node(r.grid.All[1], settings{ranges: []string{podB.share}, mesh: map[string]any{"policies": []string{file}}})
	c := r.node(r.grid.All[2], settings{ranges: []string{podC.share}})
	together(a, b, c)
	known(a, b, c)
	awaitDirect(a, b)
	awaitDirect(c, b)
	to := netip.MustParseAddr(podB.addr)
	p := policed{r, b, to}

	r.step("what is allowed passes, and nothing else", func(*testing.T) {
		p.passes(podA.host, echo) // once a hub has vouched for its name
		p.passes(podC.host, other)
		p.fails(podA.host, other)
		p.fails(podC.host, echo)
		for addr, says := range map[string]string{podA.addr: fmt.Sprintf("dport %d", echo), podC.addr: fmt.Sprintf("dport %d", other)} {
			out, err := b.verb("explain", addr)
			if err != nil || !strings.Contains(out, "by the policy") || !strings.Contains(out, says) || !strings.Contains(out, "anything else: drop") {
				r.t.Errorf("explain of %s: %v\n%s", addr, err, out)
			}
			r.t.Log(out)
		}
	})

	live := p.open(podA.host, echo)
	defer live.Close()
	outgoing := policed{r, b, netip.MustParseAddr(podC.addr)}.open(podB.host, echo) // which needs no rule of b's
	defer outgoing.Close()

	r.step("a broken file", func(*testing.T) {
		replace(r, file, rules("- name: web\n  callers: [a]\n  allow: [nonsense/99]\n"))
		r.eventually("its status says so", b.role, func() error {
			if text, s := b.mustStatus(); len(s.Warnings) == 0 || !strings.Contains(text, file+":") || !strings.Contains(text, "last good policy stays") {
				return errors.New(text)
			} else if s.Policy == nil || s.Policy.Fault == nil || s.Policy.Fault.Code != "config_invalid" || !strings.Contains(s.Policy.Fault.Why, file+":8:11: ") {
				return fmt.Errorf("as data it is %+v", s.Policy)
			}
			return nil
		})
		p.passes(podA.host, echo)
		p.fails(podC.host, echo)
	})

	r.step("another file", func(*testing.T) {
		replace(r, file, rules(fmt.Sprintf("- name: web\n  callers: [c]\n  allow: [\"%s:%d\"]\n", podB.share, echo)))
		p.passes(podC.host, echo)
		p.fails(podA.host, echo)
		p.fails(podC.host, other)
		if err := said(live, refusedWithin); err == nil {
			r.t.Error("a connection goes on that the new policy forbids")
		}
		if err := said(outgoing, patience); err != nil {
			r.t.Errorf("a connection that the node's own side began has ended: %v", err)
		}
		if _, s := b.mustStatus(); len(s.Warnings) > 0 {
			r.t.Errorf("it still warns: %v", s.Warnings)
		}
		r.eventually("the metric counts what was dropped", b.role, func() error {
			if p.dropped() <= 0 {
				return errNotYet
			}
			return nil
		})
	})
}

// TestMeshPolicyDenies: a deny rule with callers holds for a node without a certificate, which
// nobody can vouch for and which could be the one that is denied; one that is vouched for
// under another name passes.
func TestMeshPolicyDenies(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open", "open")
	podA, podB, podC := r.podBehind(r.grid.All[0], bridge, 1), r.podBehind(r.grid.All[1], bridge, 2), r.podBehind(r.grid.All[2], bridge, 3)
	file := r.write("b/policy.yaml", accessRules+fmt.Sprintf("- name: all\n  allow: [%s]\n- name: not-evil\n  callers: [evil]\n  deny: [%s]\n", podB.share, podB.share))
	a := r.node(r.grid.All[0], settings{ranges: []string{podA.share}})
	b := r.node(r.grid.All[1], settings{ranges: []string{podB.share}, mesh: map[string]any{"policies": []string{file}}})
	c := r.node(r.grid.All[2], settings{ranges: []string{podC.share}, sources: map[string]any{
		"services": []any{map[string]any{"url": discoveryAt4, "pin": r.pin, "name": "lab"}}, // and no hub
	}})
	together(a, b, c)
	known(a, b, c)
	awaitDirect(c, b)
	p := policed{r, b, netip.MustParseAddr(podB.addr)}
	p.passes(podA.host, echo) // once a hub has vouched for its name
	p.fails(podC.host, echo)
	out, err := b.verb("explain", podC.addr)
	if err != nil || !strings.Contains(out, "no hub has vouched for a name of "+podC.addr) {
		t.Errorf("explain: %v\n%s", err, out)
	}
}

// policed is a place behind a node with a policy.
type policed struct {
	*rig
	node *node
	to   netip.Addr
}

// connect begins a connection and has something said and given back by it.
func (p policed) connect(from *lab.Host, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusedWithin)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(p.to, port).String())
	if err != nil {
		return nil, err
	}
	if err := said(c, refusedWithin); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// said has something said and given back.
func said(c net.Conn, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, marker); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(marker)))
	return err
}

func (p policed) passes(from *lab.Host, port uint16) {
	p.t.Helper()
	p.open(from, port).Close()
}

func (p policed) open(from *lab.Host, port uint16) (c net.Conn) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%s reaches port %d", from.Name(), port), p.node.role, func() (err error) {
		c, err = p.connect(from, port)
		return err
	})
	return c
}

// fails checks that nothing comes back: a packet that is not allowed is dropped, and nobody
// is told.
func (p policed) fails(from *lab.Host, port uint16) {
	p.t.Helper()
	c, err := p.connect(from, port)
	if err == nil {
		c.Close()
		p.t.Errorf("%s reaches port %d", from.Name(), port)
		return
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		p.t.Errorf("%s at port %d is told %v, and not left waiting", from.Name(), port, err)
	}
}

// dropped is the metric of packets that the policy dropped.
func (p policed) dropped() float64 {
	p.t.Helper()
	return p.node.metrics().value(`tombolo_mesh_dropped_packets_total{reason="policy"}`)
}
