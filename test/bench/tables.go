// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that tables answer.
const (
	opDecide = "decide" // args: decideArgs; result: tableFigures
	opChange = "change" // args: the count of tenants; result: tableFigures
)

// decideArgs say how large a policy is.
type decideArgs struct {
	Clusters int `json:"clusters"`
	Entries  int `json:"entries"` // of each
}

// tableFigures are what was measured.
type tableFigures struct {
	PerSecond float64 `json:"perSecond"`       // of one core
	Bytes     float64 `json:"bytes,omitempty"` // of an entry, without what it was read from
}

// tables is the role that has an edge's tables, without the edge.
type tables struct{ traffic }

func (r *tables) counters() *traffic { return &r.traffic }

func (r *tables) do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opDecide:
		args, err := roles.Arguments[decideArgs](raw)
		if err != nil {
			return nil, err
		}
		return decide(args)
	case opChange:
		n, err := roles.Arguments[int](raw)
		if err != nil {
			return nil, err
		}
		return change(n)
	}
	return nil, roles.ErrUnknown
}

// decide asks for sources that are allowed and, as often, for one that is not.
func decide(args decideArgs) (f tableFigures, err error) {
	entry := func(cluster, i int) netip.Addr {
		n := cluster*args.Entries + i
		return netip.AddrFrom4([4]byte{byte(20 + n>>24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	rules := make([]policy.Rule, args.Clusters)
	for c := range rules {
		sources := make([]string, args.Entries)
		for i := range sources {
			sources[i] = entry(c, i).String()
		}
		rules[c] = policy.Rule{
			Name: fmt.Sprintf("r%d", c), Cluster: []string{fmt.Sprintf("c%d", c)}, Flow: []string{policy.FlowAPI},
			Source: sources, Destination: []string{"*"},
		}
	}
	before := settledMemory()
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		return f, fmt.Errorf("%v", problems[0])
	}
	table := authz.NewTable()
	table.Replace(true, map[string]*policy.Policy{"policy.yaml": p})
	f.Bytes = float64(settledMemory().Live-before.Live) / float64(args.Clusters*args.Entries)
	runtime.KeepAlive(rules)
	requests := make([]policy.Request, 4096)
	for i := range requests {
		c := i * 97 % args.Clusters
		requests[i] = policy.Request{
			Cluster: fmt.Sprintf("c%d", c), Flow: policy.FlowAPI, Source: entry(c, i%args.Entries),
			Name: "api.example.org", Port: 443,
		}
		if i%2 == 1 {
			requests[i].Source = netip.MustParseAddr("203.0.113.9")
		}
	}
	f.PerSecond, err = perCoreSecond(func(n int) error {
		i := n % len(requests)
		if r := table.Decide(requests[i]); r.Allow != (i%2 == 0) {
			return errors.New(r.Why())
		}
		return nil
	})
	return f, err
}

// change parses a tenant and puts it in the place of what it was before.
func change(tenants int) (f tableFigures, err error) {
	file := func(n, version int) *tenant.Tenant {
		name := fmt.Sprintf("c%d", n)
		t, doc := tenant.Read(name+".yaml", []byte(strings.ReplaceAll(fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: NAME}
spec:
  ways:
  - {flow: api, names: [api.NAME.example.org, "*.NAME.example.org"], upstreams: ["192.0.2.1:%d"]}
  - {flow: vpn, destinations: ["outbound|1194||vpn-seed-server.shoot--p--NAME.svc.cluster.local"]}
`, 1024+version), "NAME", name)))
		if doc.Err() != nil {
			err = doc.Err()
		}
		return t
	}
	table := tenant.NewTable()
	for i := range tenants {
		if t := file(i, 0); err != nil {
			return f, err
		} else if claims := table.Put(t); claims != nil {
			return f, fmt.Errorf("tenant %d: %v", i, claims)
		}
	}
	runtime.GC() // what the building left is not the change's
	f.PerSecond, err = perCoreSecond(func(n int) error {
		if claims := table.Put(file(n*97%tenants, n%1000)); claims != nil {
			return fmt.Errorf("%v", claims)
		}
		return err
	})
	return f, err
}

// perCoreSecond is how often f can be called in a second of one core. The thread's own time counts, so that other
// programs do not.
func perCoreSecond(f func(n int) error) (float64, error) {
	const window = 500 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, err := threadTime()
	if err != nil {
		return 0, err
	}
	for n := 0; ; {
		for range 256 {
			if err := f(n); err != nil {
				return 0, err
			}
			n++
		}
		now, err := threadTime()
		if err != nil {
			return 0, err
		}
		if took := now - begin; took >= window {
			return float64(n) / took.Seconds(), nil
		}
	}
}

func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}
