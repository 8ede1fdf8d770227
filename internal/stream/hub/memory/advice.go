// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// advice says where the limits of the memory contradict each other, and what to
// do: what is configured (0: nothing), GOMEMLIMIT, and the cgroup's (unbounded: none).
func advice(configured, environment, group int64) (out []string) {
	const field, variable = "limits.memory", "GOMEMLIMIT"
	name, most := field, configured
	if configured == 0 {
		name, most = variable, environment
	}
	if most != quota.Unbounded && most > group {
		out = append(out, fmt.Sprintf("%s is %s, above the cgroup's limit of %s: "+
			"the kernel kills the hub before it takes from the largest cluster; "+
			"set %s to at most %s, or raise the limit of the unit or the container",
			name, roughly(most), roughly(group), name, roughly(percent(group, memoryOfGroup))))
	}
	if configured == 0 || configured == quota.Unbounded || environment == quota.Unbounded {
		return out
	}
	switch {
	case environment < configured:
		out = append(out, fmt.Sprintf("%s (%s) is below %s (%s): "+
			"above it the garbage collector works without a pause, and the largest cluster may still take more; "+
			"unset %s, or set %s to the same", variable, roughly(environment), field, roughly(configured), variable, field))
	case environment > configured:
		out = append(out, fmt.Sprintf("%s (%s) is above %s (%s) and of no use, for the lower one holds; "+
			"unset %s, or raise %s", variable, roughly(environment), field, roughly(configured), variable, field))
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

// Advice is for a process with this GOMEMLIMIT (the largest number: none), in this
// one's cgroup, that would run with what is configured.
func Advice(configured, environment int64) []string {
	return advice(configured, environment, groupLimit(ownGroup, groupRoot))
}

// Advice is for the process as it runs.
func (m *Guard) Advice() []string { return advice(m.Configured(), m.first, m.group) }

// Advise logs it.
func (m *Guard) Advise() {
	for _, text := range m.Advice() {
		m.Log.Warn("limits of the memory contradict each other", telemetry.AttrReason, text)
	}
}

// Where a process finds the limit of its cgroup (cgroups(7)).
const (
	ownGroup  = "/proc/self/cgroup"
	groupRoot = "/sys/fs/cgroup"
)
