// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// What is in use is what the collector found, with what came and went since then.
func TestMemoryInUse(t *testing.T) {
	m := &Guard{}
	for i, c := range []struct {
		u            Usage
		unread, want int64
	}{
		{Usage{Total: 90}, 0, 90}, // it has not worked yet
		{Usage{Total: 900, Live: 300, Rest: 50, Cycle: 1}, 200, 350},
		{Usage{Total: 900, Live: 300, Rest: 50, Cycle: 1}, 500, 650},
		{Usage{Total: 900, Live: 300, Rest: 50, Cycle: 1}, 100, 250},
		{Usage{Total: 900, Live: 300, Rest: 50, Cycle: 1}, 5000, 900},
		{Usage{Total: 900, Live: 600, Rest: 50, Cycle: 2}, 5000, 650},
	} {
		if got := m.measure(c.u, c.unread); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
	if u := readUsage(); u.Total <= 0 || u.Total < u.Live || u.Rest <= 0 {
		t.Errorf("of this process: %+v", u)
	}
}

// TestWhichMemoryLimitCounts, and what the collector is told.
func TestWhichMemoryLimitCounts(t *testing.T) {
	for name, c := range map[string]struct {
		configured, environment, group int64
		want, collector                int64
	}{
		"nothing":                              {0, math.MaxInt64, quota.Unbounded, quota.Unbounded, math.MaxInt64},
		"the configuration":                    {500, 400, 300, 500, 400},
		"the configuration, below the others":  {100, 400, 300, 100, 100},
		"no limit, by the configuration":       {quota.Unbounded, math.MaxInt64, 300, quota.Unbounded, math.MaxInt64},
		"the environment before the cgroup":    {0, 400, 300, 400, 400},
		"the cgroup's, with room for sockets'": {0, math.MaxInt64, 1000, 900, 900},
	} {
		told := c.environment
		m := New(Options{
			Log: slog.New(slog.DiscardHandler), Configured: func() int64 { return c.configured },
			SetLimit: func(n int64) int64 {
				before := told
				if n >= 0 {
					told = n
				}
				return before
			},
		})
		told, m.group = c.environment, c.group
		m.most.Store(0)
		m.choose(c.configured)
		if m.most.Load() != c.want || told != c.collector {
			t.Errorf("%s: %d, the collector %d", name, m.most.Load(), told)
		}
	}
}

func TestTheCgroupsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		self  string
		files map[string]string
		want  int64
	}{
		"no cgroup":                    {"", nil, quota.Unbounded},
		"version 2":                    {"0::/a.slice/b.service\n", map[string]string{"a.slice/b.service/memory.max": "1000\n"}, 1000},
		"version 2, of one above":      {"0::/a.slice/b.service\n", map[string]string{"a.slice/b.service/memory.max": "1000\n", "a.slice/memory.max": "900\n"}, 900},
		"none":                         {"0::/a.slice\n", map[string]string{"a.slice/memory.max": "max\n"}, quota.Unbounded},
		"a container that sees itself": {"0::/kubepods/pod1\n", map[string]string{"memory.max": "77\n"}, 77},
		"version 1":                    {"5:cpu,memory:/x\n4:cpuset:/y\n", map[string]string{"memory/x/memory.limit_in_bytes": "55\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 55},
		"text that is none":            {"nonsense\n0::/a\n", map[string]string{"a/memory.max": "-5\n"}, quota.Unbounded},
	} {
		dir := t.TempDir()
		self := filepath.Join(dir, "self")
		os.WriteFile(self, []byte(c.self), 0o600)
		for path, text := range c.files {
			os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700)
			os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600)
		}
		if got := groupLimit(self, dir); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLimitsThatContradict: what is said, of configuration, environment and cgroup.
func TestLimitsThatContradict(t *testing.T) {
	const none, gib = int64(quota.Unbounded), int64(1 << 30)
	for name, c := range map[string]struct {
		configured, environment, group int64
		says                           []string
	}{
		"nothing":                           {0, none, none, nil},
		"the cgroup alone":                  {0, none, gib, nil},
		"as it should be":                   {gib, none, 2 * gib, nil},
		"the cgroup's own":                  {gib, none, gib, nil},
		"all the same":                      {gib, gib, gib, nil},
		"none, on purpose":                  {quota.Unbounded, gib, gib, nil},
		"above the cgroup":                  {4 * gib, none, 2 * gib, []string{"limits.memory is 4 GiB, above the cgroup's limit of 2 GiB", "set limits.memory to at most 1843 MiB"}},
		"the environment above it":          {0, 4 * gib, 2 * gib, []string{"GOMEMLIMIT is 4 GiB, above the cgroup's limit of 2 GiB", "set GOMEMLIMIT to at most"}},
		"the environment below it":          {0, gib, 2 * gib, nil},
		"the environment below":             {2 * gib, gib, none, []string{"GOMEMLIMIT (1 GiB) is below limits.memory (2 GiB)", "unset GOMEMLIMIT"}},
		"the environment above":             {gib, 2 * gib, none, []string{"GOMEMLIMIT (2 GiB) is above limits.memory (1 GiB) and of no use"}},
		"both":                              {4 * gib, 5 * gib, gib, []string{"limits.memory is 4 GiB, above", "GOMEMLIMIT (5 GiB) is above"}},
		"an odd number is told as one, too": {0, 4*gib + 1, 2*gib + 4096, []string{"GOMEMLIMIT is 4 GiB, above the cgroup's limit of 2 GiB"}},
	} {
		got := strings.Join(advice(c.configured, c.environment, c.group), "\n")
		if (got == "") != (len(c.says) == 0) {
			t.Errorf("%s: %q", name, got)
		}
		for _, text := range c.says {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q does not say %q", name, got, text)
			}
		}
	}
}

