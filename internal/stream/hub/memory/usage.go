// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// readUsage asks the runtime (runtime/metrics). The limit of the collector counts
// what total counts.
func readUsage() Usage {
	s := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(s)
	n := func(i int) int64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(s[i].Value.Uint64())
	}
	total := n(0) - n(1)
	return Usage{Total: total, Live: n(2), Rest: max(0, total-n(3)-n(4)-n(5)), Cycle: uint64(n(6))}
}

// groupLimit is the least memory limit of the process's cgroup and those above it,
// of version 2 or 1 (cgroups(7)); unbounded if there is none.
func groupLimit(self, root string) int64 {
	most := int64(quota.Unbounded)
	data, err := os.ReadFile(self)
	if err != nil {
		return most
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, file := root, "memory.max"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			top, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		// In a container the path may be that of the host, and only the top is there.
		for dir := filepath.Join("/", parts[2]); ; dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(top, dir, file)); err == nil {
				// Version 1 says "none" with the largest number of pages.
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < 1<<60 {
					most = min(most, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return most
}
