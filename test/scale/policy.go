// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/test/roles"
)

// mostPolicyBend is what a change costs with the most clusters, of what it costs with
// the fewest. It is the same work; but in a process with a hundred times the memory
// less of what it touches is in the caches.
const mostPolicyBend = 2.0

// opChange changes the policy (args: changeArgs; result: changeResult).
const opChange = "change"

// changeArgs change one cluster's file after the other.
type changeArgs struct {
	Clusters int `json:"clusters"`
	Changes  int `json:"changes"`
}

// changeResult is what each change took: processor time of the hub's process, with
// what writing the file takes there, and time until it was in force.
type changeResult struct {
	CPU     time.Duration `json:"cpu"`
	InForce time.Duration `json:"inForce"`
}

// policyText is one cluster's policy, as an operator writes one.
func policyText(cluster, change int) string {
	return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nlists:\n- name: nodes\n  ranges: [\"10.%[2]d.0.0/16\", \"fd00:%[2]x::/64\"]\nrules:\n"+
		"- {name: kubelets, clusters: [%[1]s], egress: [cluster], allow: [\"@nodes:10250\"]}\n"+
		"- {name: services, clusters: [%[1]s], allow: [\"10.96.0.0/12:443\", \"*.svc.cluster.local:443\"]}\n"+
		"- {name: not-the-database, clusters: [%[1]s], deny: [\"10.96.7.0/24\"]}\n", clusterName(cluster), change%256)
}

func policyPath(folder string, cluster int) string {
	return filepath.Join(folder, clusterName(cluster)+".yaml")
}

// takePolicy changes the policy of one cluster at a time, beside more and more others.
func takePolicy(ctx context.Context, r *runner) error {
	var costs []changeResult
	for _, n := range r.policies {
		result, err := r.policyOf(ctx, n)
		if err != nil {
			return err
		}
		costs = append(costs, result)
	}
	first, last := costs[0], costs[len(costs)-1]
	l := line{name: "one change of a policy of " + grouped(r.policies[len(r.policies)-1]) + " clusters, of that of " + grouped(r.policies[0]),
		value: float64(last.CPU) / float64(first.CPU), target: mostPolicyBend}
	if len(costs) < 2 || first.CPU <= 0 {
		l.value = math.NaN()
	}
	return r.line(l)
}

// policyOf starts a hub with a file for each of n clusters and has some changed.
func (r *runner) policyOf(ctx context.Context, n int) (out changeResult, err error) {
	folder, err := r.lab.Dir()
	if err != nil {
		return out, err
	}
	if folder, err = os.MkdirTemp(folder, "p"); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	for i := range n {
		if err := errors.Join(ctx.Err(), os.WriteFile(policyPath(folder, i), []byte(policyText(i, 0)), 0o600)); err != nil {
			return out, err
		}
	}
	began := time.Now()
	s, err := r.newSite(ctx, 1, 0, folder)
	if err != nil {
		return out, err
	}
	defer s.stop()
	started := time.Since(began)
	l, err := s.look(ctx)
	if err != nil {
		return out, err
	}
	if err := s.hub.Call(ctx, opChange, 0, changeArgs{Clusters: n, Changes: r.changes}, &out); err != nil {
		return out, err
	}
	r.say("policy     %6d: %v of a processor for a change, in force after %v; %.1f KB of memory for each cluster; the hub was up after %v", n,
		out.CPU.Round(time.Microsecond), out.InForce.Round(time.Millisecond), float64(l.Settled)/float64(n)/1000, started.Round(time.Millisecond))
	return out, r.results.Add(record{Measurement: "policy", At: n, Values: map[string]float64{
		"cpuus": float64(out.CPU.Microseconds()), "inForcems": float64(out.InForce.Milliseconds()), "rssSettled": float64(l.Settled),
		"startms": float64(started.Milliseconds()),
	}})
}

// change writes one file after the other and waits until each is in force.
func (r *hubRole) change(raw json.RawMessage) (out changeResult, err error) {
	args, err := roles.Arguments[changeArgs](raw)
	if err != nil {
		return out, err
	}
	begun, busy := time.Now(), roles.CPUTime()
	for i := range args.Changes {
		before := r.version()
		cluster := i * args.Clusters / args.Changes
		path := policyPath(r.args.Policies, cluster)
		next := filepath.Join(r.args.Policies, ".next")
		if err := errors.Join(os.WriteFile(next, []byte(policyText(cluster, i+1)), 0o600), os.Rename(next, path)); err != nil {
			return out, err
		}
		// Looking costs what is measured, so it begins when the hub may have seen it.
		for wait := limit.ConfigDebounce + 10*time.Millisecond; r.version() == before; wait = 10 * time.Millisecond {
			if time.Since(begun) > time.Duration(args.Changes)*time.Minute {
				return out, fmt.Errorf("change %d did not come into force", i+1)
			}
			time.Sleep(wait)
		}
	}
	n := time.Duration(args.Changes)
	return changeResult{CPU: (roles.CPUTime() - busy) / n, InForce: time.Since(begun) / n}, nil
}

// version is that of the policy in force.
func (r *hubRole) version() string {
	if p := r.hub.Status().Policy; p != nil {
		return p.Version
	}
	return ""
}
