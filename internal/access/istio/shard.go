// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"crypto/sha256"
	"slices"
)

// mostBytes bounds an object: etcd takes 1.5 MiB, and server-side apply keeps a second record of the fields.
const mostBytes = 512 << 10

// entry is what one cluster has in a combined object.
type entry struct {
	cluster string
	bytes   int
	value   any
}

// overhead is what an object has beside its entries.
const overhead = 4 << 10

// shards divides entries by a hash of the cluster's name. A shard that is too large becomes two, named by one more bit;
// the others keep their names and contents.
func shards(entries []entry, most int) map[string][]entry {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.cluster, b.cluster) })
	out := map[string][]entry{}
	divide(sorted, "0", 0, most-overhead, out)
	return out
}

func divide(entries []entry, label string, bit, most int, out map[string][]entry) {
	total := 0
	for _, e := range entries {
		total += e.bytes + 1
	}
	if len(entries) == 0 {
		return
	}
	if total <= most || len(entries) == 1 || bit == 8*sha256.Size {
		out[label] = entries
		return
	}
	var halves [2][]entry
	for _, e := range entries {
		sum := sha256.Sum256([]byte(e.cluster))
		half := sum[bit/8] >> (7 - bit%8) & 1
		halves[half] = append(halves[half], e)
	}
	divide(halves[0], label+"0", bit+1, most, out)
	divide(halves[1], label+"1", bit+1, most, out)
}