// TestWhoIsOverdue: at a bound of 100.
func TestWhoIsOverdue(t *testing.T) {
	for name, c := range map[string]struct {
		unread, before, cut, beyond string
	}{
		"nobody":                         {"", "", "", ""},
		"below the bound, for long":      {"a:99", "", "", ""},
		"at the bound":                   {"a:100", "a", "", ""},
		"beyond it for the first time":   {"a:300", "", "", "a"},
		"still, the second time":         {"a:300", "a", "a:200", ""},
		"it was a burst":                 {"a:20", "a", "", ""},
		"and again after it has given":   {"a:101", "", "", "a"},
		"each for itself":                {"a:150 b:150 c:50", "a", "a:50", "b"},
		"who has nothing is not kept":    {"b:150", "a", "", "b"},
		"both":                           {"a:101 b:900", "a b", "a:1 b:800", ""},
		"who was cut has two looks more": {"a:300 b:1", "b", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []backlog
			each := func(text string, do func(who id.Cluster, n int64)) {
				for _, f := range strings.Fields(text) {
					var n int64
					who, rest, _ := strings.Cut(f, ":")
					fmt.Sscan(rest, &n)
					do(clusterOf(t, who), n)
				}
			}
			before, cut, beyond := map[id.Cluster]bool{}, map[id.Cluster]int64{}, map[id.Cluster]bool{}
			each(c.unread, func(who id.Cluster, n int64) { all = append(all, backlog{who, nil, n, 100}) })
			each(c.before, func(who id.Cluster, _ int64) { before[who] = true })
			each(c.cut, func(who id.Cluster, n int64) { cut[who] = n })
			each(c.beyond, func(who id.Cluster, _ int64) { beyond[who] = true })
			gotCut, gotBeyond := overdue(all, before)
			if !maps.Equal(gotCut, cut) || !maps.Equal(gotBeyond, beyond) {
				t.Errorf("cut %v, beyond %v", gotCut, gotBeyond)
			}
		})
	}
}
