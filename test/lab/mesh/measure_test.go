// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// measure prints what nodes cost at rest, while others renew their leases.
func (c *crowd) measure(rest time.Duration, nodes ...*node) {
	r, t := c.r, c.r.t
	t.Helper()
	var before []time.Duration
	for _, n := range nodes {
		before = append(before, labtest.Spent(t, []int{n.process.Pid()}))
	}
	merged := nodes[0].metrics().sum("tombolo_discovery_client_merged_entries_total")
	stop := c.renewing()
	began := time.Now()
	<-time.After(rest)
	took := time.Since(began)
	for i, n := range nodes {
		cpu := labtest.Spent(t, []int{n.process.Pid()}) - before[i]
		m := n.metrics()
		t.Logf("%s with %.0f peers at rest: %.1f ms of processor a second, %d MiB resident, %.0f goroutines",
			n.name, m.sum("tombolo_mesh_peers"), float64(cpu)/float64(time.Millisecond)/took.Seconds(), r.resident(n)>>20, m.sum("go_goroutines"))
	}
	t.Logf("in %v %d leases were renewed", took.Round(time.Millisecond), stop())
	// A renewal is nothing new: all are looked at together, by and by.
	words, all := nodes[0].metrics().sum("tombolo_discovery_client_merged_entries_total")-merged, float64(len(c.members)+len(r.nodes))
	if most := all * (3 + took.Seconds()/limit.DiscoveryRenewals.Seconds()); words > most {
		t.Errorf("%s has looked at %.0f words of %.0f members, want at most %.0f", nodes[0].name, words, all, most)
	}
}

// churn has members come and go one after the other, and prints what each costs a node. It
// asks the node nothing meanwhile: that would cost more.
func (c *crowd) churn(n *node, size int) {
	const turns = 10
	t := c.r.t
	t.Helper()
	before := labtest.Spent(t, []int{n.process.Pid()})
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for range turns {
		<-every.C
		c.come(1)
		<-every.C
		c.leave(1)
	}
	<-every.C
	cost := labtest.Spent(t, []int{n.process.Pid()}) - before
	n.awaitPeers(size - 1)
	t.Logf("a member that comes, or goes, costs %.0f ms of processor", float64(cost)/float64(time.Millisecond)/2/turns)
}

// resident is the memory of a node's program.
func (r *rig) resident(n *node) int64 {
	r.t.Helper()
	return labtest.Resident(r.t, n.process.Pid())
}

// idle is how many peers of a node are.
func (n *node) idle() int { return int(n.metrics().sum(`tombolo_mesh_peers{state="idle"}`)) }
