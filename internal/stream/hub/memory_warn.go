// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// memoryAdvice says where the limits of the memory contradict each other, and what to
// do: what is configured (0: nothing), GOMEMLIMIT, and the cgroup's (unbounded: none).
func memoryAdvice(configured, environment, group int64) (out []string) {
	const field, variable = "limits.memory", "GOMEMLIMIT"
	name, most := field, configured
	if configured == 0 {
		name, most = variable, environment
	}
	if most != quota.Unbounded && most > group {
		out = append(out, fmt.Sprintf("%s is %s, above the cgroup's limit of %s: the kernel kills the hub before it takes from the largest cluster; "+
			"set %s to at most %s, or raise the limit of the unit or the container", name, roughly(most), roughly(group), name, roughly(percent(group, limit.MemoryOfGroup))))
	}
	if configured == 0 || configured == quota.Unbounded || environment == quota.Unbounded {
		return out
	}
	switch {
	case environment < configured:
		out = append(out, fmt.Sprintf("%s (%s) is below %s (%s): above it the garbage collector works without a pause, and the largest cluster may still take more; "+
			"unset %s, or set %s to the same", variable, roughly(environment), field, roughly(configured), variable, field))
	case environment > configured:
		out = append(out, fmt.Sprintf("%s (%s) is above %s (%s) and of no use, for the lower one holds; unset %s, or raise %s",
			variable, roughly(environment), field, roughly(configured), variable, field))
	}
	return out
}

// roughly is for people: whole units, or else MiB.
func roughly(n int64) string {
	if n >= 1<<20 {
		n -= n % (1 << 20)
	}
	return quota.SizeText(n)
}

// MemoryAdvice is for a configuration that a process with this GOMEMLIMIT
// (the largest number: none) and in this one's cgroup would run with.
func (c Config) MemoryAdvice(environment int64) []string {
	return memoryAdvice(c.limits.Memory, environment, groupLimit(ownGroup, groupRoot))
}

// memoryAdvice is for the hub as it runs.
func (h *Hub) memoryAdvice() []string {
	return memoryAdvice(h.clusters.memoryLimit(), h.memory.first, h.memory.group)
}

// adviseMemory logs it.
func (h *Hub) adviseMemory() {
	for _, text := range h.memoryAdvice() {
		h.log.Warn("limits of the memory contradict each other", telemetry.AttrReason, text)
	}
}

// Where a process finds the limit of its cgroup (cgroups(7)).
const (
	ownGroup  = "/proc/self/cgroup"
	groupRoot = "/sys/fs/cgroup"
)
