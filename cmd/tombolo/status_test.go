// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

func TestStatusShowsALoss(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	agent := admin.AgentStatus{ID: "a1", Connected: true, Connections: 1}
	for want, loss := range map[string]*admin.Loss{
		"": nil,
		"  lost      2 of its connections, the last at 2026-03-01 12:00:00 UTC: silent, no byte came\n": {Cause: "silent", Reason: "no byte came", At: now},
	} {
		if agent.LastLoss = loss; loss != nil {
			agent.ConnectionsLost = 2
		}
		var b strings.Builder
		st := admin.Status{Clusters: []admin.ClusterStatus{{Name: "c1", Agents: []admin.AgentStatus{agent}}}}
		if err := printStatus(&b, st, true, now); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "  lost ") != (want != "") {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestStatusShowsPorts(t *testing.T) {
	var b strings.Builder
	st := admin.Status{Clusters: []admin.ClusterStatus{{Name: "c1", Ports: []admin.PortStatus{{Name: "registry", Target: "10.0.0.5:5000", Streams: 3}}}}}
	if err := printStatus(&b, st, true, time.Now()); err != nil || !strings.Contains(b.String(), "\nport registry\n  target    10.0.0.5:5000\n  streams   3\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestStatusShowsThePolicy(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refusal := &admin.PolicyRefusal{File: "c1.yaml", Reason: "host bits", At: at}
	for name, c := range map[string]struct {
		policy *admin.PolicyStatus
		want   string
	}{
		"none":                {nil, "reached at \nno cluster"},
		"good":                {&admin.PolicyStatus{Files: 2, Rules: 7}, "\npolicy of 7 rules in 2 files\nno cluster"},
		"a bad one":           {&admin.PolicyStatus{Files: 2, Rules: 7, Refusal: refusal}, "\npolicy of 7 rules in 2 files\nwarning: since 2026-03-01 12:00:00 UTC the last good content of c1.yaml stays in force: host bits\n"},
		"a first that is bad": {&admin.PolicyStatus{Refusal: &admin.PolicyRefusal{File: "c1.yaml", Reason: "host bits", At: at, New: true}}, "\nwarning: c1.yaml is not in force since 2026-03-01 12:00:00 UTC: host bits\n"},
	} {
		var b strings.Builder
		if err := printStatus(&b, admin.Status{Policy: c.policy}, false, at); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: no %q in\n%s", name, c.want, b.String())
		}
	}
}

func TestStatusShowsTheConnections(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	agent := admin.AgentStatus{ID: "a1", Connected: true, Since: now, Peer: "192.0.2.7:1", Software: "tombolo v1", Ranges: []string{"10.0.0.0/8"}}
	gone := agent
	gone.ID, gone.Connected = "a2", false
	for name, c := range map[string]struct {
		connections int
		row, detail string
	}{
		"two connections": {2, "  2            0 ", "tombolo v1, 2 connections\n"},
		"one connection":  {1, "  1            0 ", "tombolo v1, 1 connection\n"},
	} {
		t.Run(name, func(t *testing.T) {
			agent.Connections = c.connections
			var b strings.Builder
			st := admin.Status{Clusters: []admin.ClusterStatus{{Name: "c1", Agents: []admin.AgentStatus{agent, gone}}, {Name: "c2"}}}
			if err := printStatus(&b, st, true, now); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), c.row) || !strings.Contains(b.String(), c.detail) {
				t.Errorf("no %q or no %q in\n%s", c.row, c.detail, b.String())
			}
		})
	}
}
