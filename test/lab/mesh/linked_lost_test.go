// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/test/lab"
)

// killed ends the gateway that carries what flows, in rounds.
func (r *linkedRig) killed(t *testing.T) {
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	f := r.flood(podA.host, netip.MustParseAddr(podD.addr))
	defer f.End()
	r.awaitAfter(f, time.Now())
	var all []time.Duration
	for i := range rounds() {
		otherPhase(i)
		through := r.carrier(podD.addr)
		through.kill()
		took := r.awaitAfter(f, time.Now())
		t.Logf("packets pass %v after %s was killed", took.Round(time.Millisecond), through.name)
		all = append(all, took)
		through.begin()
		through.awaitUp()
	}
	logSpread(t, "kills", all)
}

// rounds is how often a gateway is lost: once, or TOMBOLO_LAB_KILLS times ('make bench-failover').
func rounds() int {
	n, err := strconv.Atoi(os.Getenv("TOMBOLO_LAB_KILLS"))
	if err != nil {
		return 1
	}
	return n
}

// otherPhase has each round but the first one begin at another moment between two pings: what a round leaves behind
// would have all of them begin at the same.
func otherPhase(round int) {
	if round > 0 {
		<-time.After(rand.N(2 * time.Second))
	}
}

// logSpread logs how long packets were lost, of all rounds.
func logSpread(t *testing.T, of string, all []time.Duration) {
	slices.Sort(all)
	t.Logf("%d %s: p50 %v, p99 %v, all %v", len(all), of, all[len(all)/2], all[len(all)*99/100], all)
}

// cutOff cuts the way between the east and the gateway: the rest of its cluster reaches it.
func (r *linkedRig) cutOff(t *testing.T) {
	a := r.east.nodes[0]
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	f := r.flood(podA.host, netip.MustParseAddr(podD.addr))
	defer f.End()
	r.awaitAfter(f, time.Now())
	through := r.carrier(podD.addr)
	cut := r.grid.Cut(a.place, through.place)
	if err := cut.On(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	t.Logf("packets pass %v after %s was cut off", r.awaitAfter(f, begin).Round(time.Millisecond), through.name)
	if now := r.carrier(podD.addr); now == through {
		t.Errorf("they go through %s", now.name)
	}
	r.eventually(through.name+" reports that it reaches no other cluster", nil, func() error { // by which it loses its role
		is, err := r.west.plan(through)
		if state, _ := is.tunnel("east." + a.host.Name()); err == nil && (state != report.Down || len(is.Status.Tunnels) != 1) {
			err = fmt.Errorf("%+v", is.Status.Tunnels)
		}
		return err
	})
	if err := cut.Off(); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	r.awaitCarrier(podD.addr, "they go through "+through.name+" again", func(n *node) bool { return n == through })
	t.Logf("they do after %v, with %v without an answer", time.Since(begin).Round(time.Millisecond), f.Lost(begin))
}

// alone cuts the ways between the gateway and all other nodes of its cluster, in rounds: the east reaches it.
func (r *linkedRig) alone(t *testing.T) {
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	f := r.flood(podA.host, netip.MustParseAddr(podD.addr))
	defer f.End()
	r.awaitAfter(f, time.Now())
	var all []time.Duration
	for i := range rounds() {
		otherPhase(i)
		through := r.carrier(podD.addr)
		var cuts []*lab.Filter
		for _, n := range r.west.nodes {
			if n != through {
				cuts = append(cuts, r.grid.Cut(n.place, through.place))
			}
		}
		for _, c := range cuts {
			if err := c.On(); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now() // a packet may have passed between two cuts
		r.awaitCarrier(podD.addr, "they do not go through "+through.name, func(n *node) bool { return n != through })
		took := r.awaitAfter(f, begin)
		t.Logf("packets pass %v after %s was cut off from its own cluster", took.Round(time.Millisecond), through.name)
		all = append(all, took)
		for _, c := range cuts {
			if err := c.Off(); err != nil {
				t.Fatal(err)
			}
		}
		begin = time.Now()
		r.awaitCarrier(podD.addr, "they go through "+through.name+" again", func(n *node) bool { return n == through })
		t.Logf("they do after %v, with %v without an answer", time.Since(begin).Round(time.Millisecond), f.Lost(begin))
	}
	logSpread(t, "cuts", all)
}

// awaitCarrier waits until it holds of the gateway by which the east reaches an address.
func (r *linkedRig) awaitCarrier(addr, what string, holds func(*node) bool) {
	r.t.Helper()
	r.eventually(what, nil, func() error {
		if !holds(r.carrier(addr)) {
			return errNotYet
		}
		return nil
	})
}

// notReady has Kubernetes say so of a gateway through which packets pass.
func (r *linkedRig) notReady(t *testing.T) {
	podA := r.east.pods[0]
	podD := r.west.pods[2]
	f := r.flood(podA.host, netip.MustParseAddr(podD.addr))
	defer f.End()
	begin := time.Now()
	r.awaitAfter(f, begin)
	through := r.carrier(podD.addr)
	r.setReady(through.host.Name(), "NotReady")
	r.awaitCarrier(podD.addr, "packets do not go through "+through.name, func(n *node) bool { return n != through })
	r.awaitAfter(f, time.Now())
	t.Logf("without an answer: %v", f.Lost(begin))
	r.setReady(through.host.Name(), "Ready")
}
