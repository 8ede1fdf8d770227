// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

func TestLimitsAreLaidOverOneAnother(t *testing.T) {
	parse := func(text string) *quota.Table {
		t.Helper()
		c, err := ParseConfig("f", []byte(kind+text))
		if err != nil {
			t.Fatal(err)
		}
		return c.limits
	}
	c1, c2 := clusterOf(t, "c1"), clusterOf(t, "c2")
	d := quota.Defaults()
	if got := parse(""); got.Of(c1) != d || got.Memory != 0 {
		t.Errorf("nothing said: %+v", got)
	}
	got := parse(`limits:
  memory: 1GiB
  cluster: {streams: 7, dialsPerSecond: 20, bytesOutPerSecond: 1MiB}
  agent: {sessions: none, unreadBytes: 3MiB}
  caller: {dialsPerSecond: 4, dialBurst: 9}
clusters:
- name: c1
  limits:
    cluster: {streams: 70000, dialsPerSecond: none, bytesOutPerSecond: none, unreadBytes: 1GiB}
    caller: {dialsPerSecond: 100}
- name: c2
`)
	all := d
	all.Cluster.Streams, all.Cluster.Dials, all.Cluster.Burst, all.Cluster.Out = 7, 20, 100, 1<<20
	all.Agent.Sessions, all.Agent.Unread = quota.Unbounded, 3<<20
	all.Caller.Dials, all.Caller.Burst = 4, 9
	if got.Of(c2) != all || got.Memory != 1<<30 {
		t.Errorf("for all: %+v\nwant %+v", got.Of(c2), all)
	}
	own := all
	own.Cluster.Streams, own.Cluster.Dials, own.Cluster.Burst, own.Cluster.Out, own.Cluster.Unread = 70000, quota.Unbounded, quota.Unbounded, quota.Unbounded, 1<<30
	own.Caller.Dials, own.Caller.Burst = 100, 500
	if got.Of(c1) != own {
		t.Errorf("of its own: %+v\nwant %+v", got.Of(c1), own)
	}
	if got := parse("limits: {memory: none}\n"); got.Memory != quota.Unbounded {
		t.Errorf("no limit of memory: %d", got.Memory)
	}
}

func TestProblemsOfLimits(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n  cluster: {streams: 0}\n":                        `f:4:22: limits.cluster.streams: "0" is neither a whole number from 1 nor none`,
		"limits:\n  cluster: {streams: -1}\n":                       `f:4:22: limits.cluster.streams: "-1" is neither`,
		"limits:\n  cluster: {streams: 010}\n":                      `f:4:22: limits.cluster.streams: "010" is neither`,
		"limits:\n  cluster: {streams: 1e3}\n":                      `f:4:22: limits.cluster.streams: "1e3" is neither`,
		"limits:\n  cluster: {streams: 99999999999999999999}\n":     `f:4:22: limits.cluster.streams: "99999999999999999999" is neither`,
		"limits:\n  cluster: {streams: none}\n":                     `f:4:22: limits.cluster.streams: a cluster needs a number here`,
		"limits:\n  cluster: {sessions: none}\n":                    `f:4:23: limits.cluster.sessions: a cluster needs a number here`,
		"limits:\n  cluster: {pendingDials: none}\n":                `f:4:27: limits.cluster.pendingDials: a cluster needs a number here`,
		"limits:\n  cluster: {unreadBytes: none}\n":                 `f:4:26: limits.cluster.unreadBytes: a cluster needs a size here`,
		"limits:\n  cluster: {unreadBytes: 5}\n":                    `f:4:26: limits.cluster.unreadBytes: "5" is neither a size such as`,
		"limits:\n  cluster: {bytesInPerSecond: 0MiB}\n":            `f:4:31: limits.cluster.bytesInPerSecond: "0MiB" is neither a size`,
		"limits:\n  agent: {dialBurst: 5}\n":                        `f:4:22: limits.agent.dialBurst: is of no use without dialsPerSecond`,
		"limits:\n  agent: {dialsPerSecond: 1, dialBurst: none}\n":  `f:4:41: limits.agent.dialBurst: a burst is a number`,
		"limits:\n  caller: {sessions: none}\n":                     `f:4:22: limits.caller.sessions: a caller has at most 10000 connections`,
		"limits:\n  caller: {sessions: 10001}\n":                    `f:4:22: limits.caller.sessions: a caller has at most 10000 connections`,
		"limits:\n  callers: {}\n":                                  `f:4:3: limits.callers: unknown key; did you mean caller? known here: memory, cluster, agent, caller, relay`,
		"limits:\n  memory: 1MiB\n":                                 `f:4:11: limits.memory: 1MiB is less than 64MiB`,
		"limits:\n  memory: 0GiB\n":                                 `f:4:11: limits.memory: "0GiB" is neither a size`,
		"clusters:\n- name: c1\n  limits: {cluster: {streams: 0}}":  `f:5:31: clusters[0].limits.cluster.streams: "0" is neither`,
		"clusters:\n- name: c1\n  limits: {agent: {dialBurst: 1}}":  `f:5:31: clusters[0].limits.agent.dialBurst: is of no use`,
		"clusters:\n- name: c1\n  limits: {memory: 1GiB}":           `f:5:12: clusters[0].limits.memory: unknown key`,
		"streams: {dialTimeout: 0s}\n":                              `f:3:24: streams.dialTimeout: "0s" is no time; leave the key out for the default`,
		"streams: {idleTimeout: 0s}\n":                              `f:3:24: streams.idleTimeout: "0s" is no time`,
		"drainTimeout: 0s\n":                                        `f:3:15: drainTimeout: "0s" is no time`,
		"certificates: {agentLife: 0h}\n":                           `f:3:27: certificates.agentLife: "0h" is no time`,
		"limits:\n  agent: {bytesInPerSecond: none, sessions: x}\n": `f:4:45: limits.agent.sessions: "x" is neither`,
	} {
		_, err := ParseConfig("f", []byte(kind+text))
		if f := fault.From(err); f == nil || f.Code != fault.CodeConfig || !strings.Contains(f.Error(), want) || strings.Count(f.Why, "\n") != 1 {
			t.Errorf("%s: %v\nwant one problem: %s", text, err, want)
		}
	}
}

// The bounds that are there by themselves fit together.
func TestDefaultLimitsFitTogether(t *testing.T) {
	d := quota.Defaults()
	for what, ok := range map[string]bool{
		"a burst of dials fits into the streams":         d.Cluster.Burst <= d.Cluster.Streams,
		"dials under way fit into a burst":               d.Cluster.Pending <= d.Cluster.Burst,
		"one agent does not take all sessions":           d.Agent.Sessions < d.Cluster.Sessions,
		"one agent does not take all streams":            d.Agent.Streams < d.Cluster.Streams,
		"no rate of bytes is bounded unless it is asked": d.Cluster.In == quota.Unbounded && d.Cluster.Out == quota.Unbounded,
		"memory is short before it is over":              limit.MemoryCut < limit.MemoryCalm && limit.MemoryCalm < limit.MemoryShort && limit.MemoryShort < limit.MemoryOver && limit.MemoryOver < 100,
	} {
		if !ok {
			t.Errorf("it does not hold that %s", what)
		}
	}
}
